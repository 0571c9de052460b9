"""Repositories of other machines, kept once and fetched when something of them is missing.

::

    FOLDER/HASH.git     bare: `refs/remotes/origin/*` and tags as they are there; `refs/heads/xnagent/*` are results
    FOLDER/HASH.lock    held by the process that makes or fetches it

Git gets a configuration of ours, one protocol, no prompt, no hook and no submodule. It may use what the user has for
reaching other machines: `~/.netrc`, ssh keys and agent (never asking), proxies. Nothing is ever collected as garbage:
a commit that was fetched once stays.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from xnagent.core.values import dataclass
from xnagent.errors import UsageError, WorkspaceError
from xnagent.workspaces.addresses import Address
from xnagent.workspaces.fetching import explain
from xnagent.workspaces.folders import making
from xnagent.workspaces.git import Answer, Git, require_git
from xnagent.workspaces.origin import MIRROR_MARK

FETCH_SECONDS: Final = 1_800.0
LOCK_PAUSE_SECONDS: Final = 0.05
WHOLE_ID: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
ID: Final = re.compile(r"[0-9a-f]{4,64}")
HEAD: Final = "refs/xnagent/HEAD"
PASSED_ON: Final = (
    "HOME",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
)
"""Of the user's environment: what leads to other machines."""

