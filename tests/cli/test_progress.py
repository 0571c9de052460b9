"""What a person sees while a session runs, and what streams do with odd content."""

import os
import pty
import sys
from collections.abc import Iterator

import pytest

from xnagent.cli.console import Console, claimed_stdout
from xnagent.cli.progress import PAUSE_SECONDS, Progress
from xnagent.cli.request import difference
from xnagent.core import events as ev
from xnagent.core.events import Stored
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, SessionId, TaskId
from xnagent.core.spine_events import PrefixBroken, ToolsChanged

STARTED = ev.SessionStarted(session=SessionId("s-1"), objective="x")


def task(number: int) -> ev.TaskAdded:
    return ev.TaskAdded(task=TaskId(f"t{number}"), title=f"\x1b[2Jtitle {number}", objective="x")


@pytest.fixture
def console() -> Iterator[Console]:
    with claimed_stdout() as descriptor:
        yield Console(descriptor)


def test_without_a_terminal_there_is_a_line_now_and_then(console: Console, capfd: pytest.CaptureFixture[str]):
    now = [0.0]
    progress = Progress(console, now=lambda: now[0])
    events: list[ev.Event] = [STARTED]
    for number in range(40):
        events.append(task(number))
        progress.tick(fold_all(events))
        now[0] += 0.25
    lines = capfd.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 10 / PAUSE_SECONDS
    assert all("tasks" in line for line in lines)


def test_a_milestone_is_told_at_once_and_shows_no_escapes(console: Console, capfd: pytest.CaptureFixture[str]):
    progress = Progress(console)
    progress.note(Stored(seq=1, at="", event=task(1)), {"type": "task_added", "seq": 1})
    assert capfd.readouterr().err == "task t1: \\x1b[2Jtitle 1\n"


def test_stdout_is_claimed_and_given_back(capfd: pytest.CaptureFixture[str]):
    with claimed_stdout() as descriptor:
        os.write(1, b"a child\n")
        sys.stdout.write("a plugin\n")
        sys.stdout.flush()
        Console(descriptor).record({"text": "\ud83d ä"})
    os.write(1, b"after\n")
    out, err = capfd.readouterr()
    assert out == '{"text":"\ufffd ä"}\nafter\n'
    assert "a child" in err
    assert "a plugin" in err


def test_a_terminal_gets_no_escapes_from_an_answer():
    master, slave = pty.openpty()
    try:
        Console(slave).answer("red \x1b[31m\nnext")
        assert os.read(master, 200).replace(b"\r\n", b"\n") == b"red \\x1b[31m\nnext\n"
    finally:
        os.close(master)
        os.close(slave)


def test_the_first_item_that_differs_is_named():
    before = b'{"model":"m","messages":[{"role":"user","content":"a"}]}'
    after = b'{"model":"m","messages":[{"role":"user","content":"b"}]}'
    longer = b'{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"c"}]}'
    assert difference(before, after)["item"] == "messages[0]"
    assert difference(before, after)["is_extension"] is False
    assert difference(before, longer)["is_extension"] is True
    assert difference(before, longer)["before"] is None
    assert difference(before, before)["item"] is None


BROKEN = PrefixBroken(agent=PLANNER, request=7, segment="system", detail="x\x1by", lost_tokens=12_000, lost_usd=0.05)
RETOOLED = ToolsChanged(
    agent=AgentId("r1"),
    removed=("bash",),
    added=("read",),
    manifest="m",
    lineage="r1.0",
    lost_tokens=9_000,
    lost_usd=None,
)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (BROKEN, "broke the prefix at system: about 12,000 cached tokens lost, $0.0500 more than from the cache: x"),
        (RETOOLED, "r1 goes on with other tools (-bash, +read): 9,000 cached tokens lost, which costs ? more"),
    ],
)
def test_M27_a_break_is_told_with_its_tokens_and_its_money(
    console: Console, capfd: pytest.CaptureFixture[str], event: ev.Event, told: str
):
    Progress(console).note(Stored(seq=1, at="", event=event), {"seq": 1, "type": event.type})
    said = capfd.readouterr().err
    assert told in said
    assert "\x1b" not in said
