"""A thread made ready to be replayed: the sums and the stored state that every strategy needs, computed once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from xnagent.core.checkpoint import KEPT_LINES, KEPT_PATHS, WORKER_LOOKUP, WORKER_OPENING
from xnagent.core.tokens import PER_CALL, PER_MESSAGE, estimate_text
from xnagent.lab.threads import Result, Step, Thread

STATE_TOKENS: Final = PER_MESSAGE + estimate_text(WORKER_OPENING + WORKER_LOOKUP) + 60
"""A checkpoint of nothing: its opening, its titles, how to get details back."""
STAMP_TOKENS: Final = 8
"""Step and hash behind a path."""
DELTA_TOKENS: Final = PER_MESSAGE + 40
"""A state message around its operations."""
NOTE_STEPS: Final = 8
NOTE_TOKENS: Final = 60
"""So often an agent is taken to write such a note, because its history will be dropped: paid as output and kept."""
SUMMARY_CLIP_TOKENS: Final = 1_200
"""What a summariser reads of a message: 4,000 characters (M68)."""
REFERENCE_TOKENS: Final = 40
"""What stands for a file that is read again and has not changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One step as the strategies need it."""

    step: Step
    new: int
    """What is new but for the reply before, and for the first message."""
    tail: int
    """The reply before, and what is new: a rebase keeps it whole, because the model has not seen it yet."""
    read: int
    """The reply before, and what is new, as a summariser reads it."""
    snapshot: int
    """The whole state as text, before this step's request."""
    news: int
    """What of it changed since the request before."""
    note: int
    """Tokens of a note that the reply holds besides."""
    repeated: int
    """New tokens that are the same bytes as an earlier answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A thread's steps, ready."""

    thread: Thread
    turns: tuple[Turn, ...]

    @property
    def fixed(self) -> int:
        """System, tools and first message."""
        return self.thread.head_tokens + self.thread.steps[0].user_tokens


@dataclass(slots=True)
class _State:
    """The stored record of a run: sizes of the lines that a checkpoint shows."""

    lines: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    read: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    told: int = 0
    """Messages of the user and notes, which stay whole."""

    def take(self, result: Result) -> int:
        """One more call; returns what the state has grown by in it."""
        self.lines.append(result.line_tokens)
        if not result.path:
            return result.line_tokens
        known = self.read if result.is_read_only else self.changed
        is_new = result.path not in known
        known.pop(result.path, None)
        known[result.path] = estimate_text(result.path) + STAMP_TOKENS
        if len(known) > KEPT_PATHS:
            known.pop(next(iter(known)))
        return result.line_tokens + (known[result.path] if is_new else STAMP_TOKENS)

    @property
    def tokens(self) -> int:
        """The whole."""
        return STATE_TOKENS + sum(self.lines) + sum(self.read.values()) + sum(self.changed.values()) + self.told


def work_of(thread: Thread) -> Work:
    """The thread, ready to be replayed."""
    state, seen = _State(), set[int]()
    turns = list[Turn]()
    before: Step | None = None
    for number, step in enumerate(thread.steps):
        grown = sum(state.take(result) for result in step.results)
        note = NOTE_TOKENS if number % NOTE_STEPS == NOTE_STEPS - 1 else 0
        state.told += step.person_tokens if number else 0
        turns.append(_turn(step, before, state=state.tokens, grown=grown, note=note, repeated=_repeated(step, seen)))
        state.told += note
        before = step
    return Work(thread=thread, turns=tuple(turns))


def _turn(step: Step, before: Step | None, *, state: int, grown: int, note: int, repeated: int) -> Turn:
    reply, user = (0, 0) if before is None else (before.reply_tokens, step.user_tokens)
    results = [result.tokens for result in step.results]
    return Turn(
        step=step,
        new=user + step.result_tokens,
        tail=reply + user + step.result_tokens,
        read=_clipped([reply, user, *results], SUMMARY_CLIP_TOKENS),
        snapshot=state,
        news=DELTA_TOKENS + grown if grown or before is None else 0,
        note=note + PER_CALL + PER_MESSAGE if note else 0,
        repeated=repeated,
    )


def _clipped(sizes: Iterable[int], limit: int) -> int:
    return sum(min(size, limit) for size in sizes)


def _repeated(step: Step, seen: set[int]) -> int:
    tokens = sum(result.tokens for result in step.results if result.digest in seen and is_reading(result))
    seen.update(result.digest for result in step.results)
    return tokens


def is_reading(result: Result) -> bool:
    """Whether the answer shows a file, which a reference could stand for if it had not changed."""
    return result.is_read_only and bool(result.path) and result.tokens > REFERENCE_TOKENS
