"""A long session as a log: runs side by side, a Planner with deltas and rebases, and text that is up to no good."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

from xnagent.core import events as ev
from xnagent.core import spine_events as sp
from xnagent.core.board import Evidence
from xnagent.core.checkpoint import dump
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, CallId, FactId, RunId, SessionId, TaskId, Ticket, role_of
from xnagent.core.items import AssistantText, ToolCall, UserText
from xnagent.core.text import one_line
from xnagent.core.tokens import Usage
from xnagent.inspect.reading import Reading
from xnagent.store.codec import as_record

SESSION = SessionId("s-long")
BEGUN = datetime(2026, 1, 1, 8, tzinfo=UTC)
SIDE_BY_SIDE = 4
STEPS = 20
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31mred\u202etxt\x07 '\"--><!-- &lt;b&gt;"
PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-a = 1\n+a = 2 # <b>\u202e</b>\n c\n"
TICKET = Ticket("artifact:0123456789abcdef")


class _Log:
    """Numbers for what is about to happen."""

    def __init__(self) -> None:
        self.requests = count(1)
        self.made = 0
        self.sizes: dict[str, int] = {}

    def step(self, agent: AgentId, *, call: str = "bash") -> Iterator[ev.Event]:
        number, before = next(self.requests), self.sizes.get(agent, 0)
        size = before + 350 if before else 3_000
        self.made, self.sizes[agent] = number, size
        yield sp.RequestStarted(
            agent=agent,
            request=number,
            manifest=role_of(agent),
            items=number,
            estimate_tokens=size,
            predicted_cached_tokens=before,
            sha256=f"{number:064x}",
            size_bytes=4 * size,
        )
        used = Usage(input_tokens=size, cached_tokens=before, output_tokens=60, reasoning_tokens=0)
        asked = ToolCall(call_id=CallId(f"c{number}"), name=call, arguments='{"command":"pytest -q tests/"}')
        said = AssistantText(text=f"Step {number}. {EVIL}")
        yield sp.ReplyReceived(
            agent=agent,
            request=number,
            items=(said, asked),
            usage=used,
            cost_usd=size * 1e-6,
            finish="tool_calls",
            duration_seconds=1.5,
        )
        yield sp.ToolStarted(agent=agent, call_id=asked.call_id, tool=call, effect="opaque")
        text = f"{number} passed in 0.1 s\n{EVIL}\n" + "line of output\n" * 20
        yield sp.ToolFinished(agent=agent, call_id=asked.call_id, tool=call, text=text, duration_seconds=0.4)


def _run(log: _Log, number: int, steps: int) -> Iterator[ev.Event]:
    run, task = RunId(f"r{number}"), TaskId(f"t{number}")
    brief = UserText(text=f"Do {task}. {EVIL}", origin="task")
    yield ev.RunLaunched(run=run, base="c0")
    yield sp.SpineExtended(agent=AgentId(run), kind="brief", items=(brief,))
    for _ in range(steps):
        yield from log.step(AgentId(run))
    has_passed = number % 5 != 0
    seen = Evidence(
        command="pytest -q", exit_code=0 if has_passed else 1, duration_seconds=1.0, output=TICKET, tail=f"end {EVIL}"
    )
    yield ev.RunSubmitted(run=run, status="completed", summary=f"done {EVIL}")
    yield ev.PatchTaken(run=run, patch=TICKET, commit="c1", changed_files=("a.py", EVIL))
    yield ev.CheckFinished(run=run, evidence=seen)
    if has_passed:
        yield ev.PatchMerged(run=run, commit=f"c{number}")
    yield ev.RunSettled(run=run, status="completed" if has_passed else "failed", reason="" if has_passed else EVIL)


def _beginning() -> Iterator[ev.Event]:
    yield ev.SessionStarted(session=SESSION, objective=f"Port everything.\n{EVIL}", base="c0", repository="somewhere")
    for role in ("planner", "worker"):
        yield sp.ManifestRecorded(
            manifest=role,
            role=role,
            wire="chat",
            model="made-up",
            system=f"You are the {role}.",
            tools="[]",
            max_output_tokens=4_000,
            window_tokens=128_000,
        )
    yield sp.SpineExtended(agent=PLANNER, kind="objective", items=(UserText(text="Port.", origin="user"),))
    yield sp.SpineExtended(agent=PLANNER, kind="baseline", items=(UserText(text="{}", origin="state"),))
    yield ev.FactRecorded(fact=FactId("f1"), text=f"it is {EVIL}", source="planner", value="1")
    yield ev.FactCorrected(fact=FactId("f1"), text=f"it was {EVIL}", source="r1", value="2")
    yield ev.FactRecorded(fact=FactId("f2"), text="gone", source="user", is_pinned=True)
    yield ev.FactRetracted(fact=FactId("f2"), reason=EVIL)


def _rebased(log: _Log) -> Iterator[ev.Event]:
    before = log.sizes[PLANNER]
    log.sizes[PLANNER] = 3_000
    items = (UserText(text="Port.", origin="user"), UserText(text=f"checkpoint {EVIL}", origin="state"))
    yield sp.SpineRebased(
        agent=PLANNER,
        items=items,
        cursor=0,
        cause="economic",
        tokens_before=before,
        tokens_after=3_000,
        items_dropped=40,
        checkpoint_tokens=900,
        price_usd=0.003,
        break_even_steps=4.0,
    )


def _group(log: _Log, first: int, steps: int) -> Iterator[ev.Event]:
    """So many runs at the same time, and a Planner's step before and after."""
    numbers = range(first, first + SIDE_BY_SIDE)
    yield from log.step(PLANNER, call="plan")
    for number in numbers:
        task, before = TaskId(f"t{number}"), number - SIDE_BY_SIDE
        after = (TaskId(f"t{before}"),) if before > 0 else ()
        yield ev.TaskAdded(
            task=task, title=f"Part {number} {EVIL}", objective=EVIL, depends_on=after, checks=("pytest -q",)
        )
        yield ev.RunStarted(run=RunId(f"r{number}"), task=task, brief=EVIL)
    courses = [_run(log, number, steps) for number in numbers]
    while courses:
        for course in list(courses):
            happened = next(course, None)
            if happened is None:
                courses.remove(course)
            else:
                yield happened
    operation = dump({"op": "add", "path": f"/runs/r{first}", "value": EVIL})
    told = f'<state_delta from="0" to="{first}">\n- run r{first} settled: {one_line(EVIL)}\n{operation}\n</state_delta>'
    yield sp.SpineExtended(agent=PLANNER, kind="delta", items=(UserText(text=told, origin="state"),), cursor=first)
    if log.sizes[PLANNER] > 6_000:
        yield from _rebased(log)


