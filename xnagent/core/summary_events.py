"""The events of the `summary` strategy: a transaction that begins, and is either made or failed.

Between its two ends stand the requests, under the name of the summarizer (`r1:summary`). A beginning without an end is
an attempt that a crash cut off: it is ignored, and the history is what it was (M92, T14). A summary that was made
stands right before the SpineRebased that shows it, in one append.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from xnagent.core.ids import AgentId, Ticket
from xnagent.core.items import Item
from xnagent.core.values import dataclass

SummaryForm = Literal["aligned", "cropped"]
"""`aligned`: the live request with the instruction behind it, read from the cache; `cropped`: a request of its own."""
SummaryFault = Literal["limit", "provider", "overflow", "blank", "cut", "not_smaller", "changed", "interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryStarted:
    """A model is about to be asked for a summary of a history."""

    agent: AgentId
    """The Worker whose history it is."""
    round: int
    """1, 2, 3… over the run, failed attempts not counted."""
    form: SummaryForm
    cause: str
    """Why room is needed: as of a rebase."""
    items: tuple[Item, ...]
    """Aligned: what the request holds behind the history; cropped: all that it holds."""
    covers: int
    """How many items of the history it tells of."""
    tokens: int
    """Size of the next request as it is."""
    type: Literal["summary_started"] = "summary_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryMade:
    """There is a summary, and it is shorter than what it stands for. Text and values replace those of the round before.

    The set of values is whole: a name that is not in it is gone.
    """

    agent: AgentId
    round: int
    text: str
    """The sections, each with its heading; an empty one says `none`."""
    values: tuple[tuple[str, str], ...]
    """By name, exact."""
    tokens_before: int
    tokens_after: int
    values_kept: int = 0
    """Taken over from the round before, to the digit."""
    values_dropped: tuple[str, ...] = ()
    """Names that the summary left out."""
    values_refused: tuple[str, ...] = ()
    """Names whose value stands nowhere in the history: what was stored, if anything, is kept."""
    has_values: bool = True
    """Whether the answer said anything of values; if not, they are what they were."""
    missing: tuple[str, ...] = ()
    """Sections that the answer did not have."""
    requests: int = 1
    duration_seconds: float = 0.0
    cost_usd: float | None = None
    """Of its requests; None: no price is known."""
    notes: Ticket | None = None
    """The text once more, to be read back when a later round has taken its place; None: an older xnagent kept none."""
    type: Literal["summary_made"] = "summary_made"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFailed:
    """There is none, and the history is what it was."""

    agent: AgentId
    round: int
    fault: SummaryFault
    detail: str
    tokens: int
    """Size of the next request: not tried again before it has grown."""
    failures: int
    """In a row, this one included; an interruption is none."""
    is_last: bool = False
    """No more are tried in this run: from here on its history is shortened from stored state."""
    type: Literal["summary_failed"] = "summary_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseAsked:
    """The user wants an agent's history to be shortened before its next request, however long it is (M70)."""

    agent: AgentId
    letter: str = ""
    """The letter that said so."""
    type: Literal["rebase_asked"] = "rebase_asked"


SummaryEvent: TypeAlias = SummaryStarted | SummaryMade | SummaryFailed | RebaseAsked
