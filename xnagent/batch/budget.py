"""Money and tokens of a whole batch, lent to jobs before they begin. Pure.

What is lent is the most that a job may use, and is made the limit of its session; what it did not use comes back when
it ends. So as long as every session keeps its limit, the total never passes the cap, however many run at once. A job
with a limit of its own is lent all of that. One without is lent what others used on average, with room above, and at
least an equal share of what is left; if that was not enough it is lent twice as much, before others begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

HEADROOM: Final = 1.5
"""So much of what a job used on average is lent to the next one."""
GROWTH: Final = 2.0
"""So much of a loan that was too small is lent in its place."""
LEAST_MORE: Final = 0.25
"""A job goes on after a loan that was too small only if it can have at least this share of it more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """One thing that is limited for the whole batch: dollars or tokens."""

    cap: float | None = None
    """None: no limit; then every job gets what it wants."""
    spent: float = 0.0
    lent: Mapping[str, float] = field(default_factory=dict)
    """What jobs under way may use."""
    settled: int = 0
    settled_use: float = 0.0
    """How many jobs came to their end, and what those used."""

    @property
    def free(self) -> float:
        """What is neither spent nor lent; infinite without a cap."""
        return float("inf") if self.cap is None else self.cap - self.spent - sum(self.lent.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A job that would like to begin, or to go on."""

    job: str
    own: float | None = None
    """What it may use at most from now on, by its own limit."""
    last: float | None = None
    """What it was lent and could not go on with; None: it was not lent too little yet."""
    unspent: float = 0.0
    """What it gave back of that."""
    waiting: int = 1
    """How many jobs wait, this one included."""


def lend(purse: Purse, request: Request) -> tuple[Purse, float | None] | None:
    """The purse and what the job may use from now on (None: as much as it likes); None alone: it can't be paid now."""
    if purse.cap is None:
        return purse, request.own
    amount = _amount(purse, request)
    if amount is None:
        return None
    return replace(purse, lent={**purse.lent, request.job: amount}), amount


def _amount(purse: Purse, request: Request) -> float | None:
    free = purse.free
    if request.own is not None:
        return request.own if request.own <= free else None
    if request.last is not None:
        more = min(free, GROWTH * request.last)
        return more if more > 0 and more >= request.unspent + LEAST_MORE * request.last else None
    likely = purse.settled_use / purse.settled if purse.settled else 0.0
    if free <= 0 or free < likely:
        return None
    return min(free, max(free / max(request.waiting, 1), HEADROOM * likely))


def repay(purse: Purse, job: str, *, used: float | None, total: float | None = None) -> Purse:
    """The job ended, having used so much since it was lent; None: nobody knows, so all of it.

    `total` is what it used from its beginning, if it came to its own end: what is likely for the next one.
    """
    loan = purse.lent.get(job, 0.0)
    spent = purse.spent + (loan if used is None else used)
    lent = {other: amount for other, amount in purse.lent.items() if other != job}
    kept = replace(purse, spent=spent, lent=lent)
    return kept if total is None else replace(kept, settled=kept.settled + 1, settled_use=kept.settled_use + total)
