"""Which results of a step are cut because together they are too long, and what stands in their place (M98, M101).

The largest go first, each to its ends and the place where the whole can be read. Pages of stored outputs go last, and
never to another ticket: reading one must not lead to the next (M107, T21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from xnagent.core.ids import AgentId, CallId
from xnagent.core.items import ToolResult
from xnagent.core.spine import Spine, Whole
from xnagent.core.spine_events import ToolFinished
from xnagent.core.state import SessionState, spine_of
from xnagent.core.text import clip

MOST_CHARACTERS: Final = 200_000
LEAST_CHARACTERS: Final = 8_000
PREVIEW_CHARACTERS: Final = 2_000
SHORTEST_PREVIEW: Final = 400
"""Below this there is no room for the words that say where the rest is."""


def whole_of(finished: ToolFinished) -> Whole | None:
    """What a result is a part of; None: it is all there is."""
    if finished.pages:
        return Whole(name=finished.pages[0][0].rpartition(":")[0], is_page=True)
    return None if finished.artifact is None else Whole(name=finished.artifact, is_page=False)


def results_limit(state: SessionState, agent: AgentId) -> int:
    """How many characters the results of one step may have: about a quarter of the tokens that fit into a request."""
    manifest = state.manifests.get(spine_of(state, agent).sent_manifest)
    if manifest is None:
        return MOST_CHARACTERS
    return max(LEAST_CHARACTERS, min(MOST_CHARACTERS, manifest.window_tokens - manifest.max_output_tokens))


def cuts(spine: Spine, last: ToolResult, *, whole: Whole | None, limit: int) -> Mapping[CallId, int]:
    """How many characters are left to the results that must be cut, when `last` completes the step."""
    if len(spine.results) + 1 < len(spine.open_calls):
        return {}
    wholes = spine.wholes if whole is None else {**spine.wholes, last.call_id: whole}
    results = [spine.results.get(call.call_id, last) for call in spine.open_calls]
    return _shares(results, exempt={name for name, one in wholes.items() if is_exempt(one)}, limit=limit)


def _shares(results: Sequence[ToolResult], *, exempt: set[CallId], limit: int) -> Mapping[CallId, int]:
    preview = max(SHORTEST_PREVIEW, min(PREVIEW_CHARACTERS, limit // len(results)))
    total = sum(len(result.text) for result in results)
    found: dict[CallId, int] = {}
    places = sorted(range(len(results)), key=lambda at: (results[at].call_id in exempt, -len(results[at].text), -at))
    for result in (results[at] for at in places):
        if total <= limit:
            break
        room = max(preview, limit - (total - len(result.text)))
        if room < len(result.text):
            found[result.call_id] = room
            total -= len(result.text) - room
    return found


def is_exempt(whole: Whole) -> bool:
    """Whether the result is a page of a stored output."""
    return whole.is_page and whole.ticket is not None


def offloaded(text: str, room: int, *, whole: Whole) -> str:
    """The ends of a result, and where to read on."""
    why = "the results of this step were too long together"
    how = f"read {whole.name} again in smaller parts, with offset and limit" if whole.is_page else f"read {whole.name}"
    return clip(text, room, how_to_get=f"{why}; for the rest {how}")
