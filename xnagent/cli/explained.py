"""What `xnagent request --explain` and `--what-if` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Final, cast

from xnagent.app.explaining import Explanation, Part
from xnagent.app.supposing import Loss, Supposition
from xnagent.core.masking import Mask
from xnagent.core.text import Json
from xnagent.inspect.blocks import Block, Heading, Lines, Pairs, Table
from xnagent.inspect.columns import text
from xnagent.inspect.plain import count, money, share

SHOWN_AT_ENDS: Final = 3
"""So many parts of a long stretch of the same kind are shown at its beginning, and as many at its end."""

PART_HEADINGS: Final = (
    Heading(title="item"),
    Heading(title="part"),
    Heading(title="mark"),
    Heading(title="estimate", rank=2),
    Heading(title="tokens"),
    Heading(title="cached"),
    Heading(title="cache"),
    Heading(title="price"),
    Heading(title="text", rank=1),
)
LOSS_HEADINGS: Final = (
    Heading(title="model"),
    Heading(title="wire", rank=1),
    Heading(title="breaks at"),
    Heading(title="from the cache"),
    Heading(title="lost"),
    Heading(title="costs more"),
)


def explained(told: Explanation, *, mask: Mask) -> Sequence[Block]:
    """A request, part by part."""
    sums = [
        ("request", f"{count(told.request)} of {told.agent}, lineage {told.lineage}, {_before(told)}"),
        ("model", f"{told.model} on the wire {told.wire}; it reads {told.order}"),
        ("estimate", f"{count(told.estimate_tokens)} tokens, {count(told.predicted_cached_tokens)} of them cached"),
        ("reported", _reported(told)),
        ("cost", f"{money(told.cost_usd)}: {money(told.input_usd)} input, {money(told.output_usd)} output"),
    ]
    rows = [_row(part, mask) for part in shown_parts(told.parts)]
    number = f"parts ({count(len(told.parts))})"
    return [Pairs(rows=sums), Table(title=number, headings=PART_HEADINGS, rows=rows)]


def _before(told: Explanation) -> str:
    return "the first in it" if told.previous is None else f"after request {count(told.previous)}"


def _reported(told: Explanation) -> str:
    if told.input_tokens is None:
        return "nothing: the shares below are estimates"
    cached = f"{count(told.cached_tokens)} of them cached ({share(told.cached_tokens, told.input_tokens)})"
    return f"{count(told.input_tokens)} tokens, {cached}, {count(told.output_tokens)} out"


def shown_parts(parts: Sequence[Part]) -> Iterator[Part | int]:
    """The parts; of a long stretch that is all the same only its ends, and how many parts stand between them."""
    for _, stretch in groupby(parts, key=lambda part: (part.mark, part.cache)):
        alike = list(stretch)
        left_out = len(alike) - 2 * SHOWN_AT_ENDS
        if left_out <= 1:
            yield from alike
        else:
            yield from alike[:SHOWN_AT_ENDS]
            yield left_out
            yield from alike[-SHOWN_AT_ENDS:]


def _row(part: Part | int, mask: Mask) -> Sequence[str]:
    if isinstance(part, int):
        return ("", f"… {count(part)} more", *[""] * (len(PART_HEADINGS) - 2))
    return (
        "" if part.item is None else count(part.item),
        text(part.what),
        part.mark,
        count(part.estimate_tokens),
        count(part.tokens),
        count(part.cached_tokens),
        part.cache,
        money(part.price_usd),
        text(mask.text(part.text)),
    )


def supposed(suppositions: Sequence[Supposition], *, mask: Mask) -> Sequence[Block]:
    """What each change would have cost."""
    return [block for one in suppositions for block in _supposition(one, mask)]


def _supposition(told: Supposition, mask: Mask) -> Sequence[Block]:
    held = "no earlier request begins like it" if told.held_by is None else f"caches hold request {count(told.held_by)}"
    line = Lines(text=mask.text(f"with {told.change}: {told.note}; {held}"))
    if len(told.losses) > 1 and not any(one.lost_tokens for one in told.losses):
        return [line, Lines(text=f"0 tokens lost, whichever of these {count(len(told.losses))} models reads it")]
    return [line, Table(title="", headings=LOSS_HEADINGS, rows=[_loss(one) for one in told.losses])]


def _loss(one: Loss) -> Sequence[str]:
    name = f"{one.model} (its own)" if one.is_own else one.model
    where = one.segment or "nothing breaks"
    return (name, one.wire, where, count(one.served_tokens), count(one.lost_tokens), money(one.lost_usd))


def as_fields(told: Explanation | Supposition) -> dict[str, Json]:
    """As an object."""
    return cast("dict[str, Json]", asdict(told))
