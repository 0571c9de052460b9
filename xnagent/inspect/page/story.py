"""What happened when, and what was new in each request: from the events alone, for the pictures and the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from xnagent.core import events as ev
from xnagent.core import spine_events as sp
from xnagent.core.ids import AgentId, FactId, RunId, owner_of
from xnagent.inspect.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request, in seconds since the session's first event."""

    request: int
    begun: float
    ended: float | None = None
    """None: no reply yet."""


@dataclass(slots=True, kw_only=True)
class Course:
    """A run from its delegation to its end, in seconds since the session's first event."""

    delegated: int
    """The place of the delegation in the log."""
    queued: float
    launched: float | None = None
    ended: float | None = None
    checks: list[tuple[float, bool]] = field(default_factory=list)
    """When each check ended, and whether it passed."""


@dataclass(slots=True, kw_only=True)
class Contents:
    """What belongs to a request, as places in the log."""

    new: list[int] = field(default_factory=list)
    """What its agent's request before did not have."""
    replies: list[int] = field(default_factory=list)
    """Its reply; retries and a failure too."""
    results: list[int] = field(default_factory=list)
    """What its calls came to."""


@dataclass(slots=True, kw_only=True)
class Story:
    """A session in the order of its log."""

    start: float | None = None
    """When the first event was stored, in seconds since 1970."""
    seconds: list[float] = field(default_factory=list)
    """When each event was stored, since the first one."""
    steps: dict[AgentId, dict[int, Step]] = field(default_factory=dict)
    courses: dict[RunId, Course] = field(default_factory=dict)
    contents: dict[int, Contents] = field(default_factory=dict)
    facts: dict[FactId, list[int]] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    """The newest one of each check of the whole session."""
    messages: list[int] = field(default_factory=list)
    """Where the user said something more."""
    pending: dict[AgentId, list[int]] = field(default_factory=dict)
    newest: dict[AgentId, int] = field(default_factory=dict)

    @property
    def length(self) -> float:
        """Seconds from the first event to the last."""
        return max(self.seconds, default=0.0)

    def at(self, seq: int) -> float:
        """When the event was stored."""
        return self.seconds[seq - 1] if 0 < seq <= len(self.seconds) else self.length

    def steps_of(self, agent: AgentId) -> Sequence[Step]:
        """The agent's steps in order."""
        return tuple(self.steps.get(agent, {}).values())


def story_of(reading: Reading) -> Story:
    """Go through the log once."""
    story = Story()
    for stored in reading.events:
        tell(story, stored)
    return story


def tell(story: Story, stored: ev.Stored) -> None:
    """Go on by one event."""
    now = datetime.fromisoformat(stored.at).timestamp()
    story.start = now if story.start is None else story.start
    story.seconds.append(max(0.0, now - story.start))
    match stored.event:
        case sp.ToolFinished() | sp.ResultOffloaded() as event:
            _add_result(story, event.agent, seq=stored.seq)
        case sp.RequestStarted() as event:
            _begin(story, event, seq=stored.seq)
        case sp.ReplyReceived() | sp.RequestRetried() | sp.RequestFailed() as event:
            _answer(story, event, seq=stored.seq)
        case sp.SpineExtended() | sp.SpineRebased() | sp.ModelReplaced() as event:
            story.pending.setdefault(event.agent, []).append(stored.seq)
        case _:
            _take_rare(story, stored)


def _begin(story: Story, event: sp.RequestStarted, *, seq: int) -> None:
    contents = story.contents.setdefault(event.request, Contents())
    contents.new += story.pending.pop(event.agent, [])
    story.newest[event.agent] = event.request
    story.steps.setdefault(owner_of(event.agent), {})[event.request] = Step(request=event.request, begun=story.at(seq))


def _answer(story: Story, event: sp.ReplyReceived | sp.RequestRetried | sp.RequestFailed, *, seq: int) -> None:
    story.contents.setdefault(event.request, Contents()).replies.append(seq)
    if isinstance(event, sp.RequestRetried):
        return
    steps = story.steps.setdefault(owner_of(event.agent), {})
    begun = steps[event.request].begun if event.request in steps else story.at(seq)
    steps[event.request] = Step(request=event.request, begun=begun, ended=story.at(seq))
    if isinstance(event, sp.ReplyReceived):
        story.pending.setdefault(event.agent, []).append(seq)


def _add_result(story: Story, agent: AgentId, *, seq: int) -> None:
    story.pending.setdefault(agent, []).append(seq)
    if agent in story.newest:
        story.contents[story.newest[agent]].results.append(seq)


def _take_rare(story: Story, stored: ev.Stored) -> None:
    seq = stored.seq
    match stored.event:
        case ev.RunStarted() | ev.RunLaunched() | ev.RunSettled() | ev.CheckFinished() as event:
            _run(story, event, seq=seq)
        case ev.FactRecorded() | ev.FactCorrected() | ev.FactRetracted() as event:
            story.facts.setdefault(event.fact, []).append(seq)
        case ev.UserMessageAdded():
            story.messages.append(seq)
        case _:
            pass


def _run(story: Story, event: ev.RunStarted | ev.RunLaunched | ev.RunSettled | ev.CheckFinished, *, seq: int) -> None:
    now = story.at(seq)
    if event.run is None:
        story.checks[event.evidence.command] = seq
        return
    course = story.courses.setdefault(event.run, Course(delegated=seq, queued=now))
    match event:
        case ev.RunStarted():
            pass
        case ev.RunLaunched():
            course.launched = now if course.launched is None else course.launched
        case ev.RunSettled():
            course.ended = now
        case ev.CheckFinished():
            course.checks.append((now, event.evidence.has_passed))
