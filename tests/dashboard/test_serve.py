"""`xnagent serve` through its real server: who is let in, what arrives, what it can do, and how it ends."""

import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.cli.harness import SECONDS, Shell, hanging, make_shell, model
from tests.dashboard.serving import Got, Served, served, written
from xnagent.cli.inspect import read
from xnagent.dashboard.frames import cursor_of
from xnagent.inspect.report import document
from xnagent.store.files import FileSessions
from xnagent.testing.server import ScriptedServer

PAGES = ("/", "/events", "/sessions/s-shut", "/sessions/s-shut/events")
ACTIONS = ("/sessions/s-shut/tell", "/sessions/s-shut/cancel")

WAITING = ("run", "wait", "-s", "sandbox.mode=off")

pytestmark = pytest.mark.timeout(120)


def sessions_of(shell: Shell) -> FileSessions:
    return FileSessions(shell.home)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """One home for the sessions of several tests."""
    return make_shell(tmp_path_factory.mktemp("house"))


@pytest.fixture(scope="module")
def server(house: Shell) -> Iterator[Served]:
    with served(house) as server:
        yield server


def until(condition, seconds: float = 2 * SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_without_the_token_reads_or_does_anything(house: Shell, server: Served):
    with written(sessions_of(house), "s-shut") as live:
        live.go_on(20)
        with httpx.Client(base_url=server.base, trust_env=False) as stranger:
            for path in PAGES:
                answers = [
                    stranger.get(path),
                    stranger.get(path, params={"token": "guess"}),
                    server.client.get(path, headers={"host": "evil.example"}),
                    server.client.get(path, headers={"sec-fetch-site": "cross-site"}),
                ]
                assert [answer.status_code for answer in answers] == [401, 401, 421, 403], path
                assert not any("Port everything" in answer.text for answer in answers)
            for path in ACTIONS:
                assert stranger.post(path, json={"text": "x"}).status_code == 403
            welcome = stranger.get(server.url)
            cookie = welcome.headers["set-cookie"].lower()
            assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.split("; "))
            assert 'content="0; url=/"' in welcome.text
            assert stranger.get("/").status_code == 200
            own = {"origin": server.base}
            for path in ACTIONS:
                refused = [
                    stranger.post(path, json={"text": "x"}),
                    stranger.post(path, json={"text": "x"}, headers={"origin": "http://127.0.0.1:1"}),
                    stranger.post(path, content="text=x", headers=own),
                    stranger.post(path, content=b"x" * 300_000, headers={**own, "content-type": "application/json"}),
                    stranger.post(path, content=b"[", headers={**own, "content-type": "application/json"}),
                    stranger.post(path, content=b"[]", headers={**own, "content-type": "application/json"}),
                    stranger.get(path),
                    stranger.options(path, headers={**own, "access-control-request-method": "POST"}),
                ]
                assert [one.status_code for one in refused] == [403, 403, 415, 413, 400, 400, 405, 405]
            page = stranger.get("/sessions/s-shut")
        assert "access-control-allow-origin" not in page.headers
        assert page.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert "'unsafe-inline'" not in page.headers["content-security-policy"]
        assert not list(house.home.glob("sessions/*.letters")), "nothing was posted"


