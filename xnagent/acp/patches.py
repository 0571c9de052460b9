"""A patch of git as the pieces that editors show: what stood there, and what stands there now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

HEADER: Final = re.compile(r"^diff --git a/(?P<old>.*) b/(?P<new>.*)$")
MOST_PIECES: Final = 40
MOST_CHARACTERS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One hunk of one file."""

    path: str
    before: str | None
    """None: the file is new."""
    after: str


def pieces(patch: str) -> list[Piece]:
    """The hunks of a patch in order, as many as an editor can be asked to show. Binary files have none."""
    found: list[Piece] = []
    size = 0
    for piece in _hunks(patch):
        size += len(piece.after) + len(piece.before or "")
        if len(found) >= MOST_PIECES or size > MOST_CHARACTERS:
            break
        found.append(piece)
    return found


def _hunks(patch: str) -> Iterator[Piece]:
    for file in re.split(r"^(?=diff --git )", patch, flags=re.MULTILINE):
        header = HEADER.match(file.partition("\n")[0])
        if header is None:
            continue
        head, *hunks = re.split(r"^@@ [^\n]*\n", file, flags=re.MULTILINE)
        is_new = "\nnew file mode" in head
        for hunk in hunks:
            lines = hunk.split("\n")
            before = _side(lines, "-")
            yield Piece(path=header["new"], before=None if is_new else before, after=_side(lines, "+"))


def _side(lines: list[str], sign: str) -> str:
    return "".join(f"{line[1:]}\n" for line in lines if line[:1] in {" ", sign})
