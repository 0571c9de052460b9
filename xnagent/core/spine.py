"""An agent's append-only, model-visible history, and the bookkeeping that makes its next message small.

Two things may happen to a spine: it is extended at the end, or it is rebased (`rebase.py`). Invariants I1–I8 are in
DESIGN, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from xnagent.core.board import Board
from xnagent.core.evolve import evolve, frozen, thawed
from xnagent.core.ids import TICKET, AgentId, CallId, Ticket
from xnagent.core.items import Item, ReplyItem, ToolCall, ToolResult, calls_of
from xnagent.core.lifetime import Wait, with_wait
from xnagent.core.rent import Costs, Rent, paid
from xnagent.core.spine_events import RequestStarted
from xnagent.core.tokens import MOST_SHARE, Usage, estimate_items, is_plausible
from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """What a result shows a part of, and where a model can read it."""

    name: str
    """A path or a ticket."""
    is_page: bool
    """The result is a page that was read of it; else it is an output that was cut."""

    @property
    def ticket(self) -> Ticket | None:
        """The name, if it is a ticket."""
        return Ticket(self.name) if TICKET.fullmatch(self.name) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spine:
    """The history of one agent. A new value for each change; items are shared, never changed (I5)."""

    agent: AgentId
    generation: int = 0
    """How often it was rebased."""
    handovers: int = 0
    """How often another model took it over; with the agent and the rebases it names the lineage."""
    items: tuple[Item, ...] = ()
    call_ids: frozenset[CallId] = frozenset()
    """Of all calls among the items."""
    tokens: int = 0
    """Estimate of all items, without system text and tools."""
    head: int = 1
    """How many items at the start no rebase replaces: the objective, or a Worker's brief."""
    state_at: int | None = None
    """Position of the newest state message: baseline, delta or checkpoint."""
    first_tokens: int = 0
    """Estimate of the items that no rebase replaces."""
    tokens_to_state: int = 0
    """Estimate of the items up to that position, the state message included."""
    told_tokens: int = 0
    """The same for the newest state message that was sent: a rebase drops what stands up to there."""
    view_tokens: int = 0
    """Estimate of the newest message that held the whole state: what a checkpoint is likely to take."""
    base: Board | None = None
    """What the model was last told of the board."""
    cursor: int = 0
    """Number of the last cause that it was told."""
    deltas: int = 0
    anchor_tokens: int | None = None
    """What the provider reported for the last request and its reply; None: nothing plausible in this lineage."""
    held_tokens: int | None = None
    """Input of the last request as reported: what a cache of any kind holds; None: nothing plausible."""
    held_manifest: str = ""
    """Whose cache that is."""
    tokens_since_anchor: int = 0
    sent_estimate: int = 0
    """Estimate of the request under way or last sent, system and tools included."""
    sent_tokens: int = 0
    """Estimate of the items that the last request of this lineage held: what came later no model has read."""
    sent_items: int = 0
    """How many items the last request of this lineage held."""
    sent_sha256: str = ""
    """Of its body."""
    sent_manifest: str = ""
    sent_ceiling_usd: float | None = None
    """The most that the request under way can cost."""
    sent_ceiling_tokens: int | None = None
    """The most tokens that it can use, input and output; None: an older log does not say."""
    long_items: int = 0
    """Up to how many items the last request asked the cache for the longer lifetime."""
    waits: tuple[Wait, ...] = ()
    """How long the agent's newest requests were apart."""
    had_runs: bool = False
    """Whether runs were active when the last request was sent."""
    pending_request: int | None = None
    """Number of a request that was started and has no reply yet: it is sent again as it is."""
    requests: int = 0
    """Requests of this lineage."""
    open_calls: tuple[ToolCall, ...] = ()
    results: Mapping[CallId, ToolResult] = field(default_factory=dict)
    """Results of open calls, until all are there."""
    wholes: Mapping[CallId, Whole] = field(default_factory=dict)
    """What the results of open calls are a part of, where they are one."""
    rent: Rent = field(default_factory=Rent)
    """What the droppable part has cost in re-reads since the last rebase."""
    wanted_tokens: int = 0
    """Of pages that were asked for again since the newest rebase: they would come back after the next one."""
    refused_at: int | None = None
    """Size at which a rebase was last refused."""
    refusals: int = 0
    """In a row."""
    is_suspended: bool = False
    """So many that rebases are tried no more, until something is different."""
    is_rebase_asked: bool = False
    """The user wants a rebase before the next request, whatever the policy says."""
    warned_share: float = 0.0
    """The highest level of the window that was told since the last rebase."""
    unanswered_rebases: int = 0
    """Rebases since the last reply: two without a reply in between are one too many (B029)."""

    @property
    def lineage(self) -> str:
        """Name of the chain of requests of which each must extend the one before."""
        name = f"{self.agent}.{self.generation}"
        return f"{name}.{self.handovers}" if self.handovers else name

    @property
    def is_long_lived(self) -> bool:
        """Whether what the last request left in a cache has the longer lifetime."""
        return 0 < self.sent_items <= self.long_items

    @property
    def is_open(self) -> bool:
        """Whether calls still wait for their results; then nothing else may be appended."""
        return bool(self.open_calls)


