"""The product's own way: state as deltas, and a rebase onto a checkpoint when `core/due.py` says that it is due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xnagent.core.due import LEAST_CHECKPOINT_TOKENS, Conditions, Standing, due_by_size
from xnagent.core.rebase import frees_enough
from xnagent.core.rent import RECALL_SHARE, Rates, Rent, Sizes, costs, paid
from xnagent.lab.history import History, Terms
from xnagent.lab.requests import Request
from xnagent.lab.work import REFERENCE_TOKENS, Turn, Work, is_reading


def delta_rebase(work: Work, terms: Terms) -> Iterator[Request]:
    """Baseline, deltas, and rebases by the policy of the terms. It ends only if not even a checkpoint fits."""
    ours = _Ours(History(work, terms), rates=rates_of(terms))
    history = ours.history
    for number, turn in enumerate(work.turns):
        tokens, repeated = ours.take(turn)
        history.add(tokens)
        ours.make_room(turn, number=number)
        if history.is_full:
            return
        for request in history.rereads(turn):
            ours.send(request)
            yield request
        request = history.step(turn, note=turn.note, repeated=repeated)
        ours.send(request)
        yield request


def rates_of(terms: Terms) -> Rates:
    """The product's rates; where nothing is read again, the rule is not to expect it either."""
    recall = RECALL_SHARE if terms.reread_share else 0.0
    return Rates(price=terms.provider.price, cache=terms.provider.rule, recall_share=recall)


@dataclass(slots=True)
class _Ours:
    """What the product keeps of a spine, in sizes."""

    history: History
    rates: Rates
    state_at: int = 0
    """Tokens before the newest state message."""
    sent_at: int = 0
    """The same of the newest one that a request has held: what is behind it is nothing that a rebase could drop yet."""
    state_tokens: int = 0
    """Of the newest whole view: the baseline, or the checkpoint."""
    rent: Rent = field(default_factory=Rent)
    held_tokens: int = 0
    """What the last request left in the cache."""
    at: float | None = None
    """When it was sent."""
    has_expired: bool = False
    requests: int | None = None
    """Since the last rebase; None: there was none."""
    refused_at: int | None = None
    refusals: int = 0
    wanted: dict[int, int] = field(default_factory=dict)
    """Tokens of what was asked for again since the newest rebase, whether the spine still showed it or not."""
    shown: set[int] = field(default_factory=set)
    """What the spine shows of files."""
    dropped: set[int] = field(default_factory=set)
    """What it showed before its rebases."""

    def take(self, turn: Turn) -> tuple[int, int]:
        """What is new, a file that is read again and has not changed as a reference; and what is repeated even so."""
        tokens, repeated = turn.new, turn.repeated
        for result in turn.step.results:
            if is_reading(result) and result.digest in self.shown:
                tokens -= result.tokens - REFERENCE_TOKENS
                repeated -= result.tokens
                self.wanted[result.digest] = result.tokens
            elif is_reading(result) and result.digest in self.dropped:
                self.wanted[result.digest] = result.tokens
            self.shown.add(result.digest)
        return tokens, max(0, repeated)

    def make_room(self, turn: Turn, *, number: int) -> None:
        """Rebase if it is due, else append the news; once more if they are too much (M20)."""
        self._wait(turn.step.at)
        if not self.state_tokens:
            self._begin(turn, is_first=number == 0)
            return
        history, policy = self.history, self.history.terms.policy
        room = history.terms.room(history.work.thread.head_tokens)
        conditions = Conditions(rates=self.rates, has_expired=self.has_expired)
        verdict = due_by_size(self._standing(), room, policy=policy, conditions=conditions)
        if verdict.cause is not None and self._rebase(turn):
            return
        if history.size + turn.news > policy.hard_share * room.usable_tokens and self._rebase(turn):
            return
        if turn.news:
            self._tell(turn.news)

    def send(self, request: Request) -> None:
        """A request goes out: what it re-reads is rent."""
        self.rent = paid(self.rent, costs(self._sizes(whole=request.total), self.rates))
        self.held_tokens, self.has_expired, self.sent_at = request.total, False, self.state_at
        self.requests = None if self.requests is None else self.requests + 1

    def _wait(self, at: float | None) -> None:
        lifetime = self.history.terms.provider.rule.lifetime_seconds
        if at is not None and self.at is not None and lifetime is not None:
            self.has_expired = at - self.at > lifetime
        self.at = self.at if at is None else at

    def _begin(self, turn: Turn, *, is_first: bool) -> None:
        """The baseline; where a prefix is only found if a request ended there, the first request goes without it."""
        if is_first and self.history.terms.provider.rule.has_whole_requests:
            self.state_at = self.history.size
            return
        self._tell(turn.snapshot)
        self.state_tokens = turn.snapshot

    def _standing(self) -> Standing:
        size = self.history.size
        return Standing(
            sizes=self._sizes(whole=size),
            most_tokens=size,
            rent=self.rent,
            requests=self.requests,
            refused_at=self.refused_at,
            refusals=self.refusals,
        )

    def _sizes(self, *, whole: int) -> Sizes:
        fixed = self.history.work.fixed
        view = max(LEAST_CHECKPOINT_TOKENS, self.state_tokens)
        after = fixed + view + whole - max(fixed, self.sent_at) + sum(self.wanted.values())
        return Sizes(
            whole_tokens=whole,
            after_tokens=min(whole, after),
            fixed_tokens=fixed,
            held_tokens=0 if self.has_expired else min(whole, self.held_tokens),
        )

    def _tell(self, tokens: int) -> None:
        self.state_at = self.history.size
        self.history.add(tokens)

    def _rebase(self, turn: Turn) -> bool:
        history = self.history
        policy, fixed = history.terms.policy, history.work.fixed
        usable = history.terms.usable_tokens
        after = fixed + turn.snapshot + turn.tail
        if after > policy.hard_share * usable:
            newest = turn.tail if policy.newest_share is None else round(policy.newest_share * usable)
            after = fixed + turn.snapshot + min(turn.tail, newest)
        if not frees_enough(history.size, after, policy=policy):
            self.refused_at, self.refusals = history.size, self.refusals + 1
            return False
        history.replace(after)
        self.dropped |= self.shown
        self.shown = {result.digest for result in turn.step.results}
        self.state_at, self.sent_at, self.state_tokens, self.rent = fixed, fixed, turn.snapshot, Rent()
        self.held_tokens, self.requests, self.refused_at, self.refusals = fixed, 0, None, 0
        self.wanted = {}
        return True
