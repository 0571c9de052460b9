"""Two requests of a session side by side: what the later one keeps of the earlier one's prefix, and why not all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xnagent.app.replay import Made, requests_made
from xnagent.config import Settings
from xnagent.config.entry import Role, model_chain
from xnagent.core.events import SessionResumed, SessionStarted, Stored
from xnagent.core.ids import PLANNER, RunId, owner_of
from xnagent.core.prefix import Break, find_named, segment_name
from xnagent.core.pricing import rewrite_usd
from xnagent.core.spine_events import ModelReplaced, PrefixBroken, ReplyReceived, SpineRebased, ToolsChanged
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry
from xnagent.models.encoder import Encoder
from xnagent.models.wires import wire_named

Declaring = SpineRebased | ModelReplaced | ToolsChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The event that says that a prefix ends."""

    seq: int
    event: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What became of a prefix. Tokens are shares of what was reported of the earlier request, else estimated."""

    lineage: str
    """Of the later request."""
    against_lineage: str
    """Of the earlier one."""
    order: str
    """In which order the model reads: `tools, system, messages`, or with the first two the other way round."""
    segment: str | None
    """The first part of the earlier request that the later one does not have; None: it has all of it."""
    detail: str
    kept_tokens: int
    lost_tokens: int
    lost_usd: float | None
    """What sending them costs more than reading them from the cache, by the prices that are known here."""
    declared: Declaration | None
    """What said so in between; None: nothing did."""
    reported: Declaration | None
    """The break in the log that nothing declared, if there is one."""

    @property
    def is_same_lineage(self) -> bool:
        """Whether the later one has to extend the earlier one."""
        return self.lineage == self.against_lineage


def compare(events: Sequence[Stored], request: int, *, against: int) -> Comparison:
    """What request `request` keeps of request `against`. Raises UsageError if there is none of the number."""
    made = {one.started.request: one for one in requests_made(events, {request, against})}
    before, after = made[against], made[request]
    entry = entry_of(events, after)
    order = None if entry is None else entry.cache.order
    old, new = segments_of(before), segments_of(after)
    found = find_named(old, new, manifests=(before.manifest, after.manifest), order=order)
    whole = tokens_of(events, before)
    lost = 0 if found is None else round(whole * found.lost_bytes / max(1, sum(map(len, old))))
    lost = whole if _is_other_model(before, after) else lost
    return Comparison(
        lineage=after.spine.lineage,
        against_lineage=before.spine.lineage,
        order="system, tools, messages" if order == "system-tools" else "tools, system, messages",
        segment=None if found is None else _name(found, before=before, after=after),
        detail="" if found is None else found.detail,
        kept_tokens=whole - lost,
        lost_tokens=lost,
        lost_usd=rewrite_usd(lost, None if entry is None else entry.price, size_tokens=whole),
        declared=_declaration(_between(events, before, after=after), after),
        reported=_report(_between(events, before, after=after), after),
    )


def segments_of(made: Made) -> Sequence[bytes]:
    """The request as its wire renders it: the head, then a segment for each group."""
    renderer = wire_named(made.manifest.wire, model=made.manifest.model).renderer
    return Encoder(renderer).encode(made.manifest, made.spine).segments


def _is_other_model(before: Made, after: Made) -> bool:
    return (before.manifest.model, before.manifest.wire) != (after.manifest.model, after.manifest.wire)


def _name(found: Break, *, before: Made, after: Made) -> str:
    if _is_other_model(before, after):
        return "model"
    if not found.index:
        return found.segment
    return segment_name(found.index, agent=before.agent, generation=after.spine.generation)


def tokens_of(events: Iterable[Stored], made: Made) -> int:
    """Its input as reported; else as estimated."""
    number = made.started.request
    replies = (one.event for one in events if isinstance(one.event, ReplyReceived) and one.event.request == number)
    usage = next((reply.usage for reply in replies if not reply.usage.is_estimated), None)
    return made.started.estimate_tokens if usage is None or usage.input_tokens is None else usage.input_tokens


def entry_of(events: Iterable[Stored], made: Made) -> ModelEntry | None:
    """What is known here of the model that the request went to."""
    told = [one for one in events if one.seq < made.seq and isinstance(one.event, SessionStarted | SessionResumed)]
    texts = [one.event.settings for one in told if isinstance(one.event, SessionStarted | SessionResumed)]
    text = next((text for text in reversed(texts) if text), None)
    role: Role = "planner" if made.agent == PLANNER else "worker"
    run = made.state.board.runs.get(RunId(owner_of(made.agent)))
    try:
        settings = Settings() if text is None else Settings.model_validate_json(text)
        chain = model_chain(settings, role, name=None if run is None else run.model)
    except (UsageError, ValueError):
        return None
    return next((one for one in chain if one.name == made.manifest.model), None)


def _between(events: Iterable[Stored], before: Made, *, after: Made) -> list[Stored]:
    """Also what stands right before the later request: a break is told with the request that makes it."""
    first, last = sorted((before.seq, after.seq))
    return [one for one in events if first < one.seq < last]


def _declaration(between: Iterable[Stored], made: Made) -> Declaration | None:
    for stored in between:
        if isinstance(stored.event, Declaring) and stored.event.agent == made.agent:
            return Declaration(seq=stored.seq, event=stored.event.type, cause=_cause(stored.event))
    return None


def _cause(event: Declaring) -> str:
    match event:
        case SpineRebased():
            return event.cause
        case ModelReplaced():
            return f"{event.model} in place of {event.replaced}: {event.cause}"
        case ToolsChanged():
            return ", ".join([*(f"without {one}" for one in event.removed), *(f"with {one}" for one in event.added)])


def _report(between: Iterable[Stored], made: Made) -> Declaration | None:
    for stored in between:
        if isinstance(stored.event, PrefixBroken) and stored.event.agent == made.agent:
            return Declaration(seq=stored.seq, event=stored.event.type, cause=stored.event.declared or "undeclared")
    return None
