"""How much of what tools say a model gets to see, and what it is not told twice (M98 to M107, M115)."""

import re
from collections.abc import Callable, Sequence

import pytest

from tests.e2e.bench import Bench, Ended, call, finish, on, reply, scripted, start, submit, task
from xnagent.core.items import ToolResult
from xnagent.core.spine_events import RequestStarted, ResultOffloaded, SpineRebased, ToolFinished
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

LONG = "".join(f"line {n} of a long file, with some words in it\n" for n in range(1, 1_101))
TICKET = r"for the rest read (artifact:[0-9a-f]{16})"
Step = Callable[[str], ReplySpec]


def worker(*steps: Sequence[ScriptedCall] | Step, seen: list[str]) -> Callable[[RequestView], ReplySpec]:
    """A Worker that makes these calls step by step and then hands in; what it is told is put into `seen`."""

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "planner":
            if "<state>" in view.new_text:
                return start(task("one")).reply
            return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")
        seen.append(view.new_text)
        if view.number > len(steps):
            return submit().reply
        step = steps[view.number - 1]
        return step(view.new_text) if callable(step) else reply(*step)

    return brain


def read(path: str, **fields: int) -> ScriptedCall:
    return call("read", path=path, **fields)


async def run(bench: Bench, *steps: Sequence[ScriptedCall] | Step, **settings: object) -> tuple[Ended, list[str]]:
    seen: list[str] = []
    with ScriptedServer(brain=worker(*steps, seen=seen)) as server:
        ended = await bench.run(server, **settings)
    return ended, seen


def results_in(ended: Ended, agent: str = "r1") -> list[str]:
    """The results as they stood in the spine, also those that a rebase dropped."""
    shorter = {event.call_id: event.text for event in ended.of(ResultOffloaded) if event.agent == agent}
    texts = [shorter.get(event.call_id, event.text) for event in ended.results(agent)]
    last = [item.text for item in ended.state.spines[agent].items if isinstance(item, ToolResult)]
    if not ended.state.rebases:
        assert texts == last
    return texts


async def test_M101_M98_results_that_are_too_long_together_are_cut_the_largest_first(bench: Bench):
    for name in "abcdef":
        (bench.repository / f"{name}.txt").write_text(f"{name}\n" + LONG)
    ended, _ = await run(
        bench, [read("a.py"), *[read(f"{name}.txt") for name in "abcdef"]], worker__model__window=90_000
    )
    texts = results_in(ended)[:7]
    limit = 90_000 - ended.state.manifests[ended.state.role_manifest["worker"]].max_output_tokens
    assert sum(map(len, texts)) <= limit < sum(len(event.text) for event in ended.results("r1")[:6])
    assert texts[0] == "1\tx = 1"
    cut = [name for name, text in zip("-abcdef", texts, strict=True) if "too long together" in text]
    assert cut
    assert all(f"read {name}.txt again in smaller parts" in texts["-abcdef".index(name)] for name in cut)
    assert ended.code == 0


async def test_M100_M106_M101_what_is_cut_is_whole_behind_a_ticket(bench: Bench):
    lines = "for n in $(seq 700); do echo line-$n-of-{0}; done"
    calls = [call("bash", command=lines.format(name)) for name in "abcdef"]

    def again(text: str) -> ReplySpec:
        return reply(read(re.search(TICKET, text)[1]))

    small = {"worker__model__window": 40_000, "worker__model__max_output_tokens": 2_000}
    ended, seen = await run(bench, calls, again, **small)
    assert sum(map(len, results_in(ended)[:6])) <= 38_000
    offloads = [event.call_id for event in ended.of(ResultOffloaded)]
    assert offloads
    cut = [n for n, text in enumerate(results_in(ended)[:6]) if re.search(TICKET, text)]
    assert set(offloads) <= {event.call_id for n, event in enumerate(ended.results("r1")) if n in cut}
    [whole] = results_in(ended)[6:7]
    assert [line.partition("\t")[2] for line in whole.splitlines()][:700] == [
        f"line-{n}-of-{'abcdef'[cut[0]]}" for n in range(1, 701)
    ]
    assert seen[2].count("artifact:") == 0


