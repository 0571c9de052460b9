"""A request part by part, in the order in which the model reads it: what is old, what is new, and what each cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from xnagent.app.comparing import entry_of
from xnagent.app.replay import Made, requests_made
from xnagent.core.caching import RenderOrder
from xnagent.core.events import Stored
from xnagent.core.items import Item, Reasoning, ToolCall
from xnagent.core.pricing import PER_MILLION, Price, cost_usd, price_for
from xnagent.core.spine_events import ManifestRecorded, ReplyReceived, RequestStarted
from xnagent.core.tokens import PER_MESSAGE, PER_TOOL, Usage, estimate_item, estimate_text
from xnagent.inspect.segments import CacheState, Served, names_of_calls, served, what_of

Mark = Literal["stable", "lineage", "new"]
"""`stable`: outlives a rebase. `lineage`: the request before had it. `new`: it had not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a request."""

    what: str
    item: int | None
    """Its number in the history; None: it stands before the history."""
    kind: str
    mark: Mark
    estimate_tokens: int
    tokens: int
    """Its share of what was reported of the whole; where nothing was, its estimate."""
    cached_tokens: int | None
    """Of them; None: the provider did not say."""
    cache: CacheState
    price_usd: float | None
    text: str
    """How it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A request."""

    request: int
    agent: str
    lineage: str
    previous: int | None
    """The request before in its lineage; None: it is the first."""
    model: str
    wire: str
    order: str
    parts: tuple[Part, ...]
    estimate_tokens: int
    """As it was told before the request was sent."""
    predicted_cached_tokens: int | None
    input_tokens: int | None
    """As reported, as what follows."""
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    input_usd: float | None
    output_usd: float | None
    cost_usd: float | None
    """As recorded; None: unknown, or there was no reply."""


SHOWN_CHARACTERS = 200


def explain(events: Sequence[Stored], request: int) -> Explanation:
    """The request part by part. Raises UsageError if there is none of the number."""
    (made,) = requests_made(events, {request})
    previous, reply = previous_in_lineage(events, made), _reply(events, made)
    entry = entry_of(events, made)
    price, order = (None, None) if entry is None else (entry.price, entry.cache.order)
    usage = Usage() if reply is None or reply.usage.is_estimated else reply.usage
    costs = _Costs.of(reply, price)
    return Explanation(
        request=request,
        agent=made.started.agent,
        lineage=made.spine.lineage,
        previous=None if previous is None else previous.started.request,
        model=made.manifest.model,
        wire=made.manifest.wire,
        order="system, tools, messages" if order == "system-tools" else "tools, system, messages",
        parts=tuple(_parts(made, previous, usage=usage, costs=costs, order=order)),
        estimate_tokens=made.started.estimate_tokens,
        predicted_cached_tokens=made.started.predicted_cached_tokens,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        input_usd=costs.input_usd,
        output_usd=costs.output_usd,
        cost_usd=None if reply is None else reply.cost_usd,
    )


def previous_in_lineage(events: Iterable[Stored], made: Made) -> Made | None:
    """The request that this one has to extend; None: it is the first of its lineage."""
    before = _newest_before(events, made)
    if before is None:
        return None
    (found,) = requests_made(events, {before})
    return found if found.spine.lineage == made.spine.lineage else None


def _newest_before(events: Iterable[Stored], made: Made) -> int | None:
    numbers = [
        stored.event.request
        for stored in events
        if stored.seq < made.seq
        and isinstance(stored.event, RequestStarted)
        and stored.event.agent == made.started.agent
    ]
    return numbers[-1] if numbers else None


def _reply(events: Iterable[Stored], made: Made) -> ReplyReceived | None:
    replies = (stored.event for stored in events if isinstance(stored.event, ReplyReceived))
    return next((reply for reply in replies if reply.request == made.started.request), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """What the tokens of a request came to, so that the parts add up to what was recorded."""

    input_usd: float | None = None
    output_usd: float | None = None
    cached_rate: float = 0.0
    """Dollars for one token."""
    fresh_rate: float = 0.0

    @classmethod
    def of(cls, reply: ReplyReceived | None, price: Price | None) -> _Costs:
        """By the price that is known here; what it was at that hour, or before it changed, is in the recorded cost."""
        whole = None if reply is None else cost_usd(reply.usage, price)
        if reply is None or price is None or reply.cost_usd is None or not whole:
            return cls()
        share, tokens = reply.cost_usd / whole, reply.usage.input_tokens or 0
        asked = (cost_usd(replace(reply.usage, output_tokens=0), price) or 0.0) * share
        cached = min(reply.usage.cached_tokens or 0, tokens)
        cached_rate = price_for(price, tokens).cached_usd / PER_MILLION * share
        fresh_rate = (asked - cached * cached_rate) / (tokens - cached) if tokens > cached else 0.0
        output = reply.cost_usd - asked
        return cls(input_usd=asked, output_usd=output, cached_rate=cached_rate, fresh_rate=fresh_rate)

    def price(self, part: Served) -> float | None:
        """Of one part."""
        if self.input_usd is None:
            return None
        cached = part.cached_tokens or 0
        return cached * self.cached_rate + (part.tokens - cached) * self.fresh_rate


def _parts(
    made: Made, previous: Made | None, *, usage: Usage, costs: _Costs, order: RenderOrder | None
) -> Iterator[Part]:
    named = [*_head(made.manifest, order), *_history(made, previous)]
    estimates = [part.estimate_tokens for part in named]
    for part, one in zip(
        named, served(estimates, reported=usage.input_tokens, cached=usage.cached_tokens), strict=True
    ):
        yield replace(
            part, tokens=one.tokens, cached_tokens=one.cached_tokens, cache=one.cache, price_usd=costs.price(one)
        )


def _head(manifest: ManifestRecorded, order: RenderOrder | None) -> list[Part]:
    tools = json.loads(manifest.tools or "[]")
    names = ", ".join(str(tool["name"]) for tool in tools)
    defined = estimate_text(manifest.tools) + PER_TOOL * len(tools)
    parts = [
        _part("tools", "tools", tokens=defined, text=names, mark="stable"),
        _part("system", "system", tokens=PER_MESSAGE + estimate_text(manifest.system), text=manifest.system),
    ]
    return parts[::-1] if order == "system-tools" else parts


def _part(what: str, kind: str, *, tokens: int, text: str, item: int | None = None, mark: Mark = "stable") -> Part:
    return Part(
        what=what,
        item=item,
        kind=kind,
        mark=mark,
        estimate_tokens=tokens,
        tokens=tokens,
        cached_tokens=None,
        cache="unknown",
        price_usd=None,
        text=text[:SHOWN_CHARACTERS],
    )


def _history(made: Made, previous: Made | None) -> Iterator[Part]:
    spine = made.spine
    tools, known = names_of_calls(spine.items), 0 if previous is None else previous.started.items
    for index, item in enumerate(spine.items):
        mark: Mark = "stable" if index < spine.head else "lineage" if index < known else "new"
        what = what_of(item, index, head=spine.head, tools=tools)
        yield _part(what, item.kind, tokens=estimate_item(item), text=_text(item), item=index + 1, mark=mark)


def _text(item: Item) -> str:
    match item:
        case ToolCall():
            return item.arguments
        case Reasoning():
            return item.payload
        case _:
            return item.text
