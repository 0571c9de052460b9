"""Skills in whole sessions: listed once, read when needed, there after a rebase, and never without the user's word."""

import json
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from tests.e2e.bench import FILES, Bench, bash, call, finish, on, plan, reply, scripted, start, submit, task
from tests.e2e.command import environment, run_line
from xnagent.agents.summary_request import SPEAKERS, cropped
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.items import AssistantText, Origin, UserText
from xnagent.core.project_events import ProjectRead, SkillActivated, SkillsChanged
from xnagent.core.spine import Spine, extend
from xnagent.core.spine_events import SpineExtended, SpineRebased
from xnagent.core.state import spine_of
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer
from xnagent.workspaces.box.ladder import first_that_works

R1 = AgentId("r1")
BODY = "# Port\n\nFirst do A, then see references/more.md.\n"


def skill(name: str = "port", description: str = "Port a package.", body: str = BODY) -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


PROJECT = {
    **FILES,
    ".agents/skills/port/SKILL.md": skill(),
    ".agents/skills/port/references/more.md": "More about it.\n",
    ".claude/skills/port/SKILL.md": skill(description="The other one."),
    ".claude/skills/deploy/SKILL.md": skill("deploy", "Deploy: with care."),
}


def for_user(bench: Bench, name: str, text: str, **files: str) -> Path:
    folder = bench.folder / ".config" / "xnagent" / "skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text)
    for path, content in files.items():
        (folder / path).write_text(content)
    return folder / "SKILL.md"


def messages(body: bytes) -> list[dict]:
    return json.loads(body)["messages"]


def tools(body: bytes) -> dict[str, dict]:
    return {tool["function"]["name"]: tool["function"] for tool in json.loads(body)["tools"]}


def simple(*rules):
    return scripted(start(task("one")), finish("r1 settled: completed"), workers={"one": [*rules, submit()]})


async def test_m113_skills_of_the_project_are_listed_read_and_their_files_are_paths(tmp_path: Path):
    bench = Bench(tmp_path, PROJECT)
    rules = [
        on(calls=[call("skill", name="port")]),
        on("First do A", ".agents/skills/port/references/more.md", calls=[call("skill", name="port")]),
        on("stand above", calls=[call("read", path=".agents/skills/port/references/more.md")]),
        on("More about it.", calls=[call("skill", name="ports")]),
    ]
    with ScriptedServer(simple(*rules)) as server:
        ended = await bench.run(server, skills__project=True)
    heads = {messages(body)[1]["content"] for body in server.bodies}
    (head,) = heads
    assert "- deploy (project): Deploy: with care.\n- port (project): Port a package.\n" in head
    assert "The other one." not in head
    assert "First do A" not in head
    assert [event.code for event in ended.results(R1, "skill")] == ["ok", "ok", "NOT_FOUND"]
    assert "(skills: deploy, port)" in ended.results(R1, "skill")[-1].text
    assert ended.of(SkillActivated) == [SkillActivated(agent=R1, skill="port")]
    assert all(spine_of(ended.state, agent).items[0].origin == "project" for agent in (PLANNER, R1))


async def test_m113_a_repository_cannot_trust_itself_and_a_list_needs_the_users_word(tmp_path: Path):
    bench = Bench(tmp_path, PROJECT)
    with ScriptedServer(simple()) as server:
        ended = await bench.run(server)
    assert not ended.of(ProjectRead)
    assert "skill" not in tools(server.bodies[0])
    assert messages(server.bodies[0])[1]["content"].startswith("<objective>")


