"""`xnagent report`: where the page goes, what is refused, and sessions that run or were killed."""

import os
import time
from pathlib import Path

from tests.cli.harness import SECONDS, Shell, finishing, hanging, model
from xnagent.testing.server import ScriptedServer


def session_in(shell: Shell) -> str:
    (path,) = (shell.home / "sessions").glob("*.db")
    return path.stem


def test_the_page_is_written_whole_where_a_file_may_be(shell: Shell):
    shell.repository.joinpath("folder").mkdir()
    os.mkfifo(shell.repository / "pipe")
    old, link = shell.repository / "old.html", shell.repository / "link.html"
    old.write_text("before")
    link.symlink_to("old.html")
    with ScriptedServer(finishing(summary="Here & <there>")) as server:
        assert shell.run("run", "say it", *model(server.base_url)).code == 0
    session = session_in(shell)
    new, piped, refused, fifo, gone, both, _, record, unknown, missing = shell.many(
        ["report", session, "-o", "new.html"],
        ["report", session, "-o", "-"],
        ["report", session, "-o", "folder"],
        ["report", session, "-o", "pipe"],
        ["report", session, "-o", "nowhere/new.html"],
        ["report", session, "-o", "-", "--output", "json"],
        ["report", session, "-o", "link.html"],
        ["report", session, "-o", "new.html", "--output", "json"],
        ["report", "s-unknown", "-o", "other.html"],
        ["report", session],
    )
    page = (shell.repository / "new.html").read_text()
    assert (new.code, new.out) == (0, "")
    assert "new.html" in new.err
    assert page.startswith("<!doctype html>")
    assert "Here &amp; &lt;there&gt;" in page
    assert piped.out == page
    assert [done.code for done in (refused, fifo, gone, both, unknown, missing)] == [2] * 6
    assert all("REPORT_UNWRITABLE" in done.err for done in (refused, fifo, gone))
    assert link.is_symlink()
    assert old.read_text() == page
    assert record.record["bytes"] == len(page.encode())
    assert Path(record.record["file"]).read_text() == page
    assert not (shell.repository / "other.html").exists()
    assert not list(shell.repository.glob(".*.html.*"))


def test_B048_a_session_that_runs_has_a_page_and_so_has_one_that_was_killed(shell: Shell):
    secret = {"SOME_API_KEY": "sk-0123456789-do-not-tell"}
    told = f"use {secret['SOME_API_KEY']} for it"
    with ScriptedServer(hanging()) as server, shell.started("run", told, *model(server.base_url)) as process:
        end = time.monotonic() + SECONDS
        while not server.exchanges and time.monotonic() < end:
            time.sleep(0.02)
        session = session_in(shell)
        (live,) = shell.with_variables(**secret).many(["report", session, "-o", "live.html"])
        process.kill()
        process.wait(timeout=SECONDS)
    (dead,) = shell.with_variables(**secret).many(["report", session, "-o", "dead.html"])
    assert (live.code, dead.code) == (0, 0)
    pages = [(shell.repository / name).read_text() for name in ("live.html", "dead.html")]
    assert "● running" in pages[0]
    assert "‖ interrupted" in pages[1]
    for page in pages:
        assert secret["SOME_API_KEY"] not in page
        assert "[secret:SOME_API_KEY]" in page
