"""`xnagent report`: a session as one self-contained HTML page."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from xnagent.cli.console import Console
from xnagent.cli.hosting import host_of
from xnagent.cli.inspect import read
from xnagent.cli.skim import uncollected
from xnagent.core.ids import Ticket
from xnagent.core.text import Json, clean
from xnagent.errors import StoreWriteError, UsageError
from xnagent.inspect.page.whole import page, tickets_of
from xnagent.inspect.reading import Reading
from xnagent.store.place import Place

STDOUT: Final = "-"


def execute(arguments: Namespace, console: Console) -> int:
    """Write the page, whole or not at all."""
    is_piped = arguments.out == STDOUT
    if is_piped and console.output != "text":
        raise UsageError("USAGE: -o - puts the page on stdout, which can't carry a record too; name a file")
    target = Path(arguments.out).expanduser()
    if not is_piped:
        check_target(target)
    place = host_of(arguments).place(arguments.session)
    with uncollected():
        reading = read(place)
        pieces = page(reading, texts=_patches(place, reading), mask=console.mask)
        content = (clean(piece).encode() for piece in pieces)
        if is_piped:
            console.raw(b"".join(content))
            return 0
        size = write_whole(target, content)
    if console.output != "text":
        record: dict[str, Json] = {
            "type": "report",
            "session": reading.session,
            "file": str(target.absolute()),
            "bytes": size,
        }
        console.record(record)
    console.say(f"report of {reading.session}: {target} ({size:,} bytes)")
    return 0


def _patches(place: Place, reading: Reading) -> dict[str, str]:
    found = {ticket: place.artifact(Ticket(ticket)) for ticket in tickets_of(reading)}
    return {ticket: data.decode("utf-8", "replace") for ticket, data in found.items() if data is not None}


def check_target(target: Path) -> None:
    """Raise UsageError for a place where no file can be made, or where something else than a file would be lost."""
    if target.is_symlink() or target.exists():
        if not target.is_file():
            raise UsageError(f"REPORT_UNWRITABLE: {target} is there and is no regular file; name another one")
    elif not target.parent.is_dir():
        raise UsageError(f"REPORT_UNWRITABLE: {target.parent} is no folder; make it first")


def write_whole(target: Path, content: Iterable[bytes]) -> int:
    """Put the content there at once, in place of an older file; how many bytes. A link leads to what is replaced."""
    final = target.resolve()
    beside = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            size = sum(map(file.write, content))
        beside.replace(final)
    except OSError as error:
        raise StoreWriteError(
            f"REPORT_WRITE_FAILED: {target}: {error.strerror}; what was there is as it was"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return size