async def test_m113_a_users_skills_are_frozen_with_their_files(tmp_path: Path):
    bench = Bench(tmp_path)
    written = for_user(bench, "tidy", skill("tidy", "Tidy up."), **{"list.md": "The list.\n"})
    for_user(bench, "broken", "# no front matter")
    rules = [
        bash(f"printf changed > '{written}'"),
        on(calls=[call("skill", name="tidy")]),
    ]

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return start(task("one")).reply
            return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")
        if view.number <= len(rules):
            return rules[view.number - 1].reply
        if "Files of this skill" in view.new_text:
            ticket = view.new_text.rpartition("list.md: ")[2].split()[0]
            return reply(call("read", path=ticket))
        return submit().reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server)
    assert "First do A" in ended.results(R1, "skill")[0].text
    assert "The list." in ended.results(R1, "read")[0].text
    (read,) = ended.of(ProjectRead)
    assert read.skipped == ("the user's skills/broken/SKILL.md: it has no front matter (`---` on its first line)",), (
        "one warning with file and reason"
    )
    assert str(tmp_path) not in messages(server.bodies[0])[1]["content"]


async def test_a_users_script_runs_in_the_box_and_stays_as_it_is(tmp_path: Path):
    bench = Bench(tmp_path)
    for_user(bench, "tidy", skill("tidy", "Tidy up."), **{"run.sh": "echo tidied $1\n"})

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return start(task("one")).reply
            return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")
        if view.number == 1:
            return reply(call("skill", name="tidy"))
        if "Commands find" in view.new_text:
            folder = view.new_text.rpartition("all of its files in ")[2].partition(",")[0]
            return reply(call("bash", command=f"sh {folder}/run.sh up; echo x > {folder}/run.sh"))
        return submit().reply

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, sandbox={"mode": "auto"})
    (result,) = ended.results(R1, "bash")
    assert result.text.startswith("tidied up\n")
    if first_that_works(bench.host.environ):
        assert (tmp_path / ".config/xnagent/skills/tidy/run.sh").read_text() == "echo tidied $1\n"


async def test_m8_t25_the_list_is_told_once_and_again_appended_when_a_description_changed(tmp_path: Path):
    bench = Bench(tmp_path)
    for_user(bench, "tidy", skill("tidy", "Tidy up."))
    steps = [on("<state>", calls=[call("record_fact", text="Fact 0")])]
    steps += [on(f"f{n}", calls=[call("record_fact", text=f"Fact {n}")]) for n in range(1, 5)]
    with ScriptedServer(scripted(*steps)) as server:
        first = await bench.run(server, limits__steps=5)
    assert first.outcome == "limit"
    last = server.bodies[-1].decode()
    assert last.count("Tidy up.") == 1
    with ScriptedServer(scripted(on("f5", calls=[call("record_fact", text="Fact 5")]))) as server:
        same = await bench.resume(server, limits__steps=6)
    assert not same.of(SkillsChanged)
    assert server.bodies[-1].decode().count("Tidy up.") == 1
    for_user(bench, "tidy", skill("tidy", "Tidy up well."))
    for_user(bench, "late", skill("late", "Came late."))
    rules = [
        on("f6", "Tidy up well.", calls=[call("record_fact", text="Fact 6")]),
        on("f7", calls=[call("skill", name="late")]),
        finish("First do A"),
    ]
    with ScriptedServer(scripted(*rules)) as server:
        ended = await bench.resume(server)
    assert len(ended.of(SkillsChanged)) == 1
    told = [event for event in ended.of(SpineExtended) if any(key.startswith("skills:") for key in event.tells)]
    assert [event.kind for event in told] == ["objective", "project"]
    sent = messages(server.bodies[0])
    assert "- tidy (user): Tidy up." in sent[1]["content"], "what was sent stays as it is"
    assert server.bodies[-1].decode().count("Tidy up well.") == 1
    assert tools(server.bodies[-1]) == tools(server.bodies[0])


async def test_t25_a_session_that_began_without_skills_gets_none_later(tmp_path: Path):
    bench = Bench(tmp_path)
    with ScriptedServer(scripted(on("<state>", calls=[call("record_fact", text="Fact")]))) as server:
        await bench.run(server, limits__steps=1)
    before = tools(server.bodies[0])
    for_user(bench, "late", skill("late", "Came late."))
    with ScriptedServer(scripted(finish())) as server:
        ended = await bench.resume(server)
    assert tools(server.bodies[0]) == before
    assert not ended.of(SkillsChanged)


