"""What earlier sessions used is read from their files, quickly and without touching them."""

import os
from pathlib import Path

import pytest

from tests.e2e.bench import Bench, bash, finish, scripted, start, submit, task
from xnagent.core.ids import PLANNER, AgentId
from xnagent.store.history import READ_SESSIONS, Past, earlier_uses, uses_of
from xnagent.testing.server import ScriptedServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_projections_say_the_same_as_the_fold(tmp_path: Path):
    bench = Bench(tmp_path)
    prices = {"m": {"price": {"input_usd": 1.0, "output_usd": 4.0}}}
    script = scripted(start(task("fix")), finish("r1 settled"), workers={"fix": [bash("true"), submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server, models=prices)
    found = uses_of(bench.path)
    assert found.keys() == ended.state.uses.keys() == {PLANNER, AgentId("r1")}
    for agent, use in ended.state.uses.items():
        assert found[agent].cost_usd == pytest.approx(use.cost_usd)
        names = ("steps", "first_tokens", "peak_tokens", "input_tokens", "cached_tokens", "output_tokens")
        assert [getattr(found[agent], name) for name in names] == [getattr(use, name) for name in names]
    assert earlier_uses(bench.path.parent) == (found,)


def test_what_is_no_session_tells_nothing(tmp_path: Path):
    (tmp_path / "s-broken.db").write_bytes(b"not a database")
    (tmp_path / "note.txt").write_text("x")
    assert earlier_uses(tmp_path) == ()
    assert earlier_uses(tmp_path / "missing") == ()
    assert (tmp_path / "s-broken.db").read_bytes() == b"not a database"


def test_only_the_newest_files_are_opened(tmp_path: Path):
    """A thousand sessions cost no more than twenty: older ones are not even looked into."""
    opened = tmp_path / "sessions"
    opened.mkdir()
    for number in range(READ_SESSIONS + 5):
        path = opened / f"s-{number}.db"
        path.write_bytes(b"")
        os.utime(path, (number, number))
    assert earlier_uses(opened) == ()


def test_a_process_looks_once(tmp_path: Path):
    past = Past()
    assert past.of(tmp_path) == ()
    assert past.known == {tmp_path: ()}
