"""The user's folder as data: where things are, which settings decide how files are read, what is ignored.

Git runs on the user's repository only to look things up (`rev-parse`, `config`, `for-each-ref`), which runs nothing
that the repository configures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from xnagent.core.values import dataclass
from xnagent.errors import UsageError, WorkspaceError
from xnagent.workspaces.git import Git

COPIED_SETTINGS: Final = (
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.sharedrepository",
    "core.symlinks",
)
"""Settings that say how files become content; none of them can name a program."""
MIRROR_MARK: Final = "xnagent-mirror"
"""A file in a bare repository that says that it is one of `mirrors.py`."""

_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9]{1,16}")
_PATHS: Final = ("objects", "index", "info/exclude", "info/attributes", "shallow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A repository of the user with a working tree, or a mirror."""

    git_dir: Path
    """Of this working tree: a linked worktree has its own."""
    objects: Path
    index: Path
    object_format: str
    """`sha1` or `sha256`."""
    head: str | None
    """The commit checked out; None before the first."""
    settings: Mapping[str, str]
    """Of `COPIED_SETTINGS`, those that are set."""
    excludes: bytes
    """What is ignored besides `.gitignore`: the user's own file, then the repository's `info/exclude`."""
    attributes: bytes
    shallow: bytes
    """Where a shallow history ends."""
    tags: bytes
    """As a `packed-refs` file has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The user's tree."""

    root: Path
    """Top of the working tree, or the plain folder; no symlink in the path."""
    checkout: Checkout | None
    """None: no git repository."""
    has_tree: bool = True
    """A mirror has none: a session begins from a commit, and its result is a branch there."""


async def locate(folder: Path, environ: Mapping[str, str]) -> Origin:
    """What a folder is. UsageError for one that no session can begin from."""
    root = await anyio.to_thread.run_sync(_require_folder, folder)
    git = Git(environ=environ, work_tree=root)
    kind = await _kind(git, root)
    if kind is None:
        return Origin(root=root, checkout=None)
    if kind[0] == "true" and (root / MIRROR_MARK).is_file():
        return await _mirror(root, environ)
    if kind != ["false", "true"]:
        raise UsageError(f"{folder} is a bare repository or inside a .git folder; name a checkout of it")
    asked = [word for path in _PATHS for word in ("--git-path", path)]
    options = ("--path-format=absolute", "--show-toplevel", "--git-dir", *asked, "--show-object-format")
    lines = (await _undirected(git, "rev-parse", *options)).splitlines()
    if len(lines) != len(_PATHS) + 3:
        raise UsageError(f"{folder}: a line break in the path of a repository is not supported; move it")
    paths = [Path(line) for line in lines[:-1]]
    user = Git(environ=environ, git_dir=paths[1])
    return Origin(root=paths[0].resolve(), checkout=await _checkout(user, paths, object_format=lines[-1]))


async def _mirror(root: Path, environ: Mapping[str, str]) -> Origin:
    git = Git(environ=environ, git_dir=root)
    mirror = Checkout(
        git_dir=root,
        objects=root / "objects",
        index=root / "index",
        object_format=await git.text("rev-parse", "--show-object-format"),
        head=None,
        settings={},
        excludes=b"",
        attributes=b"",
        shallow=b"",
        tags=await _tags(git),
    )
    return Origin(root=root, checkout=mirror, has_tree=False)


async def _tags(git: Git) -> bytes:
    return (await git.run("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")).output


async def resolve(folder: Path, name: str, *, environ: Mapping[str, str]) -> str:
    """The whole id of a commit that the user's repository knows by `name`: an id, a branch, a tag."""
    git = Git(environ=environ, work_tree=folder)
    try:
        return await _undirected(git, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except WorkspaceError as error:
        raise UsageError(f"COMMIT_UNKNOWN: {folder} has no commit {name!r}; fetch it first, or name another") from error


async def _checkout(user: Git, paths: list[Path], *, object_format: str) -> Checkout:
    _, git_dir, objects, index, exclude, attributes, shallow = paths
    settings = await _settings(user)
    head = await user.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", accepted=(0, 1, 128))
    own = _content(_own_excludes(settings, user.environ))
    return Checkout(
        git_dir=git_dir,
        objects=objects.resolve(),
        index=index,
        object_format=object_format,
        head=head.output.decode().strip() or None,
        settings={name: value for name, value in settings.items() if _PLAIN_VALUE.fullmatch(value)},
        excludes=own + (b"\n" if own else b"") + _content(exclude),
        attributes=_content(attributes),
        shallow=_content(shallow),
        tags=await _tags(user),
    )


async def _kind(git: Git, root: Path) -> list[str] | None:
    """Whether it is bare and whether it has a tree, in git's words; None: no repository."""
    try:
        return (await _undirected(git, "rev-parse", "--is-bare-repository", "--is-inside-work-tree")).splitlines()
    except WorkspaceError as error:
        if (root / ".git").exists() or "not a git repository" not in str(error):
            raise UsageError(f"{root} cannot be read as a git repository; repair it first ({error})") from error
        return None


async def _undirected(git: Git, *arguments: str) -> str:
    """Ask without naming a repository: git finds it from the folder."""
    folder = str(git.work_tree)
    return await replace(git, work_tree=None).text("-C", folder, *arguments)


async def _settings(user: Git) -> dict[str, str]:
    pattern = "^(" + "|".join(name.replace(".", r"\.") for name in (*COPIED_SETTINGS, "core.excludesfile")) + ")$"
    visible = replace(user, reads_user_settings=True)
    found = await visible.run("config", "--includes", "-z", "--get-regexp", pattern, accepted=(0, 1))
    pairs = [os.fsdecode(entry).partition("\n") for entry in found.output.split(b"\0") if entry]
    return {name: value if mark else "true" for name, mark, value in pairs}


def _own_excludes(settings: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME")
    named = settings.get("core.excludesfile")
    if named and named.startswith("~/"):
        return Path(home, named[2:]) if home else None
    if named:
        return Path(named)
    configured = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    return Path(configured, "git", "ignore") if configured else None


def _content(path: Path | None) -> bytes:
    if path is None or not path.is_file():
        return b""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _require_folder(folder: Path) -> Path:
    if folder.is_dir():
        return folder.resolve()
    what = "is not a folder" if folder.exists() else "does not exist"
    raise UsageError(f"{folder} {what}; name the folder of the project with -C")
