"""Model-made compaction: a call of its own writes a summary, which replaces old messages (M64–M69, M37, M38)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from xnagent.lab.history import History, Terms
from xnagent.lab.requests import Request
from xnagent.lab.work import Turn, Work

SUMMARY_TOKENS: Final = 4_800
"""13.4 kB, the median of those that were recorded."""
PROMPT_TOKENS: Final = 500
"""The summariser's own system text."""
INSTRUCTION_TOKENS: Final = 300
"""What asks for a summary at the end of the history."""
RESERVE_TOKENS: Final = 10_000
TRIGGER_SHARE: Final = 0.8
RECENT_SHARE: Final = 0.25
LEAST_RECENT: Final = 2_000
MOST_RECENT: Final = 64_000
ALIGNED_SHARE: Final = 0.1
LEAST_ALIGNED: Final = 32_000
MOST_ALIGNED: Final = 96_000


@dataclass(slots=True)
class _Steps:
    """The steps since the first message, each with what it takes and what a summariser reads of it."""

    held: deque[tuple[int, int]] = field(default_factory=deque)
    summary: int = 0
    """Size of the summary that stands before them."""

    def add(self, tokens: int, read: int) -> None:
        self.held.append((tokens, read))

    def cut(self, budget: int) -> tuple[int, int]:
        """Take out all but the newest that fit, at least one; returns what they took, and what is read of it."""
        kept: deque[tuple[int, int]] = deque()
        room = budget
        while self.held and (not kept or self.held[-1][0] <= room):
            kept.appendleft(self.held.pop())
            room -= kept[0][0]
        taken, read = sum(one[0] for one in self.held), sum(one[1] for one in self.held)
        self.held = kept
        return taken, read


def summary(work: Work, terms: Terms) -> Iterator[Request]:
    """A call of its own, without tools, reads the summary so far and the new messages, each clipped."""
    trigger = round((terms.window_tokens - RESERVE_TOKENS) * TRIGGER_SHARE)
    recent = min(MOST_RECENT, max(LEAST_RECENT, round(RECENT_SHARE * terms.usable_tokens)))
    yield from _summarising(work, terms, trigger=min(trigger, terms.usable_tokens), recent=recent, is_aligned=False)


def aligned_summary(work: Work, terms: Terms) -> Iterator[Request]:
    """The history itself with an instruction behind it asks for the summary, so that the call reads from the cache."""
    trigger = round(terms.window_tokens * TRIGGER_SHARE)
    recent = min(MOST_ALIGNED, max(LEAST_ALIGNED, round(ALIGNED_SHARE * terms.window_tokens)))
    yield from _summarising(work, terms, trigger=min(trigger, terms.usable_tokens), recent=recent, is_aligned=True)


def _summarising(work: Work, terms: Terms, *, trigger: int, recent: int, is_aligned: bool) -> Iterator[Request]:
    history, steps, reply = History(work, terms), _Steps(), 0
    for turn in work.turns:
        if reply or turn.new:
            history.add(turn.new)
            steps.add(reply + turn.new, turn.read)
        if history.size > trigger and len(steps.held) > 1:
            yield _call(history, turn, steps=steps, recent=recent, is_aligned=is_aligned)
        if history.is_full:
            return
        before = history.size
        yield from history.rereads(turn)
        if history.size > before:
            steps.add(history.size - before, history.size - before)
        reply = turn.step.reply_tokens
        yield history.step(turn)


def _call(history: History, turn: Turn, *, steps: _Steps, recent: int, is_aligned: bool) -> Request:
    fits = history.size + INSTRUCTION_TOKENS + SUMMARY_TOKENS <= history.terms.window_tokens
    size, before = history.size, steps.summary
    taken, read = steps.cut(recent)
    if is_aligned and fits:
        history.add(INSTRUCTION_TOKENS)
        request = history.send(turn, reply=0, output=SUMMARY_TOKENS, purpose="summary")
    else:
        request = Request(
            common=0,
            total=min(PROMPT_TOKENS + before + read, history.terms.window_tokens),
            stable=0,
            fixed=0,
            output=SUMMARY_TOKENS,
            at=turn.step.at,
            chain="summary",
            purpose="summary",
            begins=True,
        )
    history.replace(size - taken - before + SUMMARY_TOKENS)
    steps.summary = SUMMARY_TOKENS
    return request
