"""The prefix contract: each request extends the one before it in its lineage, also one that an earlier process sent."""

from __future__ import annotations

from dataclasses import replace

from xnagent.agents.desk import Desk, Seat
from xnagent.core.breaks import sent_tokens
from xnagent.core.prefix import Break, find_named, segment_name
from xnagent.core.pricing import rewrite_usd
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded, PrefixBroken
from xnagent.core.state import spine_of
from xnagent.ports import Body


def find_broken(desk: Desk, seat: Seat, *, body: Body, request: int) -> PrefixBroken | None:
    """The break that the next request makes, with what it costs; None if there is none, or nobody wants to know."""
    if desk.prefix == "off":
        return None
    spine = spine_of(desk.log.state, seat.agent)
    sent = desk.sent.get(seat.agent)
    if sent is not None and sent.lineage == spine.lineage:
        manifests = (sent.manifest, seat.manifest)
        found = find_named(sent.segments, body.segments, manifests=manifests, order=seat.cache.order)
        return None if found is None else _named(seat, found, spine=spine, request=request)
    return _since_before(desk, seat, spine=spine, body=body, request=request) if spine.sent_sha256 else None


def _since_before(desk: Desk, seat: Seat, *, spine: Spine, body: Body, request: int) -> PrefixBroken | None:
    """Against the last request of an earlier process, made again from the log."""
    sent = desk.log.state.manifests.get(spine.sent_manifest)
    if sent is None:
        return None
    if (sent.model, sent.wire) != (seat.manifest.model, seat.manifest.wire):
        detail = f"{sent.model} was asked before, {seat.manifest.model} is now, undeclared"
        return _whole(seat, spine, sent=sent, broken=_event(seat, request, segment="model", detail=detail))
    earlier = seat.model.encode(sent, replace(spine, items=spine.items[: spine.sent_items]))
    if earlier.sha256 != spine.sent_sha256:
        return _whole(seat, spine, sent=sent, broken=_by_renderer(seat, sent, request=request))
    manifests = (sent, seat.manifest)
    found = find_named(earlier.segments, body.segments, manifests=manifests, order=seat.cache.order)
    return None if found is None else _named(seat, found, spine=spine, request=request)


def _event(seat: Seat, request: int, *, segment: str, detail: str) -> PrefixBroken:
    return PrefixBroken(agent=seat.agent, request=request, segment=segment, detail=detail, lost_tokens=0)


def _by_renderer(seat: Seat, sent: ManifestRecorded, *, request: int) -> PrefixBroken:
    """The bytes that were sent are gone: no segment can be named."""
    detail = "the items of the last request render to other bytes now"
    is_known = bool(sent.renderer) and sent.renderer != seat.renderer
    if is_known:
        detail += f": renderer {sent.renderer} of xnagent {sent.version} made them, {seat.renderer} does now"
    broken = _event(seat, request, segment="renderer", detail=detail)
    return replace(broken, declared="renderer" if is_known else "")


def _whole(seat: Seat, spine: Spine, *, sent: ManifestRecorded, broken: PrefixBroken) -> PrefixBroken:
    """Everything that was sent is lost."""
    tokens = sent_tokens(spine, sent)
    return replace(broken, lost_tokens=tokens, lost_usd=rewrite_usd(tokens, seat.price))


def _named(seat: Seat, found: Break, *, spine: Spine, request: int) -> PrefixBroken:
    name = segment_name(found.index, agent=seat.agent, generation=spine.generation) if found.index else found.segment
    lost, whole = found.lost_tokens, spine.sent_estimate
    broken = _event(seat, request, segment=name, detail=found.detail)
    return replace(broken, lost_tokens=lost, lost_usd=rewrite_usd(lost, seat.price, size_tokens=whole))


def refused(broken: PrefixBroken) -> str:
    """What strictness says, and what to do."""
    cost = "" if broken.lost_usd is None else f", ${broken.lost_usd:.4f} more than from the cache"
    go_on = "go on at that price with `resume SESSION --prefix warn`"
    is_ours = broken.declared == "renderer"
    return (
        f"request {broken.request} of {broken.agent} does not extend the one before it: {broken.segment}: "
        f"{broken.detail}; about {broken.lost_tokens:,} cached tokens would be lost{cost}; {go_on}"
        f"{', or resume with the xnagent that wrote it' if is_ours else ''}"
    )
