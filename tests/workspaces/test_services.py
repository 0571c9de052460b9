"""Services: talked to over pipes, gone with whoever started them, however that ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from xnagent.ports import Service
from xnagent.workspaces.box.ladder import first_that_works, make_box
from xnagent.workspaces.box.sealing import Box, Grounds, Rules
from xnagent.workspaces.box.visible import sight
from xnagent.workspaces.folders import Tree
from xnagent.workspaces.processes import wait_until
from xnagent.workspaces.services import ProcessServices

ENVIRON = {"PATH": os.environ["PATH"]}
ECHO = 'echo here >&2; while read -r line; do echo "got $line"; done'
HOLDER = """
import sys
from pathlib import Path

import anyio

sys.path.insert(0, {root!r})
from tests.workspaces.test_services import ENVIRON, box_of, tree_in
from xnagent.ports import Service
from xnagent.workspaces.services import ProcessServices


async def main():
    services = ProcessServices(ENVIRON, box=box_of({kind!r}))
    line = ("bash", "-c", "setsid -f sleep {mark}; echo ready; sleep 600")
    async with services.start(tree_in(Path({folder!r})), Service(name="s", line=line)) as running:
        await running.receive()
        print("ready", flush=True)
        await anyio.sleep(600)


anyio.run(main)
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def tree_in(folder: Path) -> Tree:
    tree = Tree(root=folder.resolve() / "tree", scratch=folder.resolve() / "scratch")
    tree.root.mkdir(exist_ok=True)
    tree.scratch.mkdir(exist_ok=True)
    return tree


def box_of(kind: str) -> Box | None:
    found = first_that_works(os.environ) if kind == "boxed" else None
    grounds = Grounds(sight=sight(os.environ, has_network=False), rules=Rules())
    return (
        None
        if found is None
        else make_box("bubblewrap-root" if found == "bubblewrap" else found, grounds, environ=os.environ)
    )


def running(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            found += [entry.name] if words[:2] == [b"sleep", mark.encode()] else []
    return found


@pytest.mark.parametrize("kind", ["bare", "boxed"])
async def test_a_service_is_talked_to_and_what_it_said_is_kept(tmp_path: Path, kind: str):
    services = ProcessServices(ENVIRON, box=box_of(kind))
    mark = f"8{os.getpid()}1"
    line = ("bash", "-c", f"setsid -f sleep {mark}; {ECHO}")
    async with services.start(tree_in(tmp_path), Service(name="s", line=line)) as service:
        await service.send(b"hello\n")
        assert await service.receive() == b"got hello\n"
        assert await anyio.to_thread.run_sync(lambda: wait_until(lambda: bool(running(mark)), limit_seconds=20))
    assert await service.told() == "here"
    assert not running(mark)
    services.close()


@pytest.mark.parametrize("kind", ["bare", "boxed"])
def test_a_service_ends_with_a_process_that_is_killed(tmp_path: Path, kind: str):
    mark = f"8{os.getpid()}2"
    root = str(Path(__file__).resolve().parents[2])
    code = HOLDER.format(root=root, kind=kind, mark=mark, folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert wait_until(lambda: bool(running(mark)), limit_seconds=20)
        holder.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not running(mark), limit_seconds=20)
