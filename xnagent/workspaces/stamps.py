"""Git's stamps of a tree's files, kept true when their owner changes: else git would read every file again.

An index holds of each file what `lstat` said when it was written. Giving a file to another user changes its owner and
the time of its last change; its content is what it was. What differed from its stamp before is left as it is.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass

BESIDE: Final = ("index", "saving-index")
"""Where the indexes of a tree are, in the folder around it."""
_INSIDE: Final = ".git/index"
_HEAD: Final = struct.Struct(">4sII")
_STAMP: Final = struct.Struct(">10I")
_ID_BYTES: Final = {"sha1": 20, "sha256": 32}
_VERSIONS: Final = (2, 3)
"""Of these each entry has its whole path."""
_EXTENDED: Final = 0x4000
_LOW: Final = 0xFFFFFFFF
_MODE: Final = 6
_UNCHANGED: Final = (2, 3, 4, 5, 9)
"""Places in a stamp that a change of owner leaves: time of the content, device, number, size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    at: int
    """Where its stamp begins."""
    path: bytes


@contextmanager
def true_stamps(root: Path) -> Iterator[None]:
    """Around a change of owners in a tree: files that were as an index says are so afterwards. Blocks."""
    indexes = [path for name in BESIDE if _is_file(path := root.parent / name)]
    inner = root / _INSIDE
    if not inner.parent.is_symlink() and _is_file(inner):
        indexes.append(inner)
    before = {index: index.read_bytes() for index in indexes}
    clean = {content: _clean(content, root) for content in set(before.values())}
    yield
    after = {content: _restamped(content, root, entries=entries) for content, entries in clean.items() if entries}
    for index, content in before.items():
        if content in after:
            _replace(index, after[content])


def _clean(content: bytes, root: Path) -> list[_Entry]:
    return [entry for entry in _entries(content) if _is_as_stamped(content, root, entry=entry)]


def _is_as_stamped(content: bytes, root: Path, *, entry: _Entry) -> bool:
    old, now = _STAMP.unpack_from(content, entry.at), _stamp_of(root, entry)
    return now[:_MODE] == old[:_MODE] and now[_MODE + 1 :] == old[_MODE + 1 :]


def _entries(content: bytes) -> list[_Entry]:
    """None of an index of another kind, or that is not whole."""
    kind = _kind(content)
    if kind is None:
        return []
    _, version, count = _HEAD.unpack_from(content)
    found: list[_Entry] = []
    at = _HEAD.size
    for _ in range(count):
        flags_at = at + _STAMP.size + _ID_BYTES[kind]
        flags = int.from_bytes(content[flags_at : flags_at + 2], "big")
        begin = flags_at + (4 if version > _VERSIONS[0] and flags & _EXTENDED else 2)
        end = content.find(b"\0", begin)
        if end < 0:
            return []
        found.append(_Entry(at=at, path=content[begin:end]))
        at += (end - at) // 8 * 8 + 8
    return found


def _kind(content: bytes) -> str | None:
    """How it names contents; its last bytes are its own name."""
    if len(content) < _HEAD.size or _HEAD.unpack_from(content)[0] != b"DIRC":
        return None
    if _HEAD.unpack_from(content)[1] not in _VERSIONS:
        return None
    return next(
        (kind for kind, size in _ID_BYTES.items() if _digest(content[:-size], kind=kind) == content[-size:]), None
    )


def _digest(content: bytes | bytearray, *, kind: str) -> bytes:
    return hashlib.new(kind, content, usedforsecurity=False).digest()


def _stamp_of(root: Path, entry: _Entry) -> tuple[int, ...]:
    """What git writes down of a file; nothing where there is none. The mode is the index's own business."""
    try:
        status = os.lstat(os.fsencode(root) + b"/" + entry.path)
    except OSError:
        return ()
    seconds = (*divmod(status.st_ctime_ns, 10**9), *divmod(status.st_mtime_ns, 10**9))
    words = (*seconds, status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_size)
    return tuple(word & _LOW for word in words)


def _restamped(content: bytes, root: Path, *, entries: list[_Entry]) -> bytes:
    kind = _kind(content) or "sha1"
    new = bytearray(content[: -_ID_BYTES[kind]])
    for entry in entries:
        old, now = _STAMP.unpack_from(content, entry.at), _stamp_of(root, entry)
        if now and all(now[place] == old[place] for place in _UNCHANGED):
            _STAMP.pack_into(new, entry.at, *now[:_MODE], old[_MODE], *now[_MODE + 1 :])
    return bytes(new) + _digest(new, kind=kind)


def _replace(index: Path, content: bytes) -> None:
    """With its old time: a file that is not older than its index is read by git, whatever its stamp is."""
    status = index.lstat()
    with suppress(OSError):
        descriptor = os.open(index, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _is_file(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False
