"""Sessions as agents write them, event by event; run as a program it prints what an example renders to."""

import hashlib
import json
import sys
from dataclasses import dataclass, field

from xnagent.core import events as ev
from xnagent.core.board import Evidence
from xnagent.core.checkpoint import checkpoint
from xnagent.core.fold import fold
from xnagent.core.ids import PLANNER, AgentId, CallId, FactId, RunId, SessionId, TaskId, Ticket, role_of
from xnagent.core.items import AssistantText, Item, ReplyItem, ToolCall, UserText, calls_of
from xnagent.core.messages import nudge_message, objective_message, state_message
from xnagent.core.rebase import RebasePlan, RebasePolicy, Room, plan_rebase
from xnagent.core.spine import Spine, estimate
from xnagent.core.spine_events import (
    ManifestRecorded,
    RebaseRefused,
    ReplyReceived,
    RequestStarted,
    SpineExtended,
    SpineRebased,
    ToolFinished,
    ToolStarted,
)
from xnagent.core.state import SessionState, spine_of, work_of
from xnagent.core.tokens import Usage

VOLATILE = ("0189cafe-0000-4000-8000-00000000beef", "xn-scratch-8841", "12.345678", "2031-07-04", "feedfacefeedface")
"""What the events carry and no message may show: ids, paths, durations, times, hashes of bodies."""

ROOM = Room(window_tokens=100_000, max_output_tokens=4_000, head_tokens=1_000)


@dataclass
class Story:
    """A log under way: every event is folded at once, and every state is kept."""

    states: list[SessionState] = field(default_factory=lambda: [SessionState()])
    events: list[ev.Event] = field(default_factory=list)
    calls: int = 0

    @property
    def state(self) -> SessionState:
        return self.states[-1]

    def spine(self, agent: AgentId = PLANNER) -> Spine:
        return spine_of(self.state, agent)

    def add(self, *events: ev.Event | None) -> None:
        for event in events:
            if event is not None:
                self.events.append(event)
                self.states.append(fold(self.state, event))

    def begin(self, objective: str = "Port it.", checks: tuple[str, ...] = ()) -> None:
        self.add(
            ev.SessionStarted(
                session=SessionId(f"s-{VOLATILE[0]}"),
                objective=objective,
                checks=checks,
                repository=f"/tmp/{VOLATILE[1]}/repo",
                base="c0ffee",
                settings=json.dumps({"started": VOLATILE[3]}),
            ),
            *(manifest(role) for role in ("planner", "worker")),
            objective_message(self.state_after_start(objective, checks)),
        )

    @staticmethod
    def state_after_start(objective: str, checks: tuple[str, ...]) -> SessionState:
        started = ev.SessionStarted(session=SessionId("s-1"), objective=objective, checks=checks)
        return fold(SessionState(), started)

    def tell(self) -> SpineExtended | None:
        message = state_message(self.state)
        self.add(message)
        return message

    def nudge(self) -> None:
        self.add(nudge_message(self.state))

    def request(self, agent: AgentId = PLANNER) -> int:
        number = self.state.request_count + 1
        spine = self.spine(agent)
        self.add(
            RequestStarted(
                agent=agent,
                request=number,
                manifest=f"m-{role_of(agent)}",
                items=len(spine.items),
                estimate_tokens=estimate(spine, ROOM.head_tokens),
                predicted_cached_tokens=None,
                sha256=VOLATILE[4],
                size_bytes=1,
            )
        )
        return number

    def reply(
        self,
        agent: AgentId = PLANNER,
        *items: ReplyItem,
        usage: Usage | None = None,
        cost_usd: float | None = None,
    ) -> tuple[ToolCall, ...]:
        number = self.request(agent)
        self.add(
            ReplyReceived(
                agent=agent,
                request=number,
                items=items,
                usage=usage or Usage(),
                cost_usd=cost_usd,
                finish="tool_calls" if calls_of(items) else "stop",
                duration_seconds=float(VOLATILE[2]),
            )
        )
        return calls_of(items)

    def call(self, name: str = "read", arguments: str = "{}") -> ToolCall:
        self.calls += 1
        return ToolCall(call_id=CallId(f"c{self.calls}"), name=name, arguments=arguments)

    def answer(self, agent: AgentId, call: ToolCall, text: str = "ok", code: str = "ok", *also: ev.Event) -> None:
        self.add(
            ToolStarted(
                agent=agent, call_id=call.call_id, tool=call.name, effect="pure", spool=f"/tmp/{VOLATILE[1]}/s"
            ),
            *also,
            ToolFinished(
                agent=agent,
                call_id=call.call_id,
                tool=call.name,
                text=text,
                code=code,
                duration_seconds=float(VOLATILE[2]),
            ),
        )

    def step(self, *answers: str, agent: AgentId = PLANNER) -> None:
        """One step with a call for each answer."""
        if agent == PLANNER:
            self.tell()
        calls = self.reply(agent, AssistantText(text="I look."), *(self.call() for _ in answers))
        for call, text in zip(calls, answers, strict=True):
            self.answer(agent, call, text)

    def plan(self, agent: AgentId = PLANNER, *, room: Room = ROOM, policy: RebasePolicy | None = None) -> RebasePlan:
        return plan_rebase(self.spine(agent), checkpoint(self.state, agent), room=room, policy=policy or RebasePolicy())

    def rebase(
        self,
        agent: AgentId = PLANNER,
        *,
        room: Room = ROOM,
        policy: RebasePolicy | None = None,
        forced: bool = True,
        cause: str = "soft",
    ) -> bool:
        """Rebase, or refuse to where nothing is gained and nothing forces it."""
        policy = policy or RebasePolicy()
        plan = self.plan(agent, room=room, policy=policy)
        if forced or plan.has_gain(policy):
            self.add(rebased(agent, plan, cursor=self.state.cause_count, cause=cause))
            return True
        self.add(
            RebaseRefused(
                agent=agent,
                cause=cause,
                tokens_before=plan.tokens_before,
                tokens_after=plan.tokens_after,
                detail="too little",
            )
        )
        return False

    def launch(self, run: RunId) -> None:
        agent = AgentId(run)
        self.add(
            ev.RunLaunched(run=run, base="c0ffee"),
            SpineExtended(agent=agent, kind="brief", items=(UserText(text=f"<task>{run}</task>", origin="task"),)),
        )

    def deliver(self, run: RunId) -> None:
        """Hand the Planner's messages to a Worker."""
        agent = AgentId(run)
        items: tuple[Item, ...] = tuple(UserText(text=text, origin="task") for text in work_of(self.state, agent).inbox)
        if items:
            self.add(SpineExtended(agent=agent, kind="message", items=items))