@pytest.mark.parametrize("step", [1, 15])
async def test_m113_after_a_rebase_an_active_skill_is_whole_or_told_how_to_get_again(tmp_path: Path, step: int):
    """The skill is activated long before the rebase, or right before it."""
    bench = Bench(tmp_path, {**PROJECT, ".agents/skills/port/SKILL.md": skill(body="Rule of the skill.\n" * 500)})
    whole = "Rule of the skill.\n" * 500

    def worker(view: RequestView) -> ReplySpec:
        if "<checkpoint number=" in json.dumps(view.messages):
            return submit().reply
        if view.number == step:
            return reply(call("skill", name="port"))
        return reply(call("bash", command=f"seq {view.number} 1400"))

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker":
            return worker(view)
        if "<state>" in view.new_text:
            return start(task("one")).reply
        return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(
            server,
            skills__project=True,
            spine__policy="threshold",
            spine__soft_share=0.5,
            planner__model={"name": "m", "base_url": server.base_url, "window": 64_000, "max_output_tokens": 1_000},
        )
    rebase = next(event for event in ended.of(SpineRebased) if event.agent == R1)
    assert [item.origin for item in rebase.items[:3]] == ["project", "task", "state"]
    checkpoint = rebase.items[2].text
    assert "Skills, described above: deploy, port" in checkpoint
    assert "call `skill` with the name again: port (read artifact:" in checkpoint
    is_whole = any(whole.strip() in getattr(item, "text", "") for item in rebase.items[3:])
    assert is_whole == (step == 15)


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_m113_on_each_wire_the_head_is_one_prefix_of_planner_and_workers(tmp_path: Path, wire: str):
    bench = Bench(tmp_path, {**PROJECT, "AGENTS.md": "Use tabs.\n", "src/AGENTS.md": "Deep.\n", "src/c.py": "z = 1\n"})
    script = scripted(
        on("<state>", calls=[plan(task("one")), call("delegate", task="one")]),
        finish("r1 settled: completed"),
        workers={"one": [on(calls=[call("skill", name="port"), call("read", path="src/c.py")]), submit("Deep.")]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(
            server,
            skills__project=True,
            planner__model={"name": "m", "base_url": server.base_url, "wire": wire},
        )
    assert ended.outcome == "completed"
    assert all(b"Use tabs." in body for body in server.bodies)


def test_m113_the_command_line_trusts_and_one_line_tells_what_was_skipped(tmp_path: Path):
    bench = Bench(tmp_path, {**PROJECT, ".agents/skills/bad/SKILL.md": "---\nname: bad\n---\nBody\n"})
    with ScriptedServer(simple(on(calls=[call("skill", name="port")]))) as server:
        done = subprocess.run(
            run_line(bench, server, "--trust-project-skills", "--sandbox", "off"),
            env=environment(bench),
            capture_output=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 0, done.stderr.decode()
    told = [line for line in done.stderr.decode().splitlines() if "skipped" in line]
    assert told == ["skipped: .agents/skills/bad/SKILL.md: its front matter has no `description`"]
    assert b"First do A" in server.bodies[-2] + server.bodies[-1]


def test_t24_a_history_as_text_labels_the_projects_messages_as_its_own():
    items = (
        UserText(text="Rules.", origin="project"),
        UserText(text="The task.", origin="task"),
        AssistantText(text="On it."),
    )
    spine = extend(Spine(agent=R1, head=2), items)
    text = cropped(spine, UserText(text="Sum up.", origin="harness"), most_tokens=10_000).text
    assert "the project, as data" in text
    assert text.index("Rules.") < text.index("The task.")
    assert set(SPEAKERS) == set(get_args(Origin))
