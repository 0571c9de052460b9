"""Workers that would harm the machine, in the box that works here: the session goes on, and nothing outside changes."""

import hashlib
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.bench import Bench, bash, finish, scripted, start, submit, task
from xnagent.core.events import CheckFinished
from xnagent.testing.server import ScriptedServer
from xnagent.workspaces.box.ladder import first_that_works, try_all

SECRET = "sk-never-shown-77"
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else str(shutil.which("python3"))
MEBIBYTE = 1024 * 1024
DONE = "echo 'x = 2' > a.py"
HARM = {
    "fork-bombing": (":(){ :|:& };: ; sleep 0.5; true", "no more than 96 processes"),
    "memory-eating": ("python3 -c 'x = bytearray(2_000_000_000)' || tail /dev/zero", "[killed: out of memory"),
    "disk-filling": (
        "for n in $(seq 12); do head -c 20000000 /dev/zero > f$n; done; sleep 20",
        "[killed: the run had filled more than 100 MiB of the disk]",
    ),
    "daemon-leaving": (
        "setsid sleep 97531 & env -i setsid -f sleep 97531; echo left",
        "background processes were ended",
    ),
    "secret-hunting": (
        "env; cat /proc/*/environ /proc/*/cmdline ~/.ssh/* '{canary}'/* '{home}'/sessions/* 2> /dev/null; echo hunted",
        "hunted",
    ),
    "destroying": ("rm -rf '{canary}' '{home}' '{repo}' 2> /dev/null; echo tried", "tried"),
}


def printed(folder: Path) -> str:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".git" not in path.parts]
    found = [(str(path), path.read_bytes()) for path in files]
    return hashlib.sha256(repr(found).encode()).hexdigest()


@pytest.fixture(autouse=True)
def boxed():
    if first_that_works(os.environ) is None:
        pytest.skip("; ".join(f"{one.kind}: {one.fault}" for one in try_all(os.environ)))


@pytest.mark.parametrize("kind", HARM)
async def test_B074_a_harmful_worker_harms_nothing_and_the_session_completes(bench: Bench, kind: str, tmp_path: Path):
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "file").write_text(SECRET)
    before, repository = printed(canary), printed(bench.repository)
    bench.host = replace(bench.host, environ={**bench.host.environ, "OPENAI_API_KEY": SECRET})
    command, told = HARM[kind]
    for name, place in (("{canary}", canary), ("{home}", bench.host.home), ("{repo}", bench.repository)):
        command = command.replace(name, str(place))
    script = scripted(
        start(task("t", checks=["grep -q 'x = 2' a.py"])),
        finish("settled"),
        workers={
            "t": [
                bash(command, "<task", timeout_seconds=8),
                bash(f"rm -f f?*; {DONE}; cat a.py", told),
                submit("x = 2"),
            ]
        },
    )
    limits = {"memory_bytes": 300 * MEBIBYTE, "processes": 96, "disk_bytes": 100 * MEBIBYTE}
    with ScriptedServer(script) as server:
        ended = await bench.run(server, apply=False, sandbox={"mode": "required", **limits})
    assert ended.outcome == "completed", ended.record
    assert (printed(canary), printed(bench.repository)) == (before, repository)
    result = ended.results("r1", "bash")[0]
    assert told in result.text
    assert SECRET not in result.text
    assert not daemons()


def daemons() -> list[str]:
    lines = list(Path("/proc").glob("[0-9]*/cmdline"))
    return [str(path) for path in lines if b"97531" in _content(path)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


REACH = {
    "write": "echo x > '{canary}/new'",
    "read": "cat '{canary}/file'",
    "log": "cat '{home}'/sessions/*.db > /dev/null",
    "network": "'{python}' -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 3)'",
}
HONEST = "grep -q 'x = 2' a.py && pwd"


@pytest.mark.parametrize("mode", ["required", "off"])
async def test_B057_B074_a_check_is_boxed_too_when_it_judges_the_fresh_merged_tree(
    bench: Bench, mode: str, tmp_path: Path
):
    """Without a box each of these commands would do what it is after."""
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "file").write_text(SECRET)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        facts = {"canary": canary, "home": bench.host.home, "port": listening.getsockname()[1]}
        reach = {name: line.format(python=PYTHON, **facts) for name, line in REACH.items()}
        is_held = mode == "required"
        script = scripted(
            start(task("t", checks=[HONEST, *reach.values()])),
            finish("r1 settled", outcome="failed" if is_held else "completed"),
            workers={"t": [bash(DONE), submit()]},
        )
        with ScriptedServer(script) as server:
            ended = await bench.run(server, apply=False, sandbox={"mode": mode})
        came = came_to(listening)
    found = {event.evidence.command: event.evidence for event in ended.of(CheckFinished)}
    assert found[HONEST].has_passed
    assert found[HONEST].tail.rstrip().endswith("checks/merge-r1/tree")
    assert [name for name, line in reach.items() if found[line].has_passed] == ([] if is_held else list(REACH))
    assert (ended.outcome, ended.run("r1").status) == (("failed",) * 2 if is_held else ("completed",) * 2)
    assert (came, (canary / "new").exists()) == (not is_held, not is_held)
    assert SECRET not in "".join(one.tail for one in found.values()) or not is_held


def came_to(listening: socket.socket) -> bool:
    try:
        listening.accept()[0].close()
    except BlockingIOError:
        return False
    return True
