"""A job on its way, and what it is lent of the whole batch's money and tokens before it may begin or go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from xnagent.batch.assignment import LENT, Assignment, Use
from xnagent.batch.budget import Purse, Request, lend, repay
from xnagent.batch.jobs import Job
from xnagent.core.ids import SessionId


@dataclass(slots=True, kw_only=True)
class Entry:
    """A job on its way."""

    job: Job
    session: SessionId
    use: Use = field(default_factory=Use)
    """As far as it was reported."""
    rounds: int = 0
    """How often it was given to the engine."""
    loans: dict[str, float] = field(default_factory=dict)
    """What it was lent last."""
    unspent: dict[str, float] = field(default_factory=dict)
    """What it gave back of that."""

    @property
    def order_id(self) -> str:
        """Its id for the engine, to which one that goes on with more money is another job."""
        return self.job.job if self.rounds <= 1 else f"{self.job.job}~{self.rounds}"

    def is_starved(self, use: Use) -> bool:
        """Whether it met a limit that was the batch's, not its own: then it may go on with more."""
        return use.limit in LENT and getattr(self.job.settings.limits, use.limit or "") is None


@dataclass(slots=True, kw_only=True)
class Lender:
    """The purses of the batch."""

    usd: Purse
    tokens: Purse
    refused: str | None = None
    """What was too little when a job was refused last."""

    def lend(self, entry: Entry, *, waiting: int) -> Assignment | None:
        """The job's session, limited to what it is lent; None if it can't be paid now."""
        purses, loans = {}, {}
        for name in LENT:
            lent = lend(getattr(self, name), _request(entry, name, waiting=waiting))
            if lent is None:
                self.refused = name
                return None
            purses[name], loans[name] = lent
        self.usd, self.tokens = purses["usd"], purses["tokens"]
        entry.loans = {name: loan for name, loan in loans.items() if loan is not None}
        return _assignment(entry)

    def repay(self, entry: Entry, use: Use, *, is_at_end: bool) -> None:
        """The job came back, having used so much from its beginning on."""
        for name in LENT:
            before, after = _amount(entry.use, name), _amount(use, name)
            more = None if before is None or after is None else max(after - before, 0)
            purse = repay(getattr(self, name), entry.job.job, used=more, total=after if is_at_end else None)
            setattr(self, name, purse)
            entry.unspent[name] = max(entry.loans.get(name, 0.0) - (more or 0.0), 0.0)
        entry.use = use


def _amount(use: Use, name: str) -> float | None:
    return use.usd if name == "usd" else use.tokens


def _request(entry: Entry, name: str, *, waiting: int) -> Request:
    own, used = getattr(entry.job.settings.limits, name), _amount(entry.use, name) or 0
    was_short = entry.use.limit == name and entry.rounds > 0
    return Request(
        job=entry.job.job,
        own=None if own is None else max(own - used, 0.0),
        last=entry.loans.get(name) if was_short else None,
        unspent=entry.unspent.get(name, 0.0),
        waiting=waiting,
    )


def _assignment(entry: Entry) -> Assignment:
    job = entry.job
    totals = {name: (_amount(entry.use, name) or 0) + loan for name, loan in entry.loans.items()}
    whole = max(int(totals["tokens"]), 1) if "tokens" in totals else None
    limits = job.settings.limits.model_copy(update={"usd": totals.get("usd"), "tokens": whole})
    return Assignment(
        session=entry.session,
        objective=job.objective,
        repository=str(job.repository),
        commit=job.commit,
        settings=job.settings.model_copy(update={"limits": limits}),
        goes_on=entry.is_starved(entry.use),
    )
