"""The events of spines, requests and tools; `events.py` joins them with the others into the closed union."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from xnagent.core.clearing import Ticketed
from xnagent.core.ids import AgentId, CallId, Ticket
from xnagent.core.items import Item, ReplyItem
from xnagent.core.tokens import Usage, estimate_head
from xnagent.core.values import dataclass

EffectClass = Literal["pure", "checkable", "keyed", "opaque"]
DriftCause = Literal["lifetime", "below_minimum", "prefix_broken", "process_changed", "model_changed", "unknown"]
Rung = Literal["tool", "reference", "result", "step"]
DENIED = "DENIED"
"""The code of a call that a permission rule denied."""
ExtensionKind = Literal["objective", "baseline", "delta", "brief", "message", "nudge", "project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRecorded:
    """What stands before the history of a role: frozen for the session, so that requests can be rebuilt."""

    manifest: str
    """The first 16 hex digits of its SHA-256."""
    role: str
    wire: str
    model: str
    system: str
    tools: str
    """The tool definitions as canonical JSON, in the order in which they are sent."""
    max_output_tokens: int
    window_tokens: int
    options: str = "{}"
    """Further parameters of the request, as canonical JSON."""
    send_reasoning: bool = False
    """The endpoint wants the reasoning of earlier replies back."""
    version: str = ""
    """Of the xnagent that recorded it; empty, as what follows, in older logs."""
    renderer: str = ""
    """Version and fingerprint of what made bytes of it."""
    system_sha256: str = ""
    tools_sha256: str = ""
    type: Literal["manifest_recorded"] = "manifest_recorded"

    @property
    def head_tokens(self) -> int:
        """Estimate of what stands before the history."""
        return _head_tokens(self.system, self.tools)


@lru_cache(maxsize=64)
def _head_tokens(system: str, tools: str) -> int:
    """Each reply is held against it, and it takes longer than the rest of its fold."""
    return estimate_head(system, tools, tool_count=tools.count('"parameters":'))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineExtended:
    """A message that xnagent wrote went to the end of a spine."""

    agent: AgentId
    kind: ExtensionKind
    items: tuple[Item, ...]
    cursor: int = 0
    """With a baseline or delta: the number of the last cause that it tells."""
    tells: tuple[str, ...] = ()
    """Files of instructions and lists of skills in it (`WorkLog.told`)."""
    type: Literal["spine_extended"] = "spine_extended"


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedPart:
    """Items of one kind that a rebase dropped."""

    kind: str
    """`user_text`, `assistant_text`, `reasoning`, `tool_call`, `tool_result`."""
    items: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineRebased:
    """A spine was replaced by its first message, a checkpoint and a tail. No model was asked.

    With the cause `summary` the checkpoint shows what a model wrote: its SummaryMade stands right before. With `prune`
    nothing was dropped, only long results were cut. Either way a new generation begins, and counts as one.
    """

    agent: AgentId
    items: tuple[Item, ...]
    """The spine as it is now, whole."""
    cursor: int
    cause: str
    """`soft`, `hard`, `economic` or `overflow`."""
    tokens_before: int
    tokens_after: int
    items_dropped: int
    checkpoint_tokens: int
    unreferenced: int = 0
    """Dropped texts and results that no state and no ticket names; `run_inspect` and the log still have them."""
    price_usd: float | None = None
    """What sending the new part costs; None: no price is known."""
    break_even_steps: float | None = None
    manifest: str = ""
    """The one whose window it was made for; empty in older logs: the role's."""
    edition: int = 1
    """By which rules the tail was cut: 1 (older logs) knows no limit in tokens, no tickets and no calibration."""
    dropped: tuple[DroppedPart, ...] = ()
    """What stands in the spine no more, by kind; empty: an older log does not say."""
    ticketed: tuple[Ticketed, ...] = ()
    """Older results of the tail that stand there as tickets now."""
    tickets: tuple[Ticket, ...] = ()
    """The newest tickets that dropped results named: there they can be read whole."""
    first_step: int | None = None
    """The agent's first step that was dropped, as `run_inspect` counts; None: none was."""
    last_step: int | None = None
    rent_usd: float | None = None
    """What re-reading had cost since the rebase before."""
    saved_usd: float | None = None
    """What each request from here on costs less."""
    type: Literal["spine_rebased"] = "spine_rebased"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplaced:
    """An agent goes on with another model: a declared break. Its items stay, its lineage ends."""

    agent: AgentId
    replaced: str
    """The model that the lineage was sent to."""
    model: str
    """The one that takes its place."""
    cause: str
    """The kind of fault that the replaced one failed with, or `chosen`: the user names another one."""
    detail: str
    request: int | None
    """The request that failed; None if none did."""
    lineage: str
    """The one that ends."""
    lost_tokens: int
    """Of its prefix: what the replaced model's cache may hold."""
    price_usd: float | None
    """What sending them costs at the new model's price; None: no price is known."""
    type: Literal["model_replaced"] = "model_replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChanged:
    """Rules took tools of an agent away or gave some back: a declared break. Its items stay, its lineage ends."""

    agent: AgentId
    removed: tuple[str, ...]
    added: tuple[str, ...]
    manifest: str
    """The one that takes over."""
    lineage: str
    """The one that ends."""
    lost_tokens: int
    """Of its prefix: what no cache can serve any more."""
    lost_usd: float | None
    """What sending them costs more than reading them from the cache; None: no price is known."""
    type: Literal["tools_changed"] = "tools_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebaseRefused:
    """A rebase would have freed too little; it is not tried again before the spine has grown."""

    agent: AgentId
    cause: str
    tokens_before: int
    tokens_after: int
    detail: str
    checkpoint_tokens: int = 0
    """What the checkpoint would have taken; 0: an older log does not say."""
    type: Literal["rebase_refused"] = "rebase_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebasesSuspended:
    """Three rebases in a row were refused: no more are tried until the spine has grown, or something is different.

    Different is: a rebase after all, another model, another process with maybe other settings.
    """

    agent: AgentId
    refusals: int
    tokens: int
    """Size of the spine."""
    detail: str
    type: Literal["rebases_suspended"] = "rebases_suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFilled:
    """A request reaches a level of its window that is to be told, the first time since the last rebase."""

    agent: AgentId
    request: int
    """The one that is about to be sent."""
    generation: int
    """Rebases of the agent's spine before it."""
    level: float
    """The highest that it reaches, as a share of the usable window (`spine.warn_shares`)."""
    tokens: int
    """Its estimate."""
    usable_tokens: int
    type: Literal["window_filled"] = "window_filled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted:
    """A request is about to be sent. It is the manifest and the spine as they are at this event."""

    agent: AgentId
    request: int
    """1, 2, 3… over the session."""
    manifest: str
    items: int
    estimate_tokens: int
    predicted_cached_tokens: int | None
    """What a cache serves at least, as it holds the request before by the model's rule; None: nothing is known."""
    sha256: str
    """Of the body."""
    size_bytes: int
    ceiling_usd: float | None = None
    """The most that it can cost; None: no price is known."""
    ceiling_tokens: int | None = None
    """The most tokens that it can use, input and output; None: an older log."""
    long_items: int = 0
    """Cache markers up to so many items ask for the longer lifetime, those behind for the shorter."""
    waited_seconds: float | None = None
    """Since the agent's request before was sent; None: this is the first, or another process sent that."""
    rent_usd: float | None = None
    """What it costs more than it would after a rebase (`rent.py`); None: no price is known."""
    rebase_usd: float | None = None
    """What a rebase before it would have cost; None: no price is known, or nothing is cached."""
    type: Literal["request_started"] = "request_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRetried:
    """An attempt failed and is made again after a pause."""

    agent: AgentId
    request: int
    attempt: int
    fault: str
    detail: str
    wait_seconds: float
    type: Literal["request_retried"] = "request_retried"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """A request failed for good."""

    agent: AgentId
    request: int
    fault: str
    detail: str
    type: Literal["request_failed"] = "request_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReceived:
    """A model answered: its items join the spine verbatim and its calls are open."""

    agent: AgentId
    request: int
    items: tuple[ReplyItem, ...]
    usage: Usage
    cost_usd: float | None
    finish: str
    """`stop`, `tool_calls`, `length` or `content_filter`."""
    duration_seconds: float
    first_token_seconds: float | None = None
    note: str = ""
    """What was odd about the usage."""
    type: Literal["reply_received"] = "reply_received"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call is about to have an effect."""

    agent: AgentId
    call_id: CallId
    tool: str
    effect: EffectClass
    spool: str | None = None
    """Where an opaque command keeps its output and exit status, relative to the session's work folder."""
    before: str | None = None
    """With `checkable`: the state that the effect starts from (`path` and hash)."""
    after: str | None = None
    """With `checkable`: the state that it leads to."""
    type: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool call has its one result. When all calls of a reply have theirs, they join the spine in call order."""

    agent: AgentId
    call_id: CallId
    tool: str
    text: str
    """What the model reads."""
    code: str = "ok"
    """`ok`, or the error's code."""
    label: str = ""
    """What a person reads, one line."""
    artifact: Ticket | None = None
    paths_read: tuple[str, ...] = ()
    paths_changed: tuple[str, ...] = ()
    seen: tuple[tuple[str, str], ...] = ()
    """Files whose content the model knows now, with its SHA-256."""
    pages: tuple[tuple[str, str], ...] = ()
    """Pages that the text shows (`path:first-last`), with the SHA-256 of what it shows; empty: it refers to earlier."""
    exit_code: int | None = None
    duration_seconds: float = 0.0
    type: Literal["tool_finished"] = "tool_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultOffloaded:
    """A result stands in the spine as a ticket and its ends, because the results of its step were too long together.

    It comes before the ToolFinished that completes the step; the text whole is in the result's own ToolFinished.
    """

    agent: AgentId
    call_id: CallId
    text: str
    """What the model reads instead."""
    artifact: Ticket | None = None
    """The text whole; None: the shorter text names another place to read it."""
    type: Literal["result_offloaded"] = "result_offloaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultShortened:
    """A result takes less room than it could: one of the ways that cost nothing, in the order in which they are tried.

    `tool`: the tool cut it and kept the whole; `reference`: an unchanged page that was read before is only referred to;
    `result`: it was too long by itself; `step`: the results of its step were too long together. It comes before the
    result's ToolFinished, or before that of the step's last result.
    """

    agent: AgentId
    call_id: CallId
    tool: str
    rung: Rung
    characters: int
    """What the model reads."""
    place: str
    """Where the rest can be read: a ticket or a path."""
    type: Literal["result_shortened"] = "result_shortened"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixBroken:
    """A request did not extend the one before it in its lineage.

    Rebases, other models and other tools have events of their own, after which a new lineage begins: none of them is
    such a break.
    """

    agent: AgentId
    request: int
    segment: str
    """The first that differs as the model reads: `tools`, `system`, `objective`, `brief`, `checkpoint`, `group N`.

    Or what else is not the same: `head` (parameters before the messages), `model`, `renderer`.
    """
    detail: str
    lost_tokens: int
    lost_usd: float | None = None
    """What sending them costs more than reading them from the cache; None: no price is known."""
    declared: str = ""
    """What explains it: `renderer`, another version of xnagent renders the record. Empty: nothing does."""
    type: Literal["prefix_broken"] = "prefix_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDrifted:
    """Much less of a request came from the provider's cache than the request before it must have left there."""

    agent: AgentId
    request: int
    predicted_tokens: int
    """Input of the request before, as reported. Whether its reply is cached too depends on the provider."""
    reported_tokens: int
    cause: DriftCause
    """The likely one. A new process or model may be served by another machine."""
    type: Literal["cache_drifted"] = "cache_drifted"
