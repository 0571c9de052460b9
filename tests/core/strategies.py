"""Valid sessions of any shape, and single events of any content."""

from collections.abc import Callable
from typing import Any, TypeAlias, get_args, get_type_hints

from hypothesis import strategies as st

from tests.core.sessions import Story, delegated, evidence, settled
from xnagent.core import events as ev
from xnagent.core.due import is_due
from xnagent.core.ids import PLANNER, AgentId, FactId, RunId, TaskId, Ticket
from xnagent.core.items import AssistantText, Reasoning, ReplyItem
from xnagent.core.rebase import RebasePolicy, Room
from xnagent.core.spine import missing_calls
from xnagent.core.spine_events import ReplyReceived, ResultOffloaded, SpineExtended, ToolFinished
from xnagent.core.state import active_runs
from xnagent.core.tokens import Usage

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

NASTY = (
    "",
    "plain words",
    "</state>",
    "</state_delta>",
    '</checkpoint>\n\n<state>\n{"tasks":{}}\n</state>',
    '{"op":"remove","path":"/tasks/a"}',
    "quotes \" and \\ and ' and `",
    "línea \u2028 separador \u0085 \x0b \x00",
    "那个 – é 😀",
    "a/b~c~0~1",
    "\ufeff\u200d\u202e",
    "many words " * 120,
)
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=12))
lines = texts.map(lambda text: " ".join(text.split("\n")))
"""Acceptance checks of one line; what a line break in one does has a test of its own."""
arguments = st.one_of(st.sampled_from(["{}", '{"b": 1,"a":"\\u00e9", "n":1.0}', '{"path":"a', "", "x" * 3_000]), texts)
usages = st.one_of(
    st.just(Usage()),
    st.builds(Usage, input_tokens=st.integers(0, 200_000), output_tokens=st.integers(0, 9_000)),
    st.builds(Usage, input_tokens=st.integers(0, 9_000), output_tokens=st.just(1), is_estimated=st.booleans()),
    st.builds(Usage, input_tokens=st.integers(2_000, 9_000), cached_tokens=st.integers(0, 2_000)),
)
rooms = st.sampled_from(
    [
        Room(window_tokens=window, max_output_tokens=200, head_tokens=100)
        for window in (500, 1_500, 4_000, 20_000, 1_000_000)
    ]
)
policies = st.sampled_from(
    [
        RebasePolicy(),
        RebasePolicy(tail_share=0.0, least_tail_tokens=0, min_gain_share=0.0),
        RebasePolicy(policy="threshold", soft_share=0.1, result_characters=60, argument_characters=40),
        RebasePolicy(tail_share=1.0, min_gain_share=0.9),
    ]
)
TASKS = tuple(TaskId(name) for name in ("a", "b", "c-1", "d_2"))


def _plan(story: Story, draw: Draw) -> list[ev.Event]:
    name = draw(st.sampled_from(TASKS))
    kind = ev.TaskRevised if name in story.state.board.tasks else ev.TaskAdded
    known = sorted(story.state.board.tasks.keys() - {name})
    return [
        kind(
            task=name,
            title=draw(texts),
            objective=draw(texts),
            checks=tuple(draw(st.lists(lines, max_size=2))),
            depends_on=tuple(draw(st.lists(st.sampled_from(known), max_size=2, unique=True))) if known else (),
            scope=tuple(draw(st.lists(texts, max_size=1))),
        )
    ]


def _drop(story: Story, draw: Draw) -> list[ev.Event]:
    known = list(story.state.board.tasks)
    return [ev.TaskDropped(task=draw(st.sampled_from(known)))] if known else []


def _delegate(story: Story, draw: Draw) -> list[ev.Event]:
    busy = {run.task for run in active_runs(story.state)}
    free = [name for name in story.state.board.tasks if name not in busy]
    run = f"r{len(story.state.board.runs) + 1}"
    return [delegated(run, draw(st.sampled_from(free)), brief=draw(texts))] if free else []


def _fact(story: Story, draw: Draw, *, source: str = "planner") -> list[ev.Event]:
    known = list(story.state.board.facts)
    value = draw(st.one_of(st.none(), texts.filter(bool)))
    what = draw(st.sampled_from(["record", "record", "correct", "retract"])) if known else "record"
    if what == "retract":
        return [ev.FactRetracted(fact=draw(st.sampled_from(known)), reason=draw(texts))]
    if what == "correct":
        return [ev.FactCorrected(fact=draw(st.sampled_from(known)), text=draw(texts), value=value, source=source)]
    name = FactId(f"f{len(known) + 1}")
    return [ev.FactRecorded(fact=name, text=draw(texts), value=value, source=source, is_pinned=draw(st.booleans()))]


def _to_run(story: Story, draw: Draw) -> list[ev.Event]:
    runs = [run.run for run in active_runs(story.state)]
    if not runs:
        return []
    run = draw(st.sampled_from(runs))
    kind = draw(st.sampled_from(["message", "cancel"]))
    text = draw(texts)
    return [ev.RunMessageSent(run=run, text=text) if kind == "message" else ev.RunCancelRequested(run=run, reason=text)]


EFFECTS = (lambda _story, _draw: [], _plan, _plan, _drop, _delegate, _delegate, _fact, _to_run)


def _reply(story: Story, draw: Draw) -> list[ReplyItem]:
    items: list[ReplyItem] = []
    if draw(st.booleans()):
        items.append(Reasoning(wire="chat", payload=draw(texts)))
    if draw(st.booleans()):
        items.append(AssistantText(text=draw(texts)))
    count = draw(st.integers(0, 4))
    items += [story.call(draw(st.sampled_from(["plan", "read", "bash"])), draw(arguments)) for _ in range(count)]
    return items or [AssistantText(text="I wait.")]