def long_events(requests: int, steps: int = STEPS) -> Iterator[ev.Event]:
    """A settled session of at least so many requests, so many in each run."""
    log = _Log()
    yield from _beginning()
    first = 1
    while log.made < requests:
        yield from _group(log, first, steps)
        first += SIDE_BY_SIDE
    yield from log.step(PLANNER, call="finish")
    whole = Evidence(command=f"make # {EVIL}", exit_code=0, duration_seconds=2.0, output=TICKET, tail="ok")
    yield ev.FinishRequested(outcome="completed", summary=f"All ported. {EVIL}")
    yield ev.CheckFinished(run=None, evidence=whole)
    yield ev.ResultApplied(is_applied=True, branch="xnagent/s-long", patch=TICKET, changed_files=("a.py",))
    yield ev.SessionSettled(outcome="partial", exit_code=4, summary="All ported.", duration_seconds=7.5)


def long_reading(requests: int) -> Reading:
    """The same, as a reader of its log gets it."""
    stored = [
        ev.Stored(seq=seq, at=_moment(seq), event=event) for seq, event in enumerate(long_events(requests), start=1)
    ]
    return Reading(
        session=SESSION,
        state=fold_all(one.event for one in stored),
        events=stored,
        records=[as_record(SESSION, one) for one in stored],
    )


def _moment(seq: int) -> str:
    return (BEGUN + timedelta(milliseconds=400 * seq)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
