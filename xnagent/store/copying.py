"""Making a session of the first events of another one: its log, and the artifacts that this log leads to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from xnagent.core.events import Stored
from xnagent.core.ids import SessionId, Ticket
from xnagent.store.artifacts import digest
from xnagent.store.codec import encode
from xnagent.store.folding import fold_stored
from xnagent.store.place import Append, Holding, Place, Put

NAMED: Final = re.compile(rb"artifact:[0-9a-f]{16}")
BATCH_BYTES: Final = 16 << 20
"""So much content is committed at once, and is in memory."""


def copy_session(origin: Place, copy: Place, *, session: SessionId, events: Sequence[Stored], now: str) -> int:
    """Make the session `session` at `copy`, where none must be, of these events; returns how many artifacts it has.

    Contents come from `origin`, which is only read. The events are committed last and in one transaction, so that
    whatever ends this earlier leaves a session that never began; where it fails, none. Raises StoreError.
    """
    copy.create(session, now=now)
    is_whole = False
    try:
        holding = copy.take_over(now=now).holding
        try:
            count = _write(holding, events, origin=origin)
            is_whole = True
        finally:
            holding.close(is_sound=is_whole)
    finally:
        if not is_whole:
            copy.forget()
    return count


def _write(holding: Holding, events: Sequence[Stored], *, origin: Place) -> int:
    encoded = [(stored, encode(stored.event)[1]) for stored in events]
    state = fold_stored(events)
    count = 0
    for batch in _batches(_contents(origin, (content for _, content in encoded))):
        _commit(holding, batch)
        count += len(batch)
    _commit(holding, [Append(events=tuple(encoded), state=state, last_seq=events[-1].seq, is_durable=True)])
    return count


def _commit(holding: Holding, batch: Sequence[Append | Put]) -> None:
    _, fault = holding.write(batch)
    if fault is not None:
        raise fault


def _batches(contents: Iterable[bytes]) -> Iterator[list[Put]]:
    batch: list[Put] = []
    for data in contents:
        batch.append(Put(sha=digest(data), data=data))
        if sum(len(put.data) for put in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _contents(origin: Place, texts: Iterable[bytes]) -> Iterator[bytes]:
    """What tickets in the texts stand for, and what tickets in that stand for, each once."""
    wanted = [name for text in texts for name in NAMED.findall(text)]
    seen: set[bytes] = set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        data = origin.artifact(Ticket(name.decode()))
        if data is not None:
            wanted += NAMED.findall(data)
            yield data
