"""What a strategy keeps and sends, in sizes, and what reading again costs that was dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from xnagent.core.rebase import RebasePolicy, Room
from xnagent.core.tokens import PER_CALL
from xnagent.lab.caches import Provider
from xnagent.lab.requests import Purpose, Request
from xnagent.lab.work import Turn, Work

REREAD_STEPS: Final = 20
REREAD_SHARE: Final = 0.14
"""In so many steps after a compaction, so much more of what tools answered had been shown before than otherwise."""
CALL_TOKENS: Final = 50
"""A reply that only reads a file again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Under which conditions a thread is replayed."""

    provider: Provider
    window_tokens: int
    max_output_tokens: int
    policy: RebasePolicy
    reread_share: float = REREAD_SHARE
    """What strategies that drop content read again, as a share of what tools answer in the steps after it."""

    @property
    def usable_tokens(self) -> int:
        """The longest input."""
        return self.room(0).usable_tokens

    def room(self, head_tokens: int) -> Room:
        """As the product sees it."""
        return Room(window_tokens=self.window_tokens, max_output_tokens=self.max_output_tokens, head_tokens=head_tokens)


@dataclass(slots=True)
class History:
    """The history of one thread as a strategy keeps it, in tokens."""

    work: Work
    terms: Terms
    size: int = 0
    common: int = 0
    """What of it the last request and its reply held in the same place."""
    begins: bool = True
    lossy_steps: int = 0
    """So many more steps read again what was dropped."""
    owed_tokens: float = 0.0
    owed_calls: float = 0.0

    def __post_init__(self) -> None:
        self.size = self.work.fixed

    @property
    def is_full(self) -> bool:
        """Whether it does not fit into the window."""
        return self.size > self.terms.usable_tokens

    def add(self, tokens: int) -> None:
        """More at the end."""
        self.size += tokens

    def change(self, kept: int, *, size: int) -> None:
        """Behind the first `kept` tokens all is another, and the whole is `size` long."""
        self.common = min(self.common, kept)
        self.size = size
        self.lossy_steps = REREAD_STEPS

    def replace(self, size: int) -> None:
        """Only system, tools and first message stay; a new lineage begins."""
        self.change(self.work.fixed, size=size)
        self.begins = True

    def rereads(self, turn: Turn) -> Iterator[Request]:
        """Before the step's own request: a call that reads again what was dropped, when enough of them are due."""
        if self.lossy_steps and self.terms.reread_share:
            self.lossy_steps -= 1
            self.owed_tokens += self.terms.reread_share * turn.step.result_tokens
            self.owed_calls += self.terms.reread_share * len(turn.step.results)
        if self.owed_calls >= 1:
            tokens = round(self.owed_tokens)
            self.owed_calls, self.owed_tokens = self.owed_calls - 1, 0.0
            yield self.send(turn, reply=CALL_TOKENS, output=CALL_TOKENS + PER_CALL, purpose="reread")
            self.add(tokens)

    def step(self, turn: Turn, *, note: int = 0, repeated: int | None = None) -> Request:
        """The step's own request, with a reply that holds a note besides."""
        step = turn.step
        request = self.send(turn, reply=step.reply_tokens + note, output=step.output_tokens + note)
        request.repeated = turn.repeated if repeated is None else repeated
        return request

    def send(self, turn: Turn, *, reply: int, output: int, purpose: Purpose = "step", passing: int = 0) -> Request:
        """The history goes out, and `passing` tokens behind it that are not kept."""
        request = Request(
            common=self.common,
            total=self.size + passing,
            stable=self.size,
            fixed=self.work.fixed,
            reply=0 if passing else reply,
            output=output,
            at=turn.step.at,
            purpose=purpose,
            begins=self.begins,
        )
        self.common = self.size if passing else self.size + reply
        self.size += reply
        self.begins = False
        return request