async def test_M107_T21_pages_of_stored_outputs_go_last_and_never_to_another_ticket(bench: Bench):
    def again(text: str) -> ReplySpec:
        ticket = re.search(r"full output: (artifact:[0-9a-f]{16})", text)[1]
        return reply(*[read(ticket, offset=n * 300 + 1, limit=300) for n in range(16)])

    small = {"worker__model__window": 40_000, "worker__model__max_output_tokens": 2_000}
    ended, seen = await run(bench, [call("bash", command="seq -f 'a line that says %g' 5000")], again, **small)
    pages = results_in(ended)[1:17]
    tickets = set(re.findall(r"artifact:[0-9a-f]{16}", "".join(pages)))
    assert len(tickets) == 1
    assert tickets <= set(re.findall(r"artifact:[0-9a-f]{16}", seen[1]))
    assert sum(map(len, pages)) <= 38_000
    assert any("again in smaller parts, with offset and limit" in page for page in pages)


async def test_an_unchanged_page_is_answered_by_reference_until_it_is_asked_for_again(bench: Bench):
    (bench.repository / "long.txt").write_text(LONG)
    change = call("bash", command="sed -i 's/line 5 of/line five of/' long.txt")
    page = read("long.txt", offset=1, limit=100)
    same = read("./long.txt", limit=100)
    ended, _ = await run(bench, [page], [same], [page], [page], [change], [page], [read("long.txt", limit=99)])
    texts = results_in(ended)
    assert texts[0] == texts[2]
    assert texts[1] == texts[3].replace("step 3", "step 1")
    assert "unchanged since you read them at step 1" in texts[1]
    assert "[files that you had seen are changed now: long.txt]" in texts[4]
    assert "line five of" in texts[5]
    assert "99\tline 99 of" in texts[6]
    assert ended.results("r1")[4].paths_changed == ("long.txt",)


@pytest.mark.parametrize("policy", ["threshold", "economic"])
async def test_a_loop_that_reads_the_same_files_again_and_again_is_sent_each_of_them_once(bench: Bench, policy: str):
    for name in ("one.txt", "two.txt"):
        (bench.repository / name).write_text(f"{name}\n{LONG}")
    rounds = [[read(name, limit=100)] for _ in range(4) for name in ("one.txt", "two.txt")]
    ended, _ = await run(bench, *rounds, spine__policy=policy)
    texts = results_in(ended)
    assert ["unchanged since you read them" in text for text in texts[:8]] == [False] * 2 + [True] * 6
    pages = sum(len(text) for text in texts[:2])
    assert sum(len(text) for text in texts[2:8]) < 0.2 * pages


async def test_a_rebase_makes_the_ledger_show_again_and_keeps_it_in_the_checkpoint(bench: Bench):
    (bench.repository / "long.txt").write_text(LONG)
    page, filler = read("long.txt", limit=100), call("bash", command="seq -f 'filler that fills %g' 400")
    steps = [[page], *[[filler, call("bash", command=f"echo {n}")] for n in range(8)], [page]]
    small = {"worker__model__window": 12_000, "worker__model__max_output_tokens": 1_000, "spine__policy": "threshold"}
    ended, _ = await run(bench, *steps, **small)
    rebases = [event for event in ended.of(SpineRebased) if event.agent == "r1"]
    assert rebases
    assert re.search(r"Files read .*long\.txt \(1, [0-9a-f]{8}\)", rebases[0].items[1].text)
    assert "1\tline 1 of a long file" in ended.results("r1", "read")[-1].text