def held_by(spine: Spine, manifest: str) -> int | None:
    """What the cache of the manifest's model holds of the spine; None: nothing plausible, or another model's does."""
    return spine.held_tokens if spine.held_manifest in {"", manifest} else None


class SpineDraft:
    """A spine that a request's events change in place, so that none of them copies what it does not change.

    What raises leaves it as it is.
    """

    __slots__ = ("_added", "spine")

    def __init__(self, spine: Spine) -> None:
        self.spine = thawed(spine)
        """All but the items that were added; to be read only."""
        self._added: list[Item] = []

    def whole(self) -> Spine:
        """The spine. The draft ends with it."""
        own, added = cast("Any", self.spine), self._added
        if added:
            own.items = (*own.items, *added)
            own.call_ids = own.call_ids.union(call.call_id for call in calls_of(added))
        return frozen(own, Spine)

    def extend(self, items: Sequence[Item]) -> None:
        """Append items; raises ValueError while calls are open, because it would part them from results."""
        spine = self.spine
        if spine.open_calls:
            waiting = ", ".join(call.call_id for call in spine.open_calls if call.call_id not in spine.results)
            message = f"the spine of {spine.agent} has open calls ({waiting}); nothing may stand before their results"
            raise ValueError(message)
        self._append(items)

    def _append(self, items: Sequence[Item]) -> None:
        own: Any = self.spine
        more = estimate_items(items)
        if not own.items and not self._added:
            own.first_tokens = estimate_items(items[: own.head])
        self._added += items
        own.tokens += more
        own.tokens_since_anchor += more

    def start_request(self, started: RequestStarted, *, has_runs: bool) -> None:
        """The spine as it is goes out; what it could have dropped is read once more."""
        own: Any = self.spine
        if own.pending_request is None:
            own.waits = with_wait(own.waits, started.waited_seconds, had_runs=own.had_runs)
            own.rent = _rent(own.rent, started)
            own.requests += 1
        own.pending_request = started.request
        own.sent_estimate = started.estimate_tokens
        own.sent_tokens = own.tokens
        own.sent_items = started.items
        own.sent_sha256 = started.sha256
        own.sent_manifest = started.manifest
        own.sent_ceiling_usd = started.ceiling_usd
        own.sent_ceiling_tokens = started.ceiling_tokens
        own.long_items = started.long_items
        own.had_runs = has_runs
        own.told_tokens = own.tokens_to_state

    def add_reply(self, items: Sequence[ReplyItem], *, usage: Usage) -> None:
        """Append a whole reply; its calls are open until each has a result."""
        self.extend(items)
        own: Any = self.spine
        own.open_calls = calls_of(items)
        own.pending_request = None
        own.unanswered_rebases = 0
        total = _reported_total(usage, own.sent_estimate)
        if total is not None:
            own.anchor_tokens = total
            own.held_tokens = usage.input_tokens
            own.held_manifest = own.sent_manifest
            own.tokens_since_anchor = 0

    def add_result(self, result: ToolResult) -> None:
        """Take one result; with the last one all are appended in the order of the calls (I3, T31).

        A result for a call that is not open, or a second one, raises ValueError.
        """
        own: Any = self.spine
        if all(call.call_id != result.call_id for call in own.open_calls) or result.call_id in own.results:
            message = f"{result.call_id} is not an open call of {own.agent}"
            raise ValueError(message)
        results = {**own.results, result.call_id: result}
        if len(results) < len(own.open_calls):
            own.results = results
            return
        self._append([results[call.call_id] for call in own.open_calls])
        own.open_calls, own.results, own.wholes = (), {}, {}

    def take_whole(self, call_id: CallId, whole: Whole) -> None:
        """Remember what a result is a part of, as long as its step is open."""
        own: Any = self.spine
        if own.open_calls:
            own.wholes = {**own.wholes, call_id: whole}

    def want(self, tokens: int) -> None:
        """More of what would come back after the next rebase."""
        own: Any = self.spine
        own.wanted_tokens += tokens


def extend(spine: Spine, items: Sequence[Item]) -> Spine:
    """Append items at the end; raises ValueError while calls are open, because it would part them from results."""
    draft = SpineDraft(spine)
    draft.extend(items)
    return draft.whole()


def extend_with_state(spine: Spine, items: Sequence[Item], *, board: Board, cursor: int, is_delta: bool) -> Spine:
    """Append a state message and remember what it told: the board, the cause it ends with, and its position."""
    longer = extend(spine, items)
    return evolve(
        longer,
        state_at=len(spine.items),
        tokens_to_state=longer.tokens,
        view_tokens=spine.view_tokens if is_delta else longer.tokens - spine.tokens,
        base=board,
        cursor=cursor,
        deltas=spine.deltas + is_delta,
    )