def manifest(role: str) -> ManifestRecorded:
    return ManifestRecorded(
        manifest=f"m-{role}",
        role=role,
        wire="chat",
        model="m",
        system="You plan.",
        tools="[]",
        max_output_tokens=4_000,
        window_tokens=100_000,
    )


def rebased(agent: AgentId, plan: RebasePlan, *, cursor: int, cause: str = "soft") -> SpineRebased:
    return SpineRebased(
        agent=agent,
        items=plan.items,
        cursor=cursor,
        cause=cause,
        tokens_before=plan.tokens_before,
        tokens_after=plan.tokens_after,
        items_dropped=plan.items_dropped,
        checkpoint_tokens=plan.checkpoint_tokens,
    )


def task(name: str, **fields: object) -> ev.TaskAdded:
    return ev.TaskAdded(**{"task": TaskId(name), "title": f"Title of {name}", "objective": f"Do {name}.", **fields})


def fact(name: str, text: str = "", **fields: object) -> ev.FactRecorded:
    return ev.FactRecorded(**{"fact": FactId(name), "text": text or f"Text of {name}", "source": "planner", **fields})


def delegated(run: str, name: str, **fields: object) -> ev.RunStarted:
    return ev.RunStarted(run=RunId(run), task=TaskId(name), **fields)


def evidence(command: str = "pytest -q", *, exit_code: int | None = 0, tail: str = "") -> Evidence:
    return Evidence(
        command=command,
        exit_code=exit_code,
        duration_seconds=float(VOLATILE[2]),
        output=Ticket("artifact:00112233aabbccdd"),
        tail=tail,
    )


def settled(run: str, status: str = "completed", **fields: object) -> ev.RunSettled:
    return ev.RunSettled(run=RunId(run), status=status, **fields)


def example() -> Story:
    """A session with one of everything that a checkpoint can show."""
    story = Story()
    story.begin("Port the package to Python 3.13.", checks=("pytest -q",))
    story.tell()
    plan, read, record = story.reply(
        PLANNER, AssistantText(text="Two tasks."), story.call("plan"), story.call("read"), story.call("record_fact")
    )
    story.answer(PLANNER, plan, "planned", "ok", task("core", checks=("pytest tests/core",)), task("cli"), task("old"))
    story.add(
        ToolFinished(
            agent=PLANNER, call_id=read.call_id, tool="read", text="[project]", paths_read=("pyproject.toml", "a.py")
        )
    )
    story.answer(
        PLANNER, record, "f1", "ok", fact("f1", "The build needs", value="hatchling>=1.27", is_pinned=True), fact("f2")
    )
    story.add(ev.TaskDropped(task=TaskId("old")), delegated("r1", "core"), delegated("r2", "cli"))
    story.launch(RunId("r1"))
    story.step("worker-only output", agent=AgentId("r1"))
    story.add(
        fact("f3", "asyncore is gone", source="r1"),
        ev.ProgressNoted(run=RunId("r1"), text="half way"),
        ev.RunSubmitted(run=RunId("r1"), status="completed", summary="ported"),
        ev.PatchTaken(
            run=RunId("r1"), patch=Ticket("artifact:ffffffffffffffff"), commit="abc", changed_files=("core.py",)
        ),
        ev.CheckFinished(run=RunId("r1"), evidence=evidence("pytest tests/core")),
        ev.PatchMerged(run=RunId("r1"), commit="def456"),
        settled("r1"),
        ev.UserMessageAdded(message="m1", text="Keep 3.11 working, too."),
        ev.FactRetracted(fact=FactId("f2"), reason="was wrong"),
    )
    return story


if __name__ == "__main__":
    told = example()
    told.tell()
    told.launch(RunId("r2"))
    told.step("x", agent=AgentId("r2"))
    texts = [checkpoint(told.state, PLANNER), checkpoint(told.state, AgentId("r2"))]
    texts += [item.text for item in told.spine().items if isinstance(item, UserText)]
    sys.stdout.write(hashlib.sha256("\0".join(texts).encode()).hexdigest())
