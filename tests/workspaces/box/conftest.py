"""Boxes of every kind that this user could have, and commands in them."""

import os
import shutil
from pathlib import Path

import anyio
import pytest

from xnagent.ports import Command
from xnagent.workspaces.box.ladder import kinds, make_box, owner_for, try_all
from xnagent.workspaces.box.sealing import Grounds, Rules
from xnagent.workspaces.box.visible import sight
from xnagent.workspaces.folders import Tree
from xnagent.workspaces.shell import ProcessShell

ENVIRON = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/nonexistent"), "LANG": "C.UTF-8"}


@pytest.fixture(scope="package")
def anyio_backend():
    return "asyncio"


@pytest.fixture(params=kinds(), scope="package")
def kind(request):
    """Every kind of box; skipped with the name of what is missing here."""
    fault = {one.kind: one.fault for one in try_all(ENVIRON)}[request.param]
    if fault:
        pytest.skip(f"{request.param}: {fault}")
    return request.param


class Ground:
    """A run's folder, and a shell whose commands run there in a box."""

    def __init__(self, folder: Path, kind: str):
        self.kind, self.folder = kind, folder.resolve()
        self.tree = Tree(root=self.folder / "run" / "tree", scratch=self.folder / "run" / "scratch")
        self.environ = ENVIRON
        self.count = 0
        for place in (self.tree.root, self.tree.scratch):
            place.mkdir(parents=True)

    def shell(self, *, objects=(), hidden=(), skills=(), **rules):
        rules = Rules(**rules)
        grounds = Grounds(
            sight=sight(self.environ, has_network=rules.network),
            rules=rules,
            objects=objects,
            hidden=hidden,
            skills=skills,
            owner=owner_for(self.kind, "test"),
        )
        return ProcessShell(self.environ, box=make_box(self.kind, grounds, environ=self.environ))

    async def run(self, command, timeout_seconds=20, shell=None, **rules):
        self.count += 1
        wanted = Command(command=command, timeout_seconds=timeout_seconds, spool=f"c{self.count}")
        used = shell or self.shell(**rules)
        try:
            finished = await used.run(self.tree, wanted)
        finally:
            used.close()
        return finished, finished.output.read_text(errors="replace")

    def together(self, command, **options):
        """The same from outside of an event loop."""

        async def run():
            return await self.run(command, **options)

        return anyio.run(run)


@pytest.fixture
def ground(tmp_path, kind):
    return Ground(tmp_path, kind)


@pytest.fixture(scope="package")
def python():
    """A Python that is found in every box."""
    system = Path("/usr/bin/python3")
    return str(system) if system.exists() else str(shutil.which("python3"))
