"""Declared breaks that are no rebase and no other model: what is lost when the tools of an agent change."""

from __future__ import annotations

import json

from xnagent.core.caching import RenderOrder
from xnagent.core.ids import AgentId
from xnagent.core.pricing import Price, rewrite_usd
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded, ToolsChanged
from xnagent.core.state import SessionState, spine_of
from xnagent.core.tokens import estimate_items, estimate_text


def tools_changed(
    state: SessionState,
    agent: AgentId,
    *,
    manifest: ManifestRecorded,
    price: Price | None,
    order: RenderOrder | None,
) -> ToolsChanged | None:
    """The break that the manifest makes in the agent's lineage; None if its tools are those that were sent last."""
    spine = spine_of(state, agent)
    sent = state.manifests.get(spine.sent_manifest)
    if sent is None or sent.tools == manifest.tools or (sent.model, sent.wire) != (manifest.model, manifest.wire):
        return None
    before, after = (frozenset(tool["name"] for tool in json.loads(one.tools or "[]")) for one in (sent, manifest))
    whole = sent_tokens(spine, sent)
    kept = estimate_text(sent.system) if order == "system-tools" and sent.system == manifest.system else 0
    lost = max(0, whole - kept)
    return ToolsChanged(
        agent=agent,
        removed=tuple(sorted(before - after)),
        added=tuple(sorted(after - before)),
        manifest=manifest.manifest,
        lineage=spine.lineage,
        lost_tokens=lost,
        lost_usd=rewrite_usd(lost, price, size_tokens=whole),
    )


def sent_tokens(spine: Spine, sent: ManifestRecorded) -> int:
    """About how much of the lineage a cache may hold: as reported, else as estimated; after a rebase its beginning."""
    if not spine.requests:
        return sent.head_tokens + estimate_items(spine.items[: spine.head])
    return spine.sent_estimate if spine.anchor_tokens is None else spine.anchor_tokens
