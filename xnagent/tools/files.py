"""Text files as they are: byte order mark, line ends and mode kept; read without blocking, replaced in one step."""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.tools.outcome import RefusedError
from xnagent.tools.paths import FILE_FLAGS, Place, folder_of, give_to_owner, kind_of, status_of

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
MAX_REMEMBERED_BYTES: Final = 128 * 1024
MAX_REMEMBERED_FILES: Final = 500
ENCODINGS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A file's text, which encodes back to the same bytes."""

    content: str
    """Line ends as in the file; no byte order mark."""
    bom: bytes = b""
    encoding: str = "utf-8"

    def encoded(self, content: str) -> bytes:
        """Another content, as it would stand in this file."""
        return self.bom + content.encode(self.encoding)


def decode(data: bytes, name: str) -> Text:
    """The text of a file; raises RefusedError `NOT_TEXT` for binary content and other encodings."""
    bom, encoding = next(((mark, code) for mark, code in ENCODINGS if data.startswith(mark)), (b"", "utf-8"))
    try:
        content = data[len(bom) :].decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise _binary(data, name) from None
        raise RefusedError(
            "NOT_TEXT",
            f"{name} is not UTF-8 (byte {data[error.start + len(bom)]:#04x} at {error.start + len(bom)}). Convert it in"
            f" bash, such as `iconv -f latin1 -t utf-8`, or look at it with `head` there.",
        ) from None
    if "\0" in content:
        raise _binary(data, name)
    return Text(content=content, bom=bom, encoding=encoding)


def _binary(data: bytes, name: str) -> RefusedError:
    return RefusedError("NOT_TEXT", f"{name} is a binary file ({len(data):,} bytes). Use bash with `file` or `xxd`.")


def read_file(place: Place) -> bytes | None:
    """A regular file's bytes; None if nothing is there. Never blocks on a FIFO or a device.

    Raises RefusedError: `IS_DIRECTORY`, `NOT_TEXT` for what is not a regular file, `TOO_LARGE`.
    """
    status = status_of(place)
    if status is None:
        return None
    _check_regular(place, status)
    with folder_of(place) as folder:
        descriptor = os.open(place.parts[-1], FILE_FLAGS, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        _check_regular(place, os.fstat(descriptor))
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(place, len(data))
    return data


def _check_regular(place: Place, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise RefusedError("IS_DIRECTORY", f"{place.name} is a directory.")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("NOT_TEXT", f"{place.name} is a {kind_of(status)} ({status.st_size} bytes), not a file.")
    if status.st_size > MAX_FILE_BYTES:
        raise _too_large(place, status.st_size)


def _too_large(place: Place, size: int) -> RefusedError:
    return RefusedError(
        "TOO_LARGE",
        f"{place.name} has {size:,} bytes (the limit is {MAX_FILE_BYTES:,}). Use grep, or bash with `sed -n 1,200p`.",
    )


def replace_file(place: Place, data: bytes, *, expected: bytes | None, scratch: Path) -> None:
    """Put the content in the file's place in one step, if the file is still the expected one.

    `expected` is the content that the change was made from; None: no file. Mode and owner are kept, folders are made.
    The new content is built in `scratch`, so that a crash leaves nothing in the tree.
    """
    with folder_of(place, is_made=True) as folder:
        before = status_of(place)
        temporary = _temporary(data, before or os.fstat(folder), folder=scratch, is_new=before is None)
        try:
            if read_file(place) != expected:
                raise RefusedError("STALE", f"{place.name} changed at this very moment; read it again.")
            _move(temporary, place.parts[-1], folder=folder)
        finally:
            temporary.unlink(missing_ok=True)


def _temporary(data: bytes, like: os.stat_result, *, folder: Path, is_new: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"new-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        give_to_owner(descriptor, like)
        if not is_new:
            os.fchmod(descriptor, like.st_mode & 0o777)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    return path


def _move(temporary: Path, name: str, *, folder: int) -> None:
    """Rename into the folder; where `scratch` is on another file system, by way of a copy beside the file."""
    try:
        os.replace(temporary, name, dst_dir_fd=folder)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    status = temporary.stat()
    near = Path(f"/proc/self/fd/{folder}")
    copy = _temporary(temporary.read_bytes(), status, folder=near, is_new=False)
    os.replace(copy.name, name, src_dir_fd=folder, dst_dir_fd=folder)