def test_what_is_stored_arrives_once_in_order_and_a_viewer_that_comes_back_goes_on(house: Shell, server: Served):
    with written(sessions_of(house), "s-once", requests=60) as live:
        live.go_on(30)
        page = server.client.get("/sessions/s-once").text
        place = re.search(r'data-place="([^"]+)"', page)
        assert place is not None
        assert cursor_of(place[1]).seq == 30
        got = Got()
        with server.stream(f"/sessions/s-once/events?after={place[1]}") as events:
            for _ in range(3):
                last = live.go_on(5)
                got.until(events, lambda got, last=last: len(got.records) == last - 30)
            got.until(events, lambda got: got.standing["status"] == "running" and "overview" in got.parts)
        live.go_on(25)
        with server.stream(f"/sessions/s-once/events?after={place[1]}", last=got.last) as events:
            got.until(events, lambda got: len(got.records) == 40)
            last = live.go_on(2_000)
            got.until(events, lambda got: len(got.records) == last - 30)
            live.end()
            got.until(events, lambda got: not got.standing["is_live"] and "partial" in got.parts["overview"])
        told = document(read(live.log.place), ())
    assert got.records == json.loads(json.dumps(told["events"]))[30:]
    assert got.standing == {"status": "partial", "is_live": False}
    cost = f"${told['overview']['cost_usd']:.4f}"
    assert cost in got.parts["overview"]
    assert cost in got.parts["cost"]
    assert set(got.requests) >= {row["request"] for row in told["requests"][10:]}


def test_the_list_tells_who_runs_how_far_they_came_and_who_was_killed(house: Shell, server: Served):
    sessions = sessions_of(house)
    lines: dict[str, str] = {}
    with server.stream("/events") as events:

        def take(condition) -> None:
            while not condition():
                told = json.loads(next(events).data)
                lines.update(told["lines"])

        with written(sessions, "s-list", requests=200, steps=3) as live, written(sessions, "s-other") as other:
            live.go_on(40)
            take(lambda: "running" in lines.get("s-list", "") and "running" in lines.get("s-other", ""))
            live.go_on(160)
            tasks = [task.status for task in live.log.state.board.tasks.values()]
            done = f"{tasks.count('completed')}/{len(tasks)} tasks"
            take(lambda: done in lines["s-list"])
            assert "0/" not in done
            other.go_on(2_000)
            take(lambda: "partial" in lines["s-other"])
            live.end()
            take(lambda: "interrupted" in lines["s-list"])
        whole = server.client.get("/").text
    assert lines["s-list"] in whole
    assert lines["s-other"] in whole


def test_a_running_session_is_told_cancelled_and_outlives_a_killed_server(shell: Shell):
    with ScriptedServer(hanging()) as provider, shell.started(*WAITING, *model(provider.base_url)) as run:
        until(lambda: provider.bodies)
        (path,) = shell.home.glob("sessions/*.db")
        address = f"/sessions/{path.stem}"
        with served(shell) as server, server.stream(f"{address}/events") as events:
            Got().until(events, lambda got: got.standing.get("is_live"))
            before = len(list(sessions_of(shell).place(path.stem).events()))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(timeout=SECONDS)
        assert run.poll() is None
        assert len(list(sessions_of(shell).place(path.stem).events())) == before
        with served(shell) as server:
            told = server.post(f"{address}/tell", text="Use <tabs>.")
            assert told == {"status": "delivered", "message": "m1", "is_running": True}
            assert "MESSAGE_EMPTY" in server.post(f"{address}/tell", text=" ")["error"]
            cancelled = server.post(f"{address}/cancel", reason="enough")
            assert cancelled == {"status": "stopped", "outcome": "interrupted"}
            assert run.wait(timeout=SECONDS) == 130
            assert server.post(f"{address}/cancel")["status"] == "not_running"
            kept = server.post(f"{address}/tell", text="Then go on.")
            assert kept == {"status": "kept", "message": None, "is_running": False}
            assert "SESSION_NOT_FOUND" in server.post("/sessions/s-none/tell", text="x")["error"]
    told = document(read(sessions_of(shell).place(path.stem)), ())
    (said,) = [row for row in told["events"] if row["type"] == "user_message_added"]
    assert said["text"] == "Use <tabs>."


