"""Letters to a session as files in a folder beside its own: `Mailbox` for sessions in SQLite.

A letter appears whole, by rename, and is synced before `post` returns. Its name begins with a number that grows, so the
order of the names is the order of the letters. The folder is there only while there are letters, and is the user's own.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, Protocol

import anyio
import anyio.to_thread

from xnagent.core.values import dataclass
from xnagent.errors import StoreWriteError, UsageError

POLL_SECONDS: Final = 0.25
SUFFIX: Final = ".letter"
ASIDE: Final = ".unreadable"
LONGEST_BYTES: Final = 262_144
NONCE_BYTES: Final = 4
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What somebody else has to say to a session: more from the user, or that it should stop."""

    letter: str = ""
    """Its name, given by the mailbox: later letters have greater ones."""
    kind: Literal["message", "cancel", "rebase"]
    text: str
    """What the user says; the reason, for `cancel`; the agent, for `rebase`: empty, all that go on."""
    epoch: int | None = None
    """For the process with this epoch alone: a later one must not take it. None: for whoever runs the session."""


class Mailbox(Protocol):
    """Letters to one session. Any process may post; the one that runs the session takes them.

    A message that was posted is kept, whatever dies, until it is discarded: after it is in the log.
    """

    async def post(self, letter: Letter) -> str:
        """Store it and return its name; it is durable then. Raises StoreError."""

    async def letters(self) -> tuple[Letter, ...]:
        """What is there now, oldest first; reading takes nothing away."""

    async def arrival(self) -> None:
        """Return at most half a second after there is a letter."""

    async def discard(self, letter: str) -> None:
        """Remove it; nothing if it is gone already."""


@dataclass(frozen=True, slots=True)
class FolderMailbox:
    """`folder` need not be there."""

    folder: Path

    async def post(self, letter: Letter) -> str:
        """Store it and return its name. Raises UsageError if it is too long, StoreError if it cannot be stored."""
        return await anyio.to_thread.run_sync(_post, self.folder, letter)

    async def letters(self) -> tuple[Letter, ...]:
        """What is there now, oldest first; what is no letter is put aside."""
        names = _names(self.folder)
        if not names:
            return ()
        found = await anyio.to_thread.run_sync(_read_all, self.folder, names)
        return tuple(letter for letter in found if letter is not None)

    async def arrival(self) -> None:
        """Look a few times a second: a folder that is not there costs one system call."""
        is_empty = True
        while is_empty:
            await anyio.sleep(POLL_SECONDS)
            is_empty = not _names(self.folder)

    async def discard(self, letter: str) -> None:
        """Remove it, and the folder with the last one."""
        await anyio.to_thread.run_sync(_discard, self.folder, letter)


def mailbox_folder(path: Path) -> Path:
    """The folder of letters of a session's file."""
    return path.with_suffix(".letters")


def _names(folder: Path) -> list[str]:
    """Letters by name, in order; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name.removesuffix(SUFFIX) for entry in entries if entry.name.endswith(SUFFIX))
    except OSError:
        return []


def _post(folder: Path, letter: Letter) -> str:
    fields = {"kind": letter.kind, "text": letter.text, "epoch": letter.epoch}
    content = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    if len(content) > LONGEST_BYTES:
        raise UsageError(
            f"MESSAGE_TOO_LONG: {len(content):,} bytes, {LONGEST_BYTES:,} are allowed: it stands in the Planner's "
            f"history whole; put the rest into a file and say where it is"
        )
    try:
        return _store(folder, content)
    except OSError as error:
        raise StoreWriteError(
            f"MAILBOX_WRITE_FAILED: {folder}: {error.strerror}. Nothing was delivered; free space or make the folder "
            f"writable, then say it again."
        ) from error


def _store(folder: Path, content: bytes) -> str:
    """Its reader may remove the empty folder at any time, so begin again then."""
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):
            return _try_to_store(folder, content)
    raise FileNotFoundError(0, "the folder is removed again and again", str(folder))


def _try_to_store(folder: Path, content: bytes) -> str:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    last = next(iter(_names(folder)[-1:]), "0")
    number = max(time.time_ns(), int(last.partition("-")[0]) + 1)
    name = f"{number:020d}-{secrets.token_hex(NONCE_BYTES)}"
    draft = folder / f"{name}.draft"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(folder / (name + SUFFIX))
    # A folder that is gone was removed by its reader, who has the letter then.
    with suppress(FileNotFoundError):
        _sync(folder)
    _sync(folder.parent)
    return name


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_all(folder: Path, names: list[str]) -> list[Letter | None]:
    return [_read(folder, name) for name in names]


def _read(folder: Path, name: str) -> Letter | None:
    """The letter; None if somebody removed it meanwhile, or if it is none: then it is put aside."""
    place = folder / (name + SUFFIX)
    try:
        return _parse(name, _content(place))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        with suppress(OSError):
            place.rename(place.with_name(place.name + ASIDE))
        return None


def _content(place: Path) -> bytes:
    """Raises ValueError for what no xnagent of this user wrote."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_size > LONGEST_BYTES:
            raise ValueError(place.name)
        return file.read(LONGEST_BYTES)


def _parse(name: str, content: bytes) -> Letter:
    fields = json.loads(content)
    kind, text, epoch = fields["kind"], fields["text"], fields["epoch"]
    if kind not in {"message", "cancel", "rebase"} or not isinstance(text, str) or not isinstance(epoch, int | None):
        raise ValueError(name)
    return Letter(letter=name, kind=kind, text=text, epoch=epoch)


def _discard(folder: Path, letter: str) -> None:
    with suppress(OSError):
        (folder / (letter + SUFFIX)).unlink(missing_ok=True)
        folder.rmdir()
