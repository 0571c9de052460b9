"""What earlier sessions used, read from the projections of their files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from xnagent.core.forecast import AgentUse
from xnagent.core.ids import AgentId
from xnagent.errors import StoreError, UsageError
from xnagent.store.reading import reading

READ_SESSIONS: Final = 20
"""Of the newest ones; older ones say less of the next."""

_USES: Final = """
SELECT r.agent, count(*), sum(r.input_tokens), sum(r.cached_tokens), sum(r.output_tokens), sum(r.cost_usd),
  count(r.cost_usd), max(r.input_tokens),
  (SELECT f.input_tokens FROM requests f WHERE f.agent = r.agent AND f.reply_seq IS NOT NULL ORDER BY f.request LIMIT 1)
FROM requests r WHERE r.reply_seq IS NOT NULL GROUP BY r.agent ORDER BY r.agent
"""


def uses_of(path: Path) -> Mapping[AgentId, AgentUse] | None:
    """What each agent of a settled session used; None: it is not settled. Raises StoreError."""
    with reading(path) as connection:
        status = connection.execute("SELECT status FROM session").fetchone()
        if status is None or status[0] != "settled":
            return None
        return {AgentId(row[0]): _use(row) for row in connection.execute(_USES)}


def _use(row: Sequence[Any]) -> AgentUse:
    _, steps, size, cached, output, cost, priced, peak, first = row
    return AgentUse(
        steps=steps,
        first_tokens=first or 0,
        peak_tokens=peak or 0,
        input_tokens=size or 0,
        cached_tokens=cached or 0,
        output_tokens=output or 0,
        cost_usd=cost if priced == steps else None,
    )


def earlier_uses(folder: Path) -> tuple[Mapping[AgentId, AgentUse], ...]:
    """The same for the newest settled sessions in the folder; what cannot be read tells nothing."""
    found = []
    for path in _newest(folder):
        try:
            uses = uses_of(path)
        except (StoreError, UsageError):
            continue
        if uses:
            found.append(uses)
    return tuple(found)


def _newest(folder: Path) -> list[Path]:
    dated = sorted(_dated(folder), reverse=True)
    return [Path(path) for _, path in dated[:READ_SESSIONS]]


def _dated(folder: Path) -> Iterator[tuple[float, str]]:
    try:
        with os.scandir(folder) as entries:
            yield from ((entry.stat().st_mtime, entry.path) for entry in entries if entry.name.endswith(".db"))
    except OSError:
        return


@dataclass(slots=True, kw_only=True)
class Past:
    """The earlier sessions as a process found them when it first asked, by home."""

    known: dict[Path, tuple[Mapping[AgentId, AgentUse], ...]] = field(default_factory=dict)

    def of(self, folder: Path) -> tuple[Mapping[AgentId, AgentUse], ...]:
        """What sessions in the folder used."""
        if folder not in self.known:
            self.known[folder] = earlier_uses(folder)
        return self.known[folder]
