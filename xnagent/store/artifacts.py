"""Content by its hash, as rows beside the log."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from xnagent.core.ids import TICKET, Ticket
from xnagent.errors import StoreDamagedError, StoreWriteError
from xnagent.store.codec import pack, unpack

CHUNK_BYTES: Final = 1 << 20
PREFIX_DIGITS: Final = 16


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def ticket_of(sha: str) -> Ticket:
    """The pointer that stands in a spine for the content with this hash."""
    return Ticket(f"artifact:{sha[:PREFIX_DIGITS]}")


def check_same(known: str, sha: str) -> None:
    """Raise StoreWriteError if one ticket would stand for two contents."""
    if known != sha:
        raise StoreWriteError(
            f"STORE_TICKET_TAKEN: {ticket_of(sha)} already stands for other content ({known}), so {sha} was not "
            f"stored. Change the content (one byte is enough) and store it again."
        )


def insert_artifact(connection: sqlite3.Connection, *, sha: str, data: bytes) -> None:
    """Store the content, unless it is there; the caller holds the transaction."""
    encoding, packed = pack(data)
    row = (sha, len(data), encoding)
    if connection.execute("INSERT OR IGNORE INTO artifacts(sha, size, enc) VALUES(?, ?, ?)", row).rowcount == 0:
        return
    connection.executemany(
        "INSERT INTO artifact_chunks(sha, n, data) VALUES(?, ?, ?)",
        [(sha, number, chunk) for number, chunk in chunked(packed)],
    )


def chunked(packed: bytes) -> Iterator[tuple[int, bytes]]:
    """The pieces in which content is stored, numbered."""
    for number, start in enumerate(range(0, len(packed), CHUNK_BYTES)):
        yield number, packed[start : start + CHUNK_BYTES]


def known_hashes(connection: sqlite3.Connection) -> dict[Ticket, str]:
    """The whole hash by ticket, of all that is stored."""
    return {ticket_of(sha): sha for (sha,) in connection.execute("SELECT sha FROM artifacts").fetchall()}


def load_artifact(connection: sqlite3.Connection, ticket: Ticket) -> bytes | None:
    """The content; None if there is none. Raises StoreDamagedError if it is not what its hash says."""
    if TICKET.fullmatch(ticket) is None:
        return None
    prefix = ticket.removeprefix("artifact:")
    found = connection.execute(
        "SELECT sha, enc FROM artifacts WHERE sha >= ? AND sha < ?", (prefix, prefix + "g")
    ).fetchone()
    if found is None:
        return None
    sha, encoding = found
    chunks = connection.execute("SELECT data FROM artifact_chunks WHERE sha = ? ORDER BY n", (sha,)).fetchall()
    return assembled(ticket, sha, encoding=encoding, chunks=[chunk for (chunk,) in chunks])


def assembled(ticket: Ticket, sha: str, *, encoding: str, chunks: Sequence[bytes]) -> bytes:
    """The content from its chunks, checked against its hash."""
    data = unpack(encoding, b"".join(chunks), what=ticket)
    if digest(data) != sha:
        raise StoreDamagedError(f"STORE_ARTIFACT_DAMAGED: {ticket} is not what its hash says; make it again.")
    return data