def start_request(spine: Spine, started: RequestStarted, *, has_runs: bool = False) -> Spine:
    """The spine as it is goes out; what it could have dropped is read once more."""
    draft = SpineDraft(spine)
    draft.start_request(started, has_runs=has_runs)
    return draft.whole()


def _rent(rent: Rent, started: RequestStarted) -> Rent:
    """An older log, or a model without a price, does not say what was paid."""
    if started.rent_usd is None:
        return rent
    price = started.rebase_usd
    return paid(rent, Costs(rent_usd=started.rent_usd, price_usd=price or 0.0, is_warm=price is not None))


def add_reply(spine: Spine, items: Sequence[ReplyItem], *, usage: Usage) -> Spine:
    """Append a whole reply; its calls are open until each has a result."""
    draft = SpineDraft(spine)
    draft.add_reply(items, usage=usage)
    return draft.whole()


def _reported_total(usage: Usage, estimated_input: int) -> int | None:
    if usage.input_tokens is None or usage.is_estimated or not is_plausible(usage.input_tokens, estimated_input):
        return None
    return usage.input_tokens + (usage.output_tokens or 0)


def add_result(spine: Spine, result: ToolResult) -> Spine:
    """Take one result; with the last one all are appended in the order of the calls (I3, T31).

    A result for a call that is not open, or a second one, raises ValueError.
    """
    draft = SpineDraft(spine)
    draft.add_result(result)
    return draft.whole()


def replace_result(spine: Spine, call_id: CallId, *, text: str) -> Spine:
    """Give a result that has not joined the items yet another text; raises ValueError if it has."""
    if call_id not in spine.results:
        message = f"{call_id} has no result that waits for others in the spine of {spine.agent}"
        raise ValueError(message)
    return evolve(spine, results={**spine.results, call_id: evolve(spine.results[call_id], text=text)})


def missing_calls(spine: Spine) -> tuple[ToolCall, ...]:
    """The open calls that have no result yet, in order."""
    return tuple(call for call in spine.open_calls if call.call_id not in spine.results)


def replace_items(spine: Spine, items: Sequence[Item], *, board: Board | None, cursor: int) -> Spine:
    """The spine after a rebase onto `items`: a new lineage whose base is what the checkpoint contains."""
    first = estimate_items(items[: spine.head])
    to_state = first + estimate_items(items[spine.head : spine.head + 1])
    return evolve(
        spine,
        generation=spine.generation + 1,
        items=tuple(items),
        call_ids=frozenset(call.call_id for call in calls_of(items)),
        tokens=estimate_items(items),
        state_at=spine.head,
        first_tokens=first,
        tokens_to_state=to_state,
        told_tokens=to_state,
        view_tokens=to_state - first,
        base=board,
        cursor=cursor,
        anchor_tokens=None,
        held_tokens=None,
        tokens_since_anchor=0,
        pending_request=None,
        sent_tokens=0,
        sent_items=0,
        sent_sha256="",
        long_items=min(spine.long_items, spine.head),
        requests=0,
        rent=Rent(),
        wanted_tokens=0,
        refused_at=None,
        refusals=0,
        is_suspended=False,
        is_rebase_asked=False,
        warned_share=0.0,
        unanswered_rebases=spine.unanswered_rebases + 1,
    )


def hand_over(spine: Spine) -> Spine:
    """The same items for another model (I5): a new lineage, of which nothing was sent and nothing counted yet.

    What was paid, and what a rebase would have cost, was in another model's prices; how full it is, in its window.
    """
    return evolve(
        spine,
        handovers=spine.handovers + 1,
        anchor_tokens=None,
        tokens_since_anchor=0,
        pending_request=None,
        sent_tokens=0,
        sent_items=0,
        sent_sha256="",
        sent_manifest="",
        long_items=0,
        requests=0,
        rent=Rent(),
        refused_at=None,
        refusals=0,
        is_suspended=False,
        unanswered_rebases=0,
        warned_share=0.0,
    )


def estimate(spine: Spine, head_tokens: int, *, ratio: float = 1.0) -> int:
    """Tokens of the next request: the last report plus an estimate of what came after it (M59), else all estimated.

    `head_tokens` is the estimate of system text and tools; `ratio` is what the model counts for one estimated token.
    """
    if spine.anchor_tokens is None:
        return round((head_tokens + spine.tokens) * ratio)
    return spine.anchor_tokens + round(spine.tokens_since_anchor * ratio)


def most_tokens(spine: Spine, head_tokens: int) -> int:
    """The most that the next request can hold: the last report, and what is only estimated at its most."""
    if spine.anchor_tokens is None:
        return math.ceil((head_tokens + spine.tokens) * MOST_SHARE)
    return spine.anchor_tokens + math.ceil(spine.tokens_since_anchor * MOST_SHARE)
