"""How a session stood after one of its events: what the Planner could see, and what it stood on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from xnagent.core.events import Stored
from xnagent.core.fold import fold_all
from xnagent.core.forking import obstacle
from xnagent.core.ids import SessionId
from xnagent.core.record import final_record
from xnagent.core.spine import Spine, missing_calls
from xnagent.core.state import SessionState, work_of
from xnagent.core.text import Json
from xnagent.core.view import view
from xnagent.inspect.plain import count, line, money, share, table

TEXT_WIDTH: Final = 100
FIRST_TOLD: Final = frozenset({"status", "task", "value"})
"""Of an entry of the view, so that they are not what is cut off."""


def moment_record(session: SessionId, events: Sequence[Stored], *, following: Stored | None) -> dict[str, Json]:
    """The state after the last of the events; `following` is the one that comes next, if there is one."""
    state, last = fold_all(stored.event for stored in events), events[-1]
    why = obstacle(state, last.event, following=None if following is None else following.event)
    record = final_record(state)
    return {
        "type": "state",
        "session": session,
        "at": last.seq,
        "time": last.at,
        "event": last.event.type,
        "next": None if following is None else following.event.type,
        "can_fork": not why,
        "obstacle": why or None,
        "view": cast("Json", view(state.board)),
        "planner": "finished" if state.finish is not None else state.planner,
        "outcome": None if state.settled is None else state.settled.outcome,
        "agents": [_agent(state, spine) for spine in state.spines.values()],
        "usage": record["usage"],
        "workspace": {
            "base": None if state.started is None else state.started.base,
            "head": state.board.session.get("integration_head"),
            "merged": [merge.run for merge in state.merges],
        },
    }


def _agent(state: SessionState, spine: Spine) -> dict[str, Json]:
    return {
        "agent": spine.agent,
        "steps": work_of(state, spine.agent).steps,
        "items": len(spine.items),
        "tokens": spine.tokens,
        "deltas": spine.deltas,
        "rebases": spine.generation,
        "open_calls": [call.name for call in missing_calls(spine)],
        "waits_for_request": spine.pending_request,
    }


def moment_text(session: SessionId, events: Sequence[Stored], *, following: Stored | None) -> str:
    """The same for people."""
    told = cast("dict[str, Any]", moment_record(session, events, following=following))
    usage, workspace = told["usage"], told["workspace"]
    rows = [
        ("session", f"{session} after event {count(told['at'])} ({told['event']}), {told['time']}"),
        ("next", told["next"] or "nothing: this is the last event"),
        ("planner", told["outcome"] or told["planner"]),
        ("used", f"{_used(usage)}, {money(usage['cost_usd'])}"),
        ("workspace", f"{workspace['head'] or '?'} ({_merged(workspace['merged'])})"),
        ("fork here", "yes" if told["can_fork"] else f"no: {told['obstacle']}"),
    ]
    parts = ["\n".join(f"{name:<10}{line(text, 2 * TEXT_WIDTH)}" for name, text in rows)]
    parts += [_agents(told["agents"])] if told["agents"] else []
    return "\n\n".join([*parts, *_view(told["view"])])


def _used(usage: Mapping[str, Any]) -> str:
    cached = share(usage["cached_tokens"], usage["input_tokens"])
    return f"{count(usage['requests'])} requests, in {count(usage['input_tokens'])} ({cached} cached)"


def _merged(runs: Sequence[str]) -> str:
    return f"merged: {', '.join(runs)}" if runs else "nothing merged"


def _agents(rows: Sequence[Mapping[str, Any]]) -> str:
    titles = ("agent", "steps", "items", "tokens", "deltas", "rebases", "under way")
    numbers = ("steps", "items", "tokens", "deltas", "rebases")
    cells = [(row["agent"], *(count(row[name]) for name in numbers), _under_way(row)) for row in rows]
    return table(titles, cells)


def _under_way(row: Mapping[str, Any]) -> str:
    if row["open_calls"]:
        return ", ".join(row["open_calls"])
    return "" if row["waits_for_request"] is None else f"request {row['waits_for_request']}"


def _view(document: Mapping[str, Mapping[str, Json]]) -> list[str]:
    """What the Planner sees, a line for each entry."""
    parts = []
    for name, entries in document.items():
        if entries:
            rows = [(key, _entry(entry)) for key, entry in entries.items()]
            parts.append(f"{name} ({len(rows)})\n{table(('id', 'what'), rows)}")
    return parts


def _entry(entry: Json) -> str:
    if not isinstance(entry, dict):
        return line(str(entry), TEXT_WIDTH)
    ordered = sorted(entry.items(), key=lambda field: field[0] not in FIRST_TOLD)
    return line(", ".join(f"{name}: {value}" for name, value in ordered), TEXT_WIDTH)
