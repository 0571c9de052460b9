"""`xnagent inspect` as people and scripts call it: terminals of several widths, pipes, hostile sessions, questions."""

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import xnagent
from tests.cli.harness import SECONDS, XNAGENT, Done, Prompt, Shell, make_shell, model, working
from tests.inspect.long import EVIL, long_events
from tests.inspect.schema import SHAPES, problems
from tests.store.process import SystemClock
from xnagent.core.ids import SessionId
from xnagent.store.sessions import session_path
from xnagent.store.sqlite import SessionStore
from xnagent.testing.server import ScriptedServer

PARTS = ("spine", "deltas", "rebases", "requests", "runs", "tasks", "facts", "cost", "events")
STYLES = re.compile(r"\x1b\[[0-9;]*m")
LONG = SessionId("s-long")
SHOWN_PARTS = 12


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A real session, and beside it one that somebody made up to do harm."""

    shell: Shell
    session: str
    prompt: Prompt

    def many(self, *calls: Sequence[str]) -> list[Done]:
        return self.prompt.many(*calls)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    shell = make_shell(tmp_path_factory.mktemp("whole"))
    with shell.prompt() as prompt:
        with ScriptedServer(working()) as server:
            (done,) = prompt.many(["run", "set a to 2", *model(server.base_url)])
        assert done.code == 0, done.err
        asyncio.run(_stored(session_path(shell.home, LONG)))
        yield Whole(shell=shell, session=done.err.split("session ")[1].split()[0], prompt=prompt)


async def _stored(path: Path) -> None:
    store = await SessionStore.create(path, session=LONG, clock=SystemClock())
    for event in long_events(120):
        await store.append(event, durable=False)
    await store.aclose()


def on_terminal(shell: Shell, width: int, *arguments: str, **variables: str) -> str:
    """What a terminal of that width is sent."""
    ours, theirs = pty.openpty()
    with closing(os.fdopen(ours, "rb", buffering=0)) as screen:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        environ = {**shell.environ, "TERM": "xterm-256color", **variables}
        process = subprocess.Popen(
            [*XNAGENT, *arguments], env=environ, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE
        )
        os.close(theirs)
        parts = []
        with suppress(OSError):
            while part := screen.read(65_536):
                parts.append(part)
        _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, b"")
    return b"".join(parts).decode().replace("\r\n", "\n")


def columns(line: str) -> int:
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in line)


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_gets_tables_in_its_width_and_nothing_of_the_session_is_obeyed(whole: Whole, width: int):
    shown = on_terminal(whole.shell, width, "inspect", LONG, *(f"--{part}" for part in PARTS), "--limit", "200")
    text = STYLES.sub("", shown)
    assert "\x1b[1m" in shown
    assert not set(text) & {"\x1b", "\u202e", "\x07"}
    assert "\\x1b[31mred" in text
    assert max(map(columns, text.splitlines())) <= width
    assert "├── " in text
    assert ("no room for: " in text) == (width < 100)
    assert all(f"{part} (" in text or part == "cost" for part in PARTS)


def test_no_colour_where_none_is_wanted_and_plain_text_where_lines_are_all_it_can(whole: Whole):
    session = whole.session
    bare = on_terminal(whole.shell, 100, "inspect", session, NO_COLOR="1")
    dumb = on_terminal(whole.shell, 100, "inspect", session, TERM="dumb")
    (piped,) = whole.many(["inspect", session])
    assert "\x1b" not in bare
    assert "────" in bare
    assert dumb == piped.out
    assert "────" not in piped.out


def test_rich_is_loaded_only_where_somebody_looks():
    source = {path: path.read_text() for path in Path(xnagent.__file__).parent.rglob("*.py")}
    drawing = {path.name for path, text in source.items() if re.search(r"^\s*(from|import) rich\b", text, re.MULTILINE)}
    assert drawing == {"drawn.py", "live.py"}
    pattern = r"^\s*(from xnagent\.cli\.(drawn|live) import|import xnagent\.cli\.(drawn|live))"
    assert [path for path, text in source.items() if re.search(pattern, text, re.MULTILINE)] == []


def test_the_json_of_real_and_of_hostile_sessions_is_as_documented(whole: Whole):
    session = whole.session
    for done in whole.many(["inspect", session, "--json"], ["inspect", LONG, "--json"]):
        told = [problem for part in ("overview", *PARTS) for problem in problems(done.record[part], part, part)]
        assert told == []
        assert set(PARTS) < set(SHAPES)


def test_events_are_chosen_and_what_is_not_there_is_told_with_the_nearest(whole: Whole):
    session = whole.session
    kinds, task, both, since, kind, agent, name, time, swapped, zero = whole.many(
        ["inspect", session, "--kind", "task_added", "--kind", "run_settled", "--json"],
        ["inspect", session, "--events", "--task", "one", "--agent", "r1", "--from", "5", "--limit", "2"],
        ["inspect", session, "--tasks", "--limit", "1", "--json"],
        ["inspect", session, "--since", "2026-01-01", "--until", "1999-01-01T00:00:00", "--json"],
        ["inspect", session, "--kind", "run_setled"],
        ["inspect", session, "--agent", "r7"],
        ["inspect", session, "--task", "on"],
        ["inspect", session, "--since", "yesterday"],
        ["inspect", session, "--from", "9", "--to", "3"],
        ["inspect", session, "--limit", "0"],
    )
    assert [row["type"] for row in kinds.record["events"]] == ["task_added", "run_settled"]
    assert set(kinds.record) == {"session", "events", "final"}
    assert re.match(r"events \(2 of \d+; \d+ match\)\nseq  at", task.out)
    assert len(task.out.splitlines()) == 4
    assert len(both.record["events"]) == 1
    assert len(both.record["tasks"]) == 1
    assert since.record["events"] == []
    told = ('did you mean "run_settled"', 'did you mean "r1"', 'did you mean "one"', "is no time", "swap", "from 1 on")
    for done, what in zip((kind, agent, name, time, swapped, zero), told, strict=True):
        assert (done.code, done.out, what in done.err) == (2, "", True), done


def test_a_question_in_sql_is_answered_and_only_reads(whole: Whole):
    session = whole.session
    before = session_path(whole.shell.home, session).read_bytes()
    table, rows, cut, wrong, written, mixed = whole.many(
        ["inspect", session, "--sql", "SELECT run, status, changed_files FROM runs"],
        ["inspect", session, "--sql", "SELECT command, has_passed FROM evidence", "--json"],
        ["inspect", session, "--sql", "SELECT seq FROM events", "--limit", "2"],
        ["inspect", session, "--sql", "SELECT * FROM run", "--json"],
        ["inspect", session, "--sql", "DELETE FROM runs"],
        ["inspect", session, "--runs", "--sql", "SELECT 1"],
    )
    assert table.out == '1 row\nrun  status     changed_files\nr1   completed  ["cfg.py"]\n'
    assert rows.record["sql"] == {
        "columns": ["command", "has_passed"],
        "rows": [{"command": "grep -q 2 cfg.py", "has_passed": 1}],
        "is_whole": True,
    }
    assert (cut.out, "these are the first 2 rows" in cut.err) == ("the first 2 rows\nseq\n  1\n  2\n", True)
    assert (wrong.code, wrong.record["type"], 'did you mean "runs"' in wrong.err) == (2, "final", True)
    assert (written.code, written.out, "SQL_READ_ONLY" in written.err) == (2, "", True)
    assert (mixed.code, "question of its own" in mixed.err) == (2, True)
    assert session_path(whole.shell.home, session).read_bytes() == before


def explained(whole: Whole, session: str, *arguments: str) -> Done:
    (done,) = whole.many(["request", session, *arguments, "--output", "json"])
    return done


def test_a_request_is_explained_part_by_part_and_the_parts_are_the_whole(whole: Whole):
    session = whole.session
    everything, text, first = whole.many(
        ["inspect", session, "--requests", "--json"],
        ["request", session, "2", "--explain"],
        ["request", session, "1", "--explain", "--output", "json"],
    )
    told, row = explained(whole, session, "2", "--explain").record, everything.record["requests"][1]
    assert (told["type"], told["request"], told["previous"], told["lineage"]) == ("explanation", 2, 1, "planner.0")
    parts = told["parts"]
    assert [part["what"] for part in parts[:4]] == ["tools", "system", "objective", "baseline"]
    assert [part["mark"] for part in parts] == ["stable"] * 3 + ["lineage"] + ["new"] * (len(parts) - 4)
    assert [part["what"] for part in parts[4:]] == ["call of plan", "result of plan", "delta"]
    assert sum(part["tokens"] for part in parts) == told["input_tokens"] == row["input_tokens"]
    assert sum(part["cached_tokens"] for part in parts) == told["cached_tokens"] == row["cached_tokens"]
    assert sum(part["price_usd"] for part in parts) == pytest.approx(told["input_usd"])
    assert told["input_usd"] + told["output_usd"] == pytest.approx(row["cost_usd"])
    assert (told["estimate_tokens"], told["predicted_cached_tokens"]) == (
        row["estimate_tokens"],
        row["predicted_cached_tokens"],
    )
    assert {part["cache"] for part in parts} >= {"cached", "fresh"}
    assert {part["mark"] for part in first.record["parts"]} == {"stable", "new"}
    assert first.record["previous"] is None
    assert "lineage planner.0, after request 1\n" in text.out
    assert "call of plan" in text.out


def test_what_a_change_would_have_lost_is_told_by_each_cache_rule(whole: Whole):
    session = whole.session
    folder, tool, gone, moved, same = explained(
        whole,
        session,
        "2",
        *("--what-if", "cwd=/elsewhere"),
        *("--what-if", "add-tool=frobnicate"),
        *("--what-if", "drop-tool=grep"),
        *("--what-if", "model=claude-opus-5-5"),
        *("--what-if", "model=scripted"),
    ).record["what_if"]
    assert {one["held_by"] for one in (folder, tool, gone, moved, same)} == {1}
    assert {(loss["lost_tokens"], loss["segment"]) for loss in folder["losses"]} == {(0, None)}
    assert len(folder["losses"]) > 10
    held = folder["losses"][0]
    assert (held["model"], held["is_own"]) == ("scripted", True)
    for one in (tool, gone):
        losses = {loss["model"]: loss for loss in one["losses"]}
        own, blocks = losses["scripted"], losses["deepseek-flash"]
        assert {loss["segment"] for loss in losses.values()} == {"tools"}
        assert own["lost_tokens"] == own["served_tokens"] == held["served_tokens"]
        assert own["lost_usd"] == pytest.approx(own["lost_tokens"] * 0.9e-6)
        assert blocks["served_tokens"] == held["served_tokens"] // 64 * 64
        assert blocks["lost_usd"] == pytest.approx(blocks["lost_tokens"] * (0.30 - 0.006) * 1e-6)
    (loss,), (none,) = moved["losses"], same["losses"]
    assert (loss["model"], loss["segment"], loss["lost_tokens"]) == ("claude-opus-5-5", "model", held["served_tokens"])
    assert loss["lost_usd"] > 0
    assert (none["segment"], none["lost_tokens"], none["lost_usd"]) == (None, 0, 0)


def test_a_first_request_shares_a_head_with_another_agents(whole: Whole):
    (made_up,) = explained(whole, LONG, "60", "--what-if", "add-tool=x").record["what_if"]
    assert made_up["held_by"] is not None
    (nothing,) = explained(whole, LONG, "1", "--what-if", "add-tool=x").record["what_if"]
    assert nothing["held_by"] is None
    assert {loss["lost_tokens"] for loss in nothing["losses"]} == {0}


def test_what_cannot_be_supposed_is_told(whole: Whole):
    session = whole.session
    told = {
        "drop-tols=grep": 'did you mean "drop-tool"?',
        "cwd": "cwd needs a value",
        "model=": "model needs a value",
        "drop-tool=grop": 'did you mean "grep"?',
        "add-tool=grep": "has the tool",
        "add-tool=a b": "is no name of a tool",
        "model=gtp-5": 'did you mean "gpt-5"?',
    }
    calls = [["request", session, "1", "--what-if", change] for change in told]
    for done, what in zip(whole.many(*calls), told.values(), strict=True):
        assert (done.code, done.out, what in done.err) == (2, "", True), done
    both, missing = whole.many(
        ["request", session, "2", "--explain", "--against", "1"], ["request", session, "999", "--explain"]
    )
    assert (both.code, "--against compares two requests" in both.err) == (2, True)
    assert (missing.code, "the session has" in missing.err) == (2, True)


def test_an_explanation_of_a_hostile_request_is_inert_and_long_stretches_are_cut_short(whole: Whole):
    done, record = whole.many(
        ["request", LONG, "120", "--explain"], ["request", LONG, "120", "--explain", "--output", "json"]
    )
    assert not set(done.out) & {"\x1b", "\u202e", "\x07"}
    assert re.search(r"… \d+ more", done.out)
    assert len(record.record["parts"]) > SHOWN_PARTS
    assert EVIL[:20] in json.dumps(record.record["parts"])
