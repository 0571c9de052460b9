"""Ways to keep a history that is sent again and again: each a generator of requests. Parameters: docs/lab.md."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from xnagent.lab.history import History, Terms
from xnagent.lab.ours import delta_rebase
from xnagent.lab.requests import Request
from xnagent.lab.summaries import aligned_summary, summary
from xnagent.lab.work import Turn, Work

Strategy: TypeAlias = Callable[[Work, Terms], Iterator[Request]]

WINDOW_EVENTS: Final = 100
"""A sliding window forgets when there are more, down to half of them."""
MOST_RESULTS: Final = 8
KEPT_RESULTS: Final = 4
CLEAR_TOKENS: Final = 80_000
LEAST_CLEARED: Final = 0.1
"""Above that size, clearing has to free this share; else each step would clear one result and lose the cache."""
PLACEHOLDER_TOKENS: Final = 20


def append(work: Work, terms: Terms) -> Iterator[Request]:
    """The plain loop. When the window is full it ends, as mini-swe-agent and SWE-agent end a run."""
    history = History(work, terms)
    for turn in work.turns:
        history.add(turn.new)
        if history.is_full:
            return
        yield history.step(turn)


def append_snapshot(work: Work, terms: Terms) -> Iterator[Request]:
    """Before each request the whole state is appended, and stays."""
    history = History(work, terms)
    for turn in work.turns:
        history.add(turn.snapshot + turn.new)
        if history.is_full:
            return
        yield history.step(turn)


def snapshot_replace(work: Work, terms: Terms) -> Iterator[Request]:
    """At the end of each request stands a fresh view of the state; the one before is taken out."""
    history = History(work, terms)
    for turn in work.turns:
        history.add(turn.new)
        if history.size + turn.snapshot > terms.usable_tokens:
            return
        step = turn.step
        request = history.send(turn, reply=step.reply_tokens, output=step.output_tokens, passing=turn.snapshot)
        request.repeated = turn.repeated
        yield request


def sliding_window(work: Work, terms: Terms) -> Iterator[Request]:
    """The oldest steps are forgotten: down to half when there are too many events or the window is full."""
    history = History(work, terms)
    steps: deque[tuple[int, int]] = deque()
    events, reply = 0, 0
    for turn in work.turns:
        if reply or turn.new:
            history.add(turn.new)
            steps.append((reply + turn.new, 1 + max(1, len(turn.step.results))))
            events += steps[-1][1]
        if events > WINDOW_EVENTS or history.is_full:
            events = _forget(history, steps, events=events)
        if history.is_full:
            return
        yield from _recalling(history, turn, steps=steps)
        reply = turn.step.reply_tokens
        yield history.step(turn)


def _forget(history: History, steps: deque[tuple[int, int]], *, events: int) -> int:
    size, most, room = history.size, WINDOW_EVENTS // 2, history.terms.usable_tokens
    limit = room // 2 if history.is_full else room
    while len(steps) > 1 and (events > most or size > max(limit, history.work.fixed)):
        tokens, count = steps.popleft()
        size, events = size - tokens, events - count
    history.change(history.work.fixed, size=size)
    return events


def _recalling(history: History, turn: Turn, *, steps: deque[tuple[int, int]]) -> Iterator[Request]:
    """What is read again belongs to the newest step."""
    before = history.size
    yield from history.rereads(turn)
    if steps and history.size > before:
        tokens, count = steps.pop()
        steps.append((tokens + history.size - before, count))


@dataclass(slots=True)
class _Shown:
    """Results that were not cleared yet: where they begin, and how long they are."""

    results: deque[tuple[int, int]] = field(default_factory=deque)

    def clear(self, history: History) -> None:
        old = [self.results.popleft() for _ in range(len(self.results) - KEPT_RESULTS)]
        freed = sum(max(0, tokens - PLACEHOLDER_TOKENS) for _begin, tokens in old)
        history.change(old[0][0], size=history.size - freed)
        self.results = deque((begin - freed, tokens) for begin, tokens in self.results)

    def is_due(self, history: History) -> bool:
        old = list(self.results)[: max(0, len(self.results) - KEPT_RESULTS)]
        if len(self.results) > MOST_RESULTS:
            return True
        freed = sum(tokens for _begin, tokens in old)
        return bool(old) and history.size > CLEAR_TOKENS and freed >= LEAST_CLEARED * history.size


def clear_old_results(work: Work, terms: Terms) -> Iterator[Request]:
    """Old read-only results become placeholders (M102); changing tools' results stay."""
    history, shown = History(work, terms), _Shown()
    for turn in work.turns:
        begin = history.size
        history.add(turn.new)
        for result in turn.step.results:
            if result.is_read_only and result.tokens > PLACEHOLDER_TOKENS:
                shown.results.append((begin, result.tokens))
            begin += result.tokens
        if shown.is_due(history) or (history.is_full and len(shown.results) > KEPT_RESULTS):
            shown.clear(history)
        if history.is_full:
            return
        yield from history.rereads(turn)
        yield history.step(turn)


def _economic(work: Work, terms: Terms) -> Iterator[Request]:
    return delta_rebase(work, replace(terms, policy=replace(terms.policy, policy="economic")))


def _threshold(work: Work, terms: Terms) -> Iterator[Request]:
    return delta_rebase(work, replace(terms, policy=replace(terms.policy, policy="threshold")))


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "snapshot-replace": snapshot_replace,
    "append-snapshot": append_snapshot,
    "append": append,
    "delta+rebase": _economic,
    "delta+rebase/threshold": _threshold,
    "sliding-window": sliding_window,
    "clear-old-results": clear_old_results,
    "summary": summary,
    "aligned-summary": aligned_summary,
}
"""By name."""
OURS: Final = "delta+rebase"
