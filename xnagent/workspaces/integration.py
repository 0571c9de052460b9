"""Repositories of our own: the session's integration repository, and one for each tree that somebody works in.

None has hooks; their configuration is written here. They borrow objects from one another (`objects/info/alternates`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.workspaces.folders import Tree, making
from xnagent.workspaces.git import Git
from xnagent.workspaces.origin import Checkout, Origin
from xnagent.workspaces.stamps import BESIDE

HEAD_REF: Final = "refs/heads/integration"
ORIGIN_REF: Final = "refs/xnagent/origin"
"""The commit that the user had checked out."""
COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_PASSED_ON: Final = ("packed-refs", "shallow", "info/exclude", "info/attributes")
SHA1_DIGITS: Final = 40
_SETTINGS: Final = "copied-settings"
CHECKOUT: Final = ("checkout.workers=0", "checkout.thresholdForParallelism=1000")
"""A process for each processor where that saves more than it costs to start them."""
_DURABLE: Final = b"[core]\n\tfsync = committed,loose-object\n\tfsyncMethod = batch\n"
_IDENTITY: Final = b"[user]\n\tname = xnagent\n\temail = xnagent@localhost\n[gc]\n\tauto = 0\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A run's or check's folder: its tree, the commit it began from, and the index as it was then."""

    folder: Path

    @property
    def tree(self) -> Tree:
        """What is worked in."""
        return Tree(root=self.folder / "tree", scratch=self.folder / "scratch")

    @property
    def index(self) -> Path:
        """The index after the checkout, out of the worker's reach: unchanged files need no hashing."""
        return self.folder / BESIDE[0]

    @property
    def saving(self) -> Path:
        """The index of the last save."""
        return self.folder / BESIDE[1]

    @property
    def times_restored(self) -> int:
        """How often the run's tree had been made again when this one was; 0: it is the first."""
        marker = self.folder / RESTORED
        return int(marker.read_text("utf-8")) if marker.is_file() else 0

    @property
    def base(self) -> str | None:
        """The commit; None if the folder is not whole."""
        marker = self.marker
        return marker.read_text("utf-8") if marker.is_file() and self.tree.root.is_dir() else None

    @property
    def marker(self) -> Path:
        """Is there if the folder is whole."""
        return self.folder / "base"

    def settle(self, commit: str) -> None:
        """The folder is whole now, and begins from that commit."""
        self.marker.write_text(commit, "utf-8")


RESTORED = "restored"
"""Says in a run's folder how often its tree had been made again when this one was."""
Dress = Callable[[Planted], Awaitable[None]]


def require_commit(commit: str) -> str:
    """The id, if it is a whole one; WorkspaceError otherwise."""
    if not COMMIT_ID.fullmatch(commit):
        raise WorkspaceError(f"{commit!r} is not the id of a commit")
    return commit


async def make_integration(git: Git, origin: Origin) -> None:
    """The bare repository that holds a session's commits; it borrows the user's objects."""
    path, checkout = _place(git), origin.checkout
    async with making(path) as folder:
        kind = checkout.object_format if checkout else "sha1"
        await _init(folder, git.environ, "--bare", f"--object-format={kind}", "--initial-branch=integration")
        _write(folder, _SETTINGS, content=_settings(checkout))
        _add(folder, "config", content=_DURABLE + _settings(checkout))
        _write(folder, "info/exclude", content=_excludes(origin, path.parent))
        if checkout:
            _borrow(folder, checkout.objects)
            _write(folder, "info/attributes", content=checkout.attributes)
            _write(folder, "packed-refs", content=checkout.tags)
            _write(folder, "shallow", content=checkout.shallow)
    if checkout and checkout.head:
        await git.run("update-ref", ORIGIN_REF, checkout.head)


async def plant(integration: Git, commit: str, *, final: Path, dress: Dress | None = None) -> Planted:
    """A fresh tree of the commit as a repository of its own, on a branch `work`; `dress` changes it before it shows."""
    source = _place(integration)
    kind = "sha1" if len(commit) == SHA1_DIGITS else "sha256"
    async with making(final) as folder:
        new = Planted(folder=folder)
        new.tree.root.mkdir()
        new.tree.scratch.mkdir(mode=0o700)
        git_dir = new.tree.root / ".git"
        await _init(new.tree.root, integration.environ, f"--object-format={kind}", "--initial-branch=work")
        _borrow(git_dir, source / "objects")
        for name in _PASSED_ON:
            _write(git_dir, name, content=_read(source / name))
        _add(git_dir, "config", content=_IDENTITY + _read(source / _SETTINGS))
        await move_to(commit, new, environ=integration.environ)
        if dress is not None:
            await dress(new)
        new.settle(commit)
    return Planted(folder=final)


async def move_to(commit: str, planted: Planted, *, environ: Mapping[str, str]) -> None:
    """Make the files of a repository that nobody worked in those of the commit, and `work` begin there."""
    git_dir = planted.tree.root / ".git"
    git = Git(environ=environ, git_dir=git_dir, work_tree=planted.tree.root, settings=CHECKOUT)
    await git.run("update-ref", "refs/heads/work", commit)
    await git.run("read-tree", "--reset", "-u", commit)
    await anyio.to_thread.run_sync(shutil.copy2, git_dir / "index", planted.index)


def with_tree(integration: Git, work_tree: Path, *, index: Path) -> Git:
    """Our repository on somebody's tree: nothing that the tree or its repository configures is read."""
    return replace(integration, work_tree=work_tree, index=index)


def _place(git: Git) -> Path:
    if git.git_dir is None:
        raise WorkspaceError("there is no integration repository")
    return git.git_dir


async def _init(folder: Path, environ: Mapping[str, str], *options: str) -> None:
    await Git(environ=environ).run("init", "--quiet", "--template=", *options, str(folder))


def _borrow(git_dir: Path, objects: Path) -> None:
    path = str(objects)
    if path.startswith(('"', "#")) or "\n" in path:
        escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        path = f'"{escaped}"'
    _write(git_dir, "objects/info/alternates", content=os.fsencode(path + "\n"))


def _settings(checkout: Checkout | None) -> bytes:
    lines = (
        [f"\t{name.removeprefix('core.')} = {value}\n" for name, value in checkout.settings.items()] if checkout else []
    )
    return "".join(["[core]\n", *lines]).encode() if lines else b""


def _excludes(origin: Origin, folder: Path) -> bytes:
    own = origin.checkout.excludes if origin.checkout else b""
    if not folder.is_relative_to(origin.root):
        return own
    inside = os.fsencode(str(folder.relative_to(origin.root)))
    special = {ord(letter): f"\\{letter}" for letter in "\\*?[ "}
    return own + b"\n/" + os.fsencode(os.fsdecode(inside).translate(special)) + b"/\n"


def _write(git_dir: Path, name: str, *, content: bytes) -> None:
    if content:
        path = git_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def _add(git_dir: Path, name: str, *, content: bytes) -> None:
    with (git_dir / name).open("ab") as file:
        file.write(content)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
