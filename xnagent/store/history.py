"""What earlier sessions used, read from the projections of their files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from xnagent.core.forecast import AgentUse
from xnagent.core.ids import AgentId, owner_of
from xnagent.core.values import dataclass
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
        return _by_owner({AgentId(row[0]): _use(row) for row in connection.execute(_USES)})


def _by_owner(uses: Mapping[AgentId, AgentUse]) -> Mapping[AgentId, AgentUse]:
    """What was asked for an agent's summaries is a part of what the agent used, but no step of it."""
    whole = {agent: use for agent, use in uses.items() if owner_of(agent) == agent}
    for agent, use in uses.items():
        owner = whole.get(owner_of(agent))
        if owner is not None and agent not in whole:
            unknown = owner.cost_usd is None or use.cost_usd is None
            whole[owner_of(agent)] = replace(
                owner,
                input_tokens=owner.input_tokens + use.input_tokens,
                cached_tokens=owner.cached_tokens + use.cached_tokens,
                output_tokens=owner.output_tokens + use.output_tokens,
                cost_usd=None if unknown else (owner.cost_usd or 0.0) + (use.cost_usd or 0.0),
            )
    return whole


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
