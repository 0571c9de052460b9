"""OpenRouter's `reasoning_details`: a reply's reasoning in typed blocks that must come back whole and in their order.

Their texts come in pieces, each with the block's index; a signature or sealed data may come with any of them. Source:
https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from xnagent.core.text import Json
from xnagent.models.raw_json import dump

FIELD: Final = "reasoning_details"
_GROWING: Final = frozenset({"text", "summary", "data"})
"""What later pieces of a block add to; of all else the newest value that is not null holds."""


class DetailAssembler:
    """Puts the blocks of one reply together."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Json]] = []

    def add(self, pieces: object) -> None:
        """Take what one chunk brings; what is no list of objects is not for us."""
        for piece in pieces if isinstance(pieces, list) else []:
            if isinstance(piece, dict):
                self._add(piece)

    def _add(self, piece: dict[str, Json]) -> None:
        known = next((block for block in reversed(self._blocks) if _is_same(block, piece)), None)
        if known is None:
            self._blocks.append(dict(piece))
            return
        for name, value in piece.items():
            before = known.get(name)
            if name in _GROWING and isinstance(before, str) and isinstance(value, str):
                known[name] = before + value
            elif value is not None or name not in known:
                known[name] = value

    def payload(self) -> str:
        """The blocks as a JSON list; empty if there are none."""
        return dump(cast("Json", self._blocks)) if self._blocks else ""


def _is_same(block: Mapping[str, Json], piece: Mapping[str, Json]) -> bool:
    """Whether a piece belongs to a block: without an index nothing says so."""
    index = piece.get("index")
    return index is not None and (block.get("index"), block.get("type")) == (index, piece.get("type"))
