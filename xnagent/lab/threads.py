"""A recorded agent as sizes: what each request added, what was replied, and when. The neutral form of all recordings.

Sizes are the product's own estimates, anchored on what the provider reported: the growth from one reported prompt to
the next is spread over what was added in between, wherever it is plausible (M59, M60). What stands before the history
is the first reported prompt less its visible text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from xnagent.core.tokens import is_plausible


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one tool call answered."""

    tokens: int
    tool: str = ""
    path: str = ""
    """The file that was read or changed; empty: none, or it cannot be known."""
    is_read_only: bool = False
    """Whether the call looked and changed nothing."""
    digest: int = 0
    """Equal for equal texts."""
    line_tokens: int = 0
    """Of the line that a stored record keeps of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the provider reported of one request; input, cached and written are disjoint."""

    fresh: int = 0
    cached: int = 0
    written: int = 0
    written_long: int = 0
    """What of the written part was for the longer lifetime."""
    output: int = 0

    @property
    def prompt(self) -> int:
        """All input."""
        return self.fresh + self.cached + self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One model call, and what was new since the one before it."""

    user_tokens: int = 0
    """New texts of the user or the client."""
    person_tokens: int = 0
    """What of them a person wrote."""
    results: tuple[Result, ...] = ()
    """Answers to the calls of the step before."""
    reply_tokens: int = 0
    """What the reply adds to the history, with the reasoning that is kept."""
    output_tokens: int = 0
    """What was generated."""
    at: float | None = None
    """Seconds; None: not recorded."""
    is_compacted: bool = False
    """The recorded agent had just replaced its history: the prompt's size says nothing of what is new."""
    recorded: Recorded | None = None

    @property
    def result_tokens(self) -> int:
        """All answers together."""
        return sum(result.tokens for result in self.results)

    @property
    def new_tokens(self) -> int:
        """What is new but for the reply before."""
        return self.user_tokens + self.result_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One agent's context from its first request to its last."""

    run: str
    agent: str
    head_tokens: int
    """System text and tools."""
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """The run, and the agent where it is not the main one."""
        return f"{self.run}/{self.agent}" if self.agent else self.run


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One recording: its threads side by side."""

    name: str
    client: str
    """Who made it."""
    threads: tuple[Thread, ...]

    @property
    def steps(self) -> int:
        """Of all threads."""
        return sum(len(thread.steps) for thread in self.threads)


def anchored(thread: Thread) -> Thread:
    """The thread with all sizes scaled to what was reported; `head_tokens` is the estimate of what is visible of it."""
    steps = thread.steps
    if not steps:
        return thread
    grown = _growth(steps)
    ratio = _ratio(steps, grown)
    factors = [
        ratio if growth is None else growth / estimate for growth, estimate in zip(grown, _news(steps), strict=True)
    ]
    replies = [*factors[1:], ratio]
    scaled = [
        _scaled(step, new, reply=reply, ratio=ratio) for step, new, reply in zip(steps, factors, replies, strict=True)
    ]
    head, earlier = _head(thread, scaled[0].new_tokens)
    if earlier:
        scaled[0] = replace(scaled[0], results=(*scaled[0].results, Result(tokens=earlier)))
    return replace(thread, head_tokens=head, steps=tuple(scaled))


def _head(thread: Thread, visible: int) -> tuple[int, int]:
    """What stands before the history; and history that is older than the recording.

    The head is in every prompt, so it is no longer than the shortest one: what the first has besides is history.
    """
    prompts = [step.recorded.prompt for step in thread.steps if step.recorded is not None]
    if thread.steps[0].recorded is None:
        return thread.head_tokens, 0
    head = max(thread.head_tokens, prompts[0] - visible)
    earlier = max(0, head - min(prompts))
    return head - earlier, earlier


def _news(steps: Sequence[Step]) -> list[int]:
    """What each request holds that the one before did not: the reply to that one, and what came after."""
    before = [0, *(step.reply_tokens for step in steps)]
    return [reply + step.new_tokens for reply, step in zip(before, steps, strict=False)]


def _growth(steps: Sequence[Step]) -> list[int | None]:
    """By how much the reported prompts grew; None where that is not known or not plausible."""
    grown: list[int | None] = [None]
    for before, step, estimate in zip(steps, steps[1:], _news(steps)[1:], strict=False):
        growth = _difference(before.recorded, step.recorded)
        is_usable = growth is not None and growth > 0 and estimate > 0 and not step.is_compacted
        grown.append(growth if is_usable and growth is not None and is_plausible(growth, estimate) else None)
    return grown


def _difference(before: Recorded | None, after: Recorded | None) -> int | None:
    return None if before is None or after is None else after.prompt - before.prompt


def _ratio(steps: Sequence[Step], grown: Iterable[int | None]) -> float:
    known = [(growth, estimate) for growth, estimate in zip(grown, _news(steps), strict=True) if growth is not None]
    estimated = sum(estimate for _growth, estimate in known)
    return sum(growth for growth, _estimate in known) / estimated if estimated else 1.0


def _scaled(step: Step, new: float, *, reply: float, ratio: float) -> Step:
    results = tuple(replace(result, tokens=round(result.tokens * new)) for result in step.results)
    size = round(step.reply_tokens * reply)
    reported = 0 if step.recorded is None else step.recorded.output
    return replace(
        step,
        user_tokens=round(step.user_tokens * new),
        person_tokens=round(step.person_tokens * ratio),
        results=results,
        reply_tokens=size,
        output_tokens=max(reported, round(step.output_tokens * ratio)),
    )