_HEADS: Final = "+refs/heads/*:refs/remotes/origin/*"
_TAGS: Final = "+refs/tags/*:refs/tags/*"
_CAREFUL: Final = (
    "credential.helper=",
    "core.askPass=",
    "ssh.variant=ssh",
    "fetch.recurseSubmodules=false",
    "http.followRedirects=initial",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "gc.auto=0",
)
_HELPER: Final = '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$XNAGENT_USER" "$XNAGENT_PASS"; }; f'
"""Git asks it for the one address it is set for; the values are in git's environment, in no argument or file."""
_SSH: Final = "ssh -oBatchMode=yes -oConnectTimeout=30"
_NOT_THERE: Final = re.compile(r"not our ref|unadvertised object|couldn't find remote ref|no such remote ref")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A repository of another machine, at hand, and the commit that was meant."""

    folder: Path
    """Its mirror."""
    commit: str
    address: Address


class Mirrors:
    """The mirrors below a folder. One object fetches what moves (a branch, a tag, the default branch) once."""

    def __init__(self, folder: Path, *, environ: Mapping[str, str], limit_seconds: float = FETCH_SECONDS) -> None:
        self._folder = folder
        self._environ = environ
        self._limit_seconds = limit_seconds
        self._fetched: dict[str, bool] = {}
        """Addresses that were fetched, and whether with their default branch."""

    async def pin(self, address: Address, name: str | None) -> Pinned:
        """The commit that `name` (an id, its beginning, a tag, a branch; None: the default branch) means there now.

        Raises UsageError where somebody has to change something (no such host, repository or commit, no access), else
        WorkspaceError (not reached, took too long).
        """
        await require_git(self._environ)
        async with self._held(address) as git:
            commit = await _known(git, name) if name and ID.fullmatch(name) else None
            if commit is None:
                await self._refresh(git, address, with_head=name is None)
                commit = await _found(git, name)
            if commit is None and name and WHOLE_ID.fullmatch(name):
                commit = await self._fetch_commit(git, address, commit=name)
        if commit is None:
            raise _unknown(address, name)
        return Pinned(folder=self.folder_of(address), commit=commit, address=address)

    def folder_of(self, address: Address) -> Path:
        """Where the address's mirror is, or will be."""
        return self._folder / f"{address.name}.git"

    async def _refresh(self, git: Git, address: Address, *, with_head: bool) -> None:
        if self._fetched.get(address.url) is None or (with_head and not self._fetched[address.url]):
            answer = await self._fetch(git, address, refs=(*([f"+HEAD:{HEAD}"] if with_head else []), _HEADS, _TAGS))
            if answer.code and _NOT_THERE.search(answer.errors):
                raise _unknown(address, None)
            if answer.code:
                raise explain(answer, address.url, scheme=address.scheme)
            self._fetched[address.url] = with_head

    async def _fetch_commit(self, git: Git, address: Address, *, commit: str) -> str | None:
        """A commit that no branch leads to, if the other side hands it out."""
        answer = await self._fetch(git, address, refs=(f"+{commit}:refs/xnagent/pins/{commit}",))
        if answer.code and _NOT_THERE.search(answer.errors):
            return None
        if answer.code:
            raise explain(answer, address.url, scheme=address.scheme)
        return await _known(git, commit)

    async def _fetch(self, git: Git, address: Address, *, refs: tuple[str, ...]) -> Answer:
        options = ("--quiet", "--no-write-fetch-head", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance")
        prune = ("--prune",) if _HEADS in refs else ()
        settings, more = _access(address, self._environ)
        reaching = replace(git, settings=settings, more=more, limit_seconds=self._limit_seconds)
        try:
            return await reaching.run("fetch", *options, *prune, "--", address.url, *refs, accepted=range(256))
        except WorkspaceError as error:
            raise WorkspaceError(f"FETCH_FAILED: {address.url}: {error}; try again later") from error

    @asynccontextmanager
    async def _held(self, address: Address) -> AsyncIterator[Git]:
        """The mirror, made if it is new, for this task alone."""
        folder = self.folder_of(address)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            await _lock(descriptor, address, limit_seconds=2 * self._limit_seconds)
            git = Git(environ=self._environ, git_dir=folder)
            if not (folder / MIRROR_MARK).is_file():
                await _make(git, address, final=folder)
            yield git
        finally:
            os.close(descriptor)


async def _lock(descriptor: int, address: Address, *, limit_seconds: float) -> None:
    try:
        with anyio.fail_after(limit_seconds):
            await _taken(descriptor)
    except TimeoutError as error:
        raise WorkspaceError(
            f"MIRROR_BUSY: {address.url} is being fetched by another process for very long; end that, or try later"
        ) from error


async def _taken(descriptor: int) -> None:
    """Ask again and again: waiting in a thread could not be cancelled."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await anyio.sleep(LOCK_PAUSE_SECONDS)
        else:
            return


async def _make(git: Git, address: Address, *, final: Path) -> None:
    async with making(final) as folder:
        await Git(environ=git.environ).run("init", "--quiet", "--bare", "--template=", str(folder))
        (folder / MIRROR_MARK).write_text(address.url + "\n", "utf-8", errors="surrogateescape")


def _access(address: Address, environ: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Configuration and environment for reaching the address: its one protocol, and its own credentials."""
    settings = (*_CAREFUL, f"protocol.{address.scheme}.allow=always")
    kept = {name: environ[name] for name in PASSED_ON if name in environ}
    more = {**kept, "GIT_ASKPASS": "", "SSH_ASKPASS": "", "GIT_SSH_COMMAND": _SSH}
    login = address.credentials(environ)
    if login is None:
        return settings, more
    given = {"XNAGENT_USER": login[0], "XNAGENT_PASS": login[1]}
    return (*settings, f"credential.{address.url}.helper={_HELPER}"), {**more, **given}


async def _known(git: Git, name: str) -> str | None:
    """The whole id of a commit that is in the mirror."""
    found = await git.run(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", accepted=(0, 1, 128)
    )
    return found.output.decode().strip() or None if found.code == 0 else None


async def _found(git: Git, name: str | None) -> str | None:
    """What a name means: a whole id, a tag, a branch, the beginning of an id, in this order."""
    if name is None:
        return await _known(git, HEAD)
    if WHOLE_ID.fullmatch(name):
        return await _known(git, name)
    branch = name.removeprefix("refs/heads/")
    names = [f"refs/tags/{name.removeprefix('refs/tags/')}", f"refs/remotes/origin/{branch}"]
    for one in (*names, *([name] if ID.fullmatch(name) else ())):
        if (commit := await _known(git, one)) is not None:
            return commit
    return None


def _unknown(address: Address, name: str | None) -> UsageError:
    if name is None:
        return UsageError(f"COMMIT_UNKNOWN: {address.url} has no default branch with a commit; name one with commit")
    return UsageError(f"COMMIT_UNKNOWN: {address.url} has no commit, tag or branch {name!r}; name another")