def test_a_signal_ends_it_at_once_although_pages_are_open(shell: Shell):
    with written(sessions_of(shell)) as live:
        live.go_on(10)
        with served(shell, "--read-only") as server:
            assert "textarea id" not in server.client.get("/sessions/s-live").text
            assert server.client.post("/sessions/s-live/tell", json={"text": "x"}).status_code == 404
            with server.stream("/events") as listing, server.stream("/sessions/s-live/events") as events:
                next(listing)
                next(events)
                server.process.send_signal(signal.SIGINT)
                assert server.process.wait(timeout=SECONDS) == 130
            assert b"Traceback" not in server.process.stderr.read()


def test_what_cannot_be_read_or_served_is_said(house: Shell, server: Served):
    broken = house.home / "sessions" / "s-broken.db"
    with written(sessions_of(house), "s-broken") as live:
        live.go_on(10)
    with closing(sqlite3.connect(broken)) as connection:
        connection.execute("UPDATE events SET payload = 'no json', enc = 'raw' WHERE seq = 5")
        connection.commit()
    port = server.base.rpartition(":")[2]
    answers = [server.client.get(f"/sessions/{name}").status_code for name in ("s-none", "..%2Fx", "s-broken")]
    assert answers == [404, 404, 200]
    assert "event 5 cannot be read" in server.client.get("/sessions/s-broken").text
    with server.stream("/sessions/s-broken/events") as events:
        problem = next(events)
    assert (problem.event, "event 5" in problem.data) == ("problem", True)
    assert "s-broken" in server.client.get("/").text
    taken, no_host, no_port, no_json = house.many(
        ["serve", "--port", port],
        ["serve", "--host", "no.such.host.invalid", "--port", "0"],
        ["serve", "--port", "70000"],
        ["serve", "--port", port, "--json"],
    )
    assert (taken.code, no_host.code, no_port.code) == (2, 2, 2)
    assert "SERVE_PORT" in taken.err
    assert "--port 0" in taken.err or "or 0 for any" in taken.err
    assert "SERVE_HOST" in no_host.err
    assert no_json.record["error"]["class"] == "UsageError"


def test_without_the_extra_it_says_what_to_install_and_nothing_else_needs_it(shell: Shell, tmp_path: Path):
    stub = tmp_path / "stub"
    stub.mkdir()
    for name in ("uvicorn", "starlette"):
        (stub / f"{name}.py").write_text("raise ImportError('not here')\n")
    bare = shell.with_variables(PYTHONPATH=f"{stub}{os.pathsep}{shell.environ['PYTHONPATH']}")
    refused, listed = bare.many(["serve", "--port", "0"], ["sessions"])
    assert (refused.code, listed.code) == (2, 0)
    assert "pip install 'xnagent[serve]'" in refused.err


def test_it_serves_sessions_in_postgresql(shell: Shell, database_server):
    postgres = pytest.importorskip("xnagent.store.postgres.places")
    url = database_server.database()
    with written(postgres.sessions_in(url)) as live, served(shell, "-s", f"store.url={url}") as server:
        last = live.go_on(20)
        got = Got()
        with server.stream("/sessions/s-live/events?after=0-0") as events:
            got.until(events, lambda got: len(got.records) == last)
            last = live.go_on(5)
            got.until(events, lambda got: len(got.records) == last and got.standing)
        assert got.standing["status"] == "running"
        with server.stream("/events") as listing:
            line = json.loads(next(listing).data)["lines"]["s-live"]
        assert "running" in line


def test_what_json_says_of_the_address_opens_it(shell: Shell):
    arguments = ("serve", "--port", "0", "--json", "--host", "0.0.0.0")
    with written(sessions_of(shell)) as live, shell.started(*arguments) as process:
        live.go_on(10)
        record = json.loads(process.stdout.readline())
        address = record["url"].replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(trust_env=False, follow_redirects=True) as client:
            client.get(address)
            answer = client.get(address.partition("?")[0])
        assert (answer.status_code, record["type"]) == (200, "serving")
        assert 'href="/sessions/s-live"' in answer.text
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SECONDS) == 143
        assert b"is not this machine alone" in process.stderr.read()