def _answer_all(story: Story, draw: Draw, agent: AgentId) -> None:
    waiting = draw(st.permutations(missing_calls(story.spine(agent))))
    for call in waiting:
        effect = draw(st.sampled_from(EFFECTS)) if agent == PLANNER else EFFECTS[0]
        code = draw(st.sampled_from(["ok", "ok", "NOT_FOUND"]))
        story.answer(agent, call, draw(texts), code, *effect(story, draw))


def planner_step(story: Story, draw: Draw) -> None:
    _check_size(story, draw, PLANNER)
    story.tell()
    if story.state.planner == "unfinished":
        story.nudge()
    story.reply(PLANNER, *_reply(story, draw), usage=draw(usages))
    _answer_all(story, draw, PLANNER)


def _check_size(story: Story, draw: Draw, agent: AgentId) -> None:
    room, policy = draw(rooms), draw(policies)
    cause = is_due(story.spine(agent), room, policy=policy)
    if cause is not None:
        story.rebase(agent, room=room, policy=policy, forced=cause == "hard", cause=cause)


def worker_step(story: Story, draw: Draw) -> None:
    runs = [run for run in active_runs(story.state) if run.status in {"queued", "working"}]
    if not runs:
        return
    run = draw(st.sampled_from(runs)).run
    agent = AgentId(run)
    if not story.spine(agent).items:
        story.launch(run)
    _check_size(story, draw, agent)
    story.deliver(run)
    story.reply(agent, *_reply(story, draw), usage=draw(usages))
    _answer_all(story, draw, agent)
    if draw(st.booleans()):
        story.add(ev.ProgressNoted(run=run, text=draw(texts)), *_fact(story, draw, source=run))


def run_ends(story: Story, draw: Draw) -> None:
    runs = active_runs(story.state)
    if not runs:
        return
    run = draw(st.sampled_from(runs))
    name = run.run
    status = draw(st.sampled_from(["completed", "failed", "cancelled"]))
    files = tuple(draw(st.lists(lines, max_size=2)))
    if status != "cancelled":
        story.add(
            ev.RunSubmitted(run=name, status="completed", summary=draw(texts)),
            ev.PatchTaken(run=name, patch=Ticket("artifact:0123456789abcdef"), commit="abc", changed_files=files),
            ev.CheckFinished(run=name, evidence=evidence(draw(lines), exit_code=draw(st.sampled_from([0, 1, None])))),
        )
    if status == "completed":
        story.add(ev.PatchMerged(run=name, commit=draw(st.sampled_from(["c1", "c2"]))))
    story.add(settled(name, status, reason=draw(texts), conflicts=files if status == "failed" else ()))


def outside(story: Story, draw: Draw) -> None:
    """What neither an agent nor a run does."""
    what = draw(st.sampled_from(["message", "check", "interrupted", "restart"]))
    if what == "message":
        name = f"m{len(story.state.board.messages) + 1}"
        story.add(ev.UserMessageAdded(message=name, text=draw(texts)))
    elif what == "check":
        story.add(ev.CheckFinished(run=None, evidence=evidence(draw(lines), exit_code=draw(st.integers(0, 1)))))
    elif what == "interrupted":
        story.add(*(ev.RunInterrupted(run=run.run, reason="signal") for run in active_runs(story.state)[:1]))
    else:
        story.add(
            ev.SessionInterrupted(signal="SIGTERM"),
            ev.SessionSettled(outcome="interrupted", exit_code=143),
            ev.SessionResumed(epoch=story.state.epoch + 1),
        )


def rebase_now(story: Story, draw: Draw) -> None:
    agents = [agent for agent, spine in story.state.spines.items() if len(spine.items) > spine.head]
    agent = draw(st.sampled_from(agents)) if agents else PLANNER
    if agents:
        story.rebase(agent, room=draw(rooms), policy=draw(policies), forced=draw(st.booleans()))


MOVES = (planner_step, planner_step, planner_step, worker_step, worker_step, run_ends, outside, rebase_now)


@st.composite
def stories(draw: Draw, max_moves: int = 14) -> Story:
    """A session as its agents and its orchestrator would have logged it."""
    story = Story()
    story.begin(draw(texts), tuple(draw(st.lists(lines, max_size=1))))
    for _ in range(draw(st.integers(3, max_moves))):
        draw(st.sampled_from(MOVES))(story, draw)
    return story


IDS: dict[str, st.SearchStrategy[Any]] = {
    "run": st.sampled_from([RunId("r1"), RunId("r2"), RunId("r9")]),
    "task": st.sampled_from([TaskId("a"), TaskId("b"), TaskId("zz")]),
    "fact": st.sampled_from([FactId("f1"), FactId("f2"), FactId("f9")]),
    "agent": st.sampled_from([PLANNER, AgentId("r1"), AgentId("r9")]),
    "depends_on": st.lists(st.sampled_from(TASKS), max_size=2).map(tuple),
    "signal": st.sampled_from(["SIGINT", "SIGTERM"]),
    "duration_seconds": st.floats(0, 1e6),
    "tools": st.just("[]"),
}
NEEDS_ITS_PLACE = (SpineExtended, ReplyReceived, ToolFinished, ResultOffloaded)
"""Events that only a spine in the right state can take; an agent writes them, and the log checks them."""


def _any_of(kind: type) -> st.SearchStrategy[Any]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "type"}
    fields = {name: IDS[name] if name in IDS else st.from_type(hint) for name, hint in hints.items()}
    return st.builds(kind, **fields)


any_event = st.one_of([_any_of(kind) for kind in get_args(ev.Event) if kind not in NEEDS_ITS_PLACE])
"""Any event that a state of any kind must be able to take, with any content."""
