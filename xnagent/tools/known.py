"""What one model knows of its files, and which of them were changed behind its back."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Final, TypeAlias

from xnagent.core.values import dataclass
from xnagent.tools.files import read_file, sha256
from xnagent.tools.outcome import RefusedError
from xnagent.tools.paths import Place

MAX_REMEMBERED_BYTES: Final = 128 * 1024
MAX_REMEMBERED_FILES: Final = 500

Signature: TypeAlias = "tuple[int, int, int, int] | None"
"""Size, times of the last change of content and of status, and inode; None: nothing is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A file as the model last saw it."""

    sha256: str
    data: bytes | None
    """None: too large to remember."""
    place: Place | None = None
    signature: Signature = None
    changed_by: str = ""
    """Which call changed it since, if one is known to have."""


@dataclass(frozen=True, slots=True)
class FileView:
    """What one model has seen of its files; also the lock under which they are changed."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: OrderedDict[str, Seen] = field(default_factory=OrderedDict)
    known: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 by path of what it saw before this process took the run up."""

    def saw(self, place: Place, data: bytes, *, digest: str = "") -> None:
        """The model knows this content now; `digest` is its SHA-256, where that was computed already."""
        self.seen.pop(place.full, None)
        self.seen[place.full] = Seen(
            sha256=digest or sha256(data),
            data=data if len(data) <= MAX_REMEMBERED_BYTES else None,
            place=place,
            signature=_signature(place),
        )
        while len(self.seen) > MAX_REMEMBERED_FILES:
            self.seen.popitem(last=False)

    def touched(self, place: Place) -> None:
        """The model changed the file without knowing all of it: what it last saw stays, the change was its own."""
        if place.full in self.seen:
            self.seen[place.full] = replace(self.seen[place.full], signature=_signature(place))

    def last(self, place: Place) -> Seen | None:
        """The file as it was seen; None: never."""
        if place.full in self.seen or place.name not in self.known:
            return self.seen.get(place.full)
        return Seen(sha256=self.known[place.name], data=None)

    def note_changes(self, by: str) -> tuple[str, ...]:
        """The known files that are not any more as they were at the last look, sorted; `by` is taken for the cause."""
        found: list[str] = []
        for full, seen in list(self.seen.items()):
            now = None if seen.place is None else _signature(seen.place)
            if seen.place is None or now == seen.signature:
                continue
            is_same = _digest(seen.place) == seen.sha256
            self.seen[full] = replace(seen, signature=now, changed_by="" if is_same else by)
            found += [] if is_same else [seen.place.name]
        return tuple(sorted(found))


def _signature(place: Place) -> Signature:
    try:
        status = Path(place.full).lstat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _digest(place: Place) -> str | None:
    try:
        data = read_file(place)
    except (OSError, RefusedError):
        return None
    return None if data is None else sha256(data)
