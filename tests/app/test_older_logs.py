"""Logs that were written before rebases had receipts are read, resumed and replayed as they were."""

import json
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.bench import Bench, call, finish
from xnagent.app.replay import replay_session
from xnagent.cli.inspect import read as read_session
from xnagent.core.rent import Rent
from xnagent.core.spine_events import SpineRebased
from xnagent.inspect.parts import rebases
from xnagent.store.codec import unpack
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

NEW_FIELDS = {
    "spine_rebased": ["edition", "dropped", "ticketed", "tickets", "first_step", "last_step", "rent_usd", "saved_usd"],
    "request_started": ["rent_usd", "rebase_usd"],
    "rebase_refused": ["checkpoint_tokens"],
    "session_resumed": ["idle_seconds"],
}
PRICED = {"m": {"price": {"input_usd": 3.0, "cached_usd": 0.3, "output_usd": 15.0}}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def aged(bench: Bench) -> int:
    """Take from the log what an older version did not write; returns how many events that changed."""
    changed = 0
    with closing(sqlite3.connect(bench.path)) as connection:
        rows = connection.execute("SELECT seq, type, enc, payload FROM events").fetchall()
        for seq, kind, encoding, payload in rows:
            fields = json.loads(unpack(encoding, payload, what=""))
            kept = {name: value for name, value in fields.items() if name not in NEW_FIELDS.get(kind, ())}
            changed += kept != fields
            text = json.dumps(kept, ensure_ascii=False).encode()
            connection.execute("UPDATE events SET enc = 'raw', payload = ? WHERE seq = ?", (text, seq))
        connection.commit()
    return changed


def brain(view: RequestView) -> ReplySpec:
    if view.number > 24:
        return finish().reply
    return ReplySpec(calls=(call("record_fact", text=f"Fact {view.number}"),), text="Thinking. " * 160)


async def test_an_older_log_is_read_resumed_and_replayed(tmp_path):
    bench = Bench(tmp_path)
    small = {"planner__model__window": 12_000, "planner__model__max_output_tokens": 500, "models": PRICED}
    with ScriptedServer(brain=brain) as server:
        await bench.run(server, limits__steps=16, **small)
        assert aged(bench) > 16
        assert replay_session(bench.host, bench.session).problems == []
        reading = read_session(bench.host.place(bench.session))
        (old, *_), rows = reading.state.rebases, rebases(reading)
        assert (old.edition, old.dropped, old.saved_usd) == (1, (), None)
        assert rows[0]["items_dropped"] > 0
        assert rows[0]["detail"].startswith("log ")
        assert reading.state.spines["planner"].rent == Rent()
        ended = await bench.resume(server, limits__steps=100, **small)
        server.check()
    assert ended.code == 0
    assert {event.edition for event in ended.of(SpineRebased)} == {1, 2}
