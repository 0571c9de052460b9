"""What stands in requests and in which order: rows of the mechanisms that only whole requests show."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

import pytest

from tests.e2e.bench import Bench, bash, finish, on, scripted, start, submit, task
from xnagent.app.crew import make_manifest
from xnagent.core.events import Stored
from xnagent.core.limits import Limits
from xnagent.core.spine_events import ManifestRecorded, RequestStarted, SpineRebased, ToolFinished
from xnagent.core.tokens import estimate_text
from xnagent.models.catalog import ModelEntry
from xnagent.testing.choice import RequestView
from xnagent.testing.providers import PROVIDERS
from xnagent.testing.script import ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer
from xnagent.tools.planning import planning_tools
from xnagent.tools.registry import worker_tools
from xnagent.tools.toolbox import toolbox
from xnagent.workspaces.shell import ProcessShell

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def messages(body: bytes) -> list[dict]:
    return json.loads(body)["messages"]


def heads(server: ScriptedServer) -> set[bytes]:
    """Everything before the messages, by role."""
    return {body[: body.index(b'"messages":[')] for body in server.bodies}


def simple() -> object:
    return scripted(
        start(task("a", checks=["grep -q 2 a.py"])),
        finish("r1 settled: completed"),
        workers={"a": [bash("echo '# noise' >/dev/null; echo 'x = 2' > a.py"), submit()]},
    )


async def test_M39_M40_M42_T25_the_head_is_the_same_bytes_in_every_request_of_a_role(bench):
    with ScriptedServer(simple()) as server:
        await bench.run(server)
    assert len(heads(server)) == 2


async def test_M39_M108_what_a_person_reads_of_a_call_is_in_no_request(bench):
    with ScriptedServer(simple()) as server:
        ended = await bench.run(server)
    labels = [event.label for event in ended.of(ToolFinished) if event.tool == "bash"]
    assert labels
    assert all(label not in body.decode() for body in server.bodies for label in labels if " | " in label)
    assert all(event.text for event in ended.of(ToolFinished))


async def test_M41_M44_M46_M30_a_request_goes_from_stable_to_volatile_and_ends_with_the_news(bench):
    with ScriptedServer(simple()) as server:
        await bench.run(server)
    planner = [messages(body) for body in server.bodies if b"<objective>" in body]
    system, objective, state = planner[0]
    assert (system["role"], objective["role"], state["role"]) == ("system", "user", "user")
    assert system["content"].splitlines()[-1] == "Do the next step now."
    assert objective["content"].startswith("<objective>")
    assert state["content"].startswith("<state>")
    assert planner[-1][-1]["content"].startswith("<state_delta")
    worker = next(messages(body) for body in server.bodies if b"<task id=" in body)
    assert worker[1]["content"].endswith("Do this task now.")


async def test_M31_T25_settings_that_change_at_a_resumption_leave_the_prefix_as_it_is(bench):
    with ScriptedServer(simple()) as server:
        first = await bench.run(server, limits__steps=2)
        assert first.outcome == "limit"
        ended = await bench.resume(server, parallel=1, spine__soft_share=0.3, check_timeout_seconds=5)
        server.check()
    assert ended.outcome == "completed"
    assert server.count("breaks") == 0
    assert len(heads(server)) == 2


async def test_T16_T18_T3_facts_never_reach_the_head_and_state_is_not_sent_twice(bench):
    record = ScriptedCall(name="record_fact", arguments={"text": "The answer is known", "value": "4711"})
    script = scripted(on("<state>", calls=[record]), finish())
    with ScriptedServer(script) as server:
        await bench.run(server)
    assert all(b"4711" not in head for head in heads(server))
    last = server.bodies[-1]
    assert last.count(b'"<state>\\n') == 1
    assert last.startswith(server.bodies[0][:-2])


async def test_M109_T10_a_request_changes_nothing_that_is_stored(bench):
    """What a request sends was stored before; the event of the request is all that it adds."""
    with ScriptedServer(simple()) as server:
        ended = await bench.run(server)
    for number, stored in enumerate(ended.events):
        if isinstance(stored.event, RequestStarted):
            following = type(ended.events[number + 1].event).__name__
            assert following != "SpineRebased"
    assert len(ended.of(RequestStarted)) == len(server.bodies)


async def test_M109_what_is_stored_stays_as_it_is_through_requests_and_rebases(bench):
    """At each request the log so far is hashed; at the end of the session its events still have these hashes."""
    seen: list[list[str]] = []

    def brain(view: RequestView) -> ReplySpec:
        seen.append(hashes(bench.host.place(bench.session).events()))
        if view.role == "worker":
            return bash(f"seq -f 'line {view.number} %g' 400").reply if view.number < 7 else submit().reply
        if "<state>" in view.new_text:
            return start(task("a")).reply
        return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")

    small = {"worker__model__window": 12_000, "worker__model__max_output_tokens": 1_000}
    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, **small)
    assert len(seen) == len(ended.of(RequestStarted)) > len(ended.of(SpineRebased)) > 0
    last = hashes(ended.events)
    assert all(stored == last[: len(stored)] for stored in seen)
    assert sorted(map(len, seen)) == sorted({len(stored) for stored in seen})


def hashes(events: Iterable[Stored]) -> list[str]:
    return [sha256(repr(stored).encode()).hexdigest() for stored in events]


async def test_M104_the_last_step_of_a_run_asks_for_the_hand_in(bench):
    script = scripted(
        start(task("a")),
        finish("r1 settled: completed"),
        workers={"a": [bash("true"), bash("true"), submit("This is your last step")]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, limits__run_steps=3)
        server.check()
    assert ended.outcome == "completed"


async def test_M105_M62_no_request_is_larger_than_what_fits_beside_the_output(bench):
    steps = [bash(f"seq 1 3000; echo {number}") for number in range(8)]
    script = scripted(start(task("a")), finish("r1 settled: completed"), workers={"a": [*steps, submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server, planner__model__window=16_000, planner__model__max_output_tokens=2_000)
    assert any(event.agent == "r1" for event in ended.of(SpineRebased))
    assert all(event.estimate_tokens <= 16_000 - 2_000 for event in ended.of(RequestStarted))


@pytest.mark.parametrize(("believed", "overflows"), [(16_000, False), (26_000, True)])
async def test_M104_M105_with_room_for_the_output_kept_a_provider_never_sees_too_much(bench, believed, overflows):
    """The provider takes 16,000 tokens, input and output; who believes in more keeps no room and is refused once."""
    steps = [bash(f"seq 1 1500; echo {number}") for number in range(8)]
    script = scripted(start(task("a")), finish("r1 settled: completed"), workers={"a": [*steps, submit()]})
    shares = {"spine__policy": "threshold", "spine__soft_share": 0.9, "spine__hard_share": 0.95}
    with ScriptedServer(script, provider=replace(PROVIDERS["openai"], window_tokens=16_000)) as server:
        ended = await bench.run(
            server, planner__model__window=believed, planner__model__max_output_tokens=2_000, **shares
        )
    assert ended.of(SpineRebased)
    assert bool(server.count("overflows")) is overflows


async def test_M26_a_receipt_counts_what_is_in_the_log_only(bench):
    noise = [on(calls=[], text="thinking aloud " * 40, times=1)]
    steps = [bash(f"seq 1 2500; echo {number}") for number in range(6)]
    script = scripted(start(task("a")), finish("r1 settled: completed"), workers={"a": [*steps, *noise, submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server, planner__model__window=16_000, planner__model__max_output_tokens=2_000)
    receipts = [event for event in ended.of(SpineRebased) if event.agent == "r1"]
    assert receipts
    assert all(0 <= receipt.unreferenced <= receipt.items_dropped for receipt in receipts)


def test_M117_the_worker_has_the_six_tools_and_two_to_report():
    names = [tool.spec.name for tool in worker_tools(ProcessShell(environ={"PATH": os.environ["PATH"]}))]
    assert names == ["bash", "edit", "glob", "grep", "read", "write"]


def test_M28_B007_the_definitions_do_not_depend_on_the_order_of_registration():
    tools = planning_tools(limits=Limits())
    assert toolbox(tools).definitions == toolbox(tools[::-1]).definitions


@pytest.mark.parametrize(("text", "byte_estimate_is_higher"), [("那个文件在哪里", True), ("where is that file", False)])
def test_M58_bytes_overestimate_chinese_and_only_that(text, byte_estimate_is_higher):
    by_bytes = len(text.encode()) / 4
    assert (by_bytes > estimate_text(text)) is byte_estimate_is_higher


MANIFEST = """
import sys
from xnagent.app.crew import make_manifest
from xnagent.models.catalog import ModelEntry
from xnagent.tools.registry import planner_tools
from xnagent.core.limits import Limits
from xnagent.tools.planning import planning_tools
from xnagent.tools.toolbox import toolbox
box = toolbox([*planner_tools(), *planning_tools(limits=Limits(runs=3))])
made = make_manifest("planner", ModelEntry(name="m", base_url="http://127.0.0.1/v1"), definitions=box.definitions)
sys.stdout.write(made.manifest)
"""


def test_B008_M29_T17_another_process_folder_and_hash_seed_give_the_same_head(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    made = []
    for number, folder in enumerate(folders):
        folder.mkdir()
        environ = {**os.environ, "PYTHONHASHSEED": str(number), "TZ": f"UTC-{number * 5}"}
        done = subprocess.run(
            [sys.executable, "-c", MANIFEST], cwd=folder, env=environ, capture_output=True, text=True, check=True
        )
        made.append(done.stdout)
    assert made[0] == made[1] != ""


def test_B031_a_model_that_may_write_its_whole_window_still_has_room_for_input():
    entry = ModelEntry(name="m", window_tokens=262_144, max_output_tokens=262_144)
    manifest = make_manifest("planner", entry, definitions="[]")
    assert isinstance(manifest, ManifestRecorded)
    assert manifest.max_output_tokens + 22_000 < 262_144
    assert manifest.max_output_tokens >= 1_024