async def test_what_one_worker_read_and_changed_is_told_to_the_next(bench: Bench):
    look = [read("README.md"), call("edit", path="a.py", old="x = 1", new="x = 2")]
    script = scripted(
        start(task("one")),
        on("r1 settled: completed", calls=[call("plan", tasks=[task("two")]), call("delegate", task="two")]),
        finish("r2 settled: completed"),
        workers={"one": [on(calls=look), submit()], "two": [submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    [brief] = ended.told("r2", "brief")
    assert "- a.py: changed by r1\n- README.md: read by r1" in brief
    assert "read by" not in ended.told("r1", "brief")[0]


async def test_a_report_has_a_cap_and_the_rest_is_behind_a_ticket(bench: Bench):
    summary = "The beginning. " + "middle " * 2_000 + "The end."
    facts = [{"text": f"Fact {n}: {'x' * 500}"} for n in range(30)]
    note = call("note", text="Here I am. " + "on the way " * 500)
    script = scripted(
        start(task("one")),
        finish("r1 settled: completed"),
        workers={"one": [on(calls=[note]), submit(summary=summary, facts=facts)]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    run, known = ended.run("r1"), ended.state.board.facts
    assert len(run.summary) <= 2_000
    assert run.summary.startswith("The beginning.")
    assert run.summary.endswith("The end.")
    assert re.search(r"read artifact:[0-9a-f]{16} for the whole", run.summary)
    assert re.search(r"read artifact:[0-9a-f]{16} for the whole", run.progress)
    assert 10 < len(known) < 20
    assert re.fullmatch(r"r1 handed in \d+ more facts: read artifact:[0-9a-f]{16}", list(known.values())[-1].text)
    assert sum(len(fact.text) for fact in known.values()) < 9_000


async def test_a_report_without_a_hand_in_has_the_same_cap(bench: Bench):
    script = scripted(
        start(task("one")),
        finish("r1 settled"),
        workers={"one": [on(text="Done. " * 2_000), on(text="It is done. " * 2_000)]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert len(ended.run("r1").summary) <= 2_000
    assert re.search(r"read artifact:[0-9a-f]{16} for the whole", ended.run("r1").summary)


async def test_M115_a_call_that_works_but_is_only_repeated_is_remarked_upon_and_not_stopped(bench: Bench):
    same = [call("bash", command="echo same")]
    ended, _ = await run(bench, *[same] * 9)
    remarks = ["times in a row" in text.splitlines()[0] for text in results_in(ended)]
    assert all(text.splitlines()[-1].startswith("[exit 0 |") for text in results_in(ended)[:9])
    assert [n for n, is_told in enumerate(remarks, 1) if is_told] == [3, 5, 8]
    assert ended.code == 0


async def test_M115_a_note_that_is_only_repeated_replays_like_any_other(bench: Bench):
    """`check_ended` makes every call of a state tool again and compares."""
    ended, _ = await run(bench, *[[call("note", text="Still here.")]] * 4)
    assert [text.startswith("[This same call") for text in results_in(ended)] == [False, False, True, False, False]


async def test_a_worker_that_loops_is_stopped_and_its_task_can_be_done_by_the_next(bench: Bench):
    looping = call("edit", path="a.py", old="nowhere", new="else")
    script = scripted(
        start(task("one", checks=["grep -q 'x = 2' a.py"])),
        on("r1 settled: failed", calls=[call("delegate", task="one", brief="a.py has x = 1")]),
        finish("r2 settled: completed"),
        workers={
            "one#1": [on(calls=[looping], times=0)],
            "one#2": [on(calls=[call("edit", path="a.py", old="x = 1", new="x = 2")]), submit()],
        },
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert ended.run("r1").reason == "stopped: the same failing call was made 8 times in a row"
    assert (ended.outcome, ended.code) == ("completed", 0)
    assert bench.read("a.py") == "x = 2\n"
    assert len([event for event in ended.of(RequestStarted) if event.agent == "r1"]) == 8


@pytest.mark.parametrize("stop", [2, 4])
async def test_offloading_comes_out_the_same_after_a_limit_and_a_resumption(bench: Bench, stop: int):
    """The step's results are in the log; what joined the history is rebuilt from it byte for byte (`check_ended`)."""
    small = {"worker__model__window": 40_000, "worker__model__max_output_tokens": 2_000}
    seen: list[str] = []
    calls = [call("bash", command=f"seq -f 'x{n} says %g' 1000") for n in range(6)]
    with ScriptedServer(brain=worker(calls, [call("bash", command="true")], seen=seen)) as server:
        await bench.run(server, limits__steps=stop, **small)
        ended = await bench.resume(server, limits__steps=50, **small)
    assert ended.code == 0
    assert any("too long together" in text for text in results_in(ended))


async def test_M98_M99_M102_M103_the_cheaper_way_to_save_room_comes_first_and_no_model_is_asked(bench: Bench):
    """A tool cuts its own result; then those of a step are cut together; then a rebase drops the old ones."""
    noisy = [call("bash", command=f"seq -f 'noise {n} %g' 50000") for n in range(4)]
    small = {"worker__model__window": 20_000, "worker__model__max_output_tokens": 2_000, "spine__policy": "threshold"}
    ended, _ = await run(bench, *[noisy, noisy[:3], noisy[:2]] * 3, **small)
    kinds = [type(stored.event) for stored in ended.events]
    own = [event for event in ended.results("r1", "bash") if event.artifact]
    assert own
    assert max(len(event.text) for event in own) < 13_000
    assert kinds.index(ToolFinished) < kinds.index(ResultOffloaded) < kinds.index(SpineRebased)
    assert len([event for event in ended.of(RequestStarted) if event.agent == "r1"]) == len(ended.replies("r1")) == 10
    checkpoint = next(event for event in ended.of(SpineRebased) if event.agent == "r1").items[1].text
    assert "- bash: seq -f 'noise 0 %g' 50000 → exit 0" in checkpoint
    assert ended.code == 0
