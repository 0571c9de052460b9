"""One operation as statements of PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, LiteralString, TypeAlias

from xnagent.core.events import Stored
from xnagent.store.artifacts import chunked
from xnagent.store.codec import pack
from xnagent.store.place import Append, Put, Work
from xnagent.store.projections import REACHED, projected, projected_values

Values: TypeAlias = Mapping[str, object]

EVENT: Final = """
INSERT INTO events(session, seq, at, epoch, type, agent, enc, payload)
VALUES(%(session)s, %(seq)s, %(at)s, %(epoch)s, %(type)s, %(agent)s, %(enc)s, %(payload)s)
"""
ARTIFACT: Final = """
INSERT INTO artifacts(session, sha, size, enc) VALUES(%(session)s, %(sha)s, %(size)s, %(enc)s) ON CONFLICT DO NOTHING
"""
CHUNK: Final = """
INSERT INTO artifact_chunks(session, sha, n, data) VALUES(%(session)s, %(sha)s, %(n)s, %(data)s) ON CONFLICT DO NOTHING
"""
NUL: Final = "\0"
STAND_IN: Final = "\ufffd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose operations they are."""

    session: str
    epoch: int

    def statements(self, work: Work) -> Iterator[tuple[LiteralString, Values]]:
        """What writes the operation; content that is there already stays as it is."""
        match work:
            case Append():
                for stored, content in work.events:
                    yield from self._of_event(stored, content)
            case Put():
                yield from self._of_content(work)

    def _of_event(self, stored: Stored, content: bytes) -> Iterator[tuple[LiteralString, Values]]:
        encoding, payload = pack(content)
        values = self._sayable(
            {
                "seq": stored.seq,
                "at": stored.at,
                "epoch": self.epoch,
                "type": stored.event.type,
                "agent": getattr(stored.event, "agent", None),
                "enc": encoding,
                "payload": payload,
            }
        )
        yield EVENT, values
        changed = self._sayable(projected_values(stored))
        for template in (*projected(stored.event), REACHED):
            yield _in_a_database(template), changed

    def _of_content(self, work: Put) -> Iterator[tuple[LiteralString, Values]]:
        encoding, packed = pack(work.data)
        yield ARTIFACT, {"session": self.session, "sha": work.sha, "size": len(work.data), "enc": encoding}
        for number, chunk in chunked(packed):
            yield CHUNK, {"session": self.session, "sha": work.sha, "n": number, "data": chunk}

    def _sayable(self, values: Values) -> Values:
        """The values with the session; PostgreSQL's text cannot hold a NUL, and only projections are text."""
        return {**{name: _without_nul(value) for name, value in values.items()}, "session": self.session}


def _without_nul(value: object) -> object:
    return value.replace(NUL, STAND_IN) if isinstance(value, str) else value


@cache
def _in_a_database(template: str) -> LiteralString:
    text = template.format(where="WHERE id = :session", column="session, ", value=":session, ")
    return re.sub(r":(\w+)", r"%(\1)s", text)
