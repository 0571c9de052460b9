"""What a job names as its repository: a folder here, or an address that is fetched once for each batch."""

from __future__ import annotations

from pathlib import Path

import anyio

from xnagent.app.host import Host
from xnagent.app.places import mirrors_of
from xnagent.app.running import Stop
from xnagent.core.values import dataclass
from xnagent.errors import Caught, UsageError, XnagentError
from xnagent.workspaces.addresses import Address, is_address, parse_address, shown_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a session begins, as `SessionSpec` takes it."""

    folder: Path
    commit: str | None
    address: Address | None
    """None: the folder is the user's own."""


class Repositories:
    """Finds and fetches what jobs name. One object for each process of a batch: what moves is fetched once."""

    def __init__(self, host: Host) -> None:
        self._mirrors = mirrors_of(host)

    async def place(self, repository: str, commit: str | None, *, stop: Stop) -> Placed | None:
        """The folder for a session, and its commit: pinned to a whole id where the repository is fetched.

        None: asked to stop before it was there. Raises UsageError where somebody has to change something, else
        WorkspaceError.
        """
        if is_address(repository):
            return await self._fetched(parse_address(repository), commit, stop=stop)
        if not await anyio.Path(repository).is_dir():
            raise UsageError(f"NO_FOLDER: {repository}: there is no such folder; name the repository with repo")
        return Placed(folder=Path(repository), commit=commit, address=None)

    async def _fetched(self, address: Address, commit: str | None, *, stop: Stop) -> Placed | None:
        placed: Placed | None = None
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await stop.soft.wait()
                group.cancel_scope.cancel()

            group.start_soon(watch)
            with Caught(XnagentError) as caught:
                pinned = await self._mirrors.pin(address, commit)
                placed = Placed(folder=pinned.folder, commit=pinned.commit, address=address)
            group.cancel_scope.cancel()
        if caught.error is not None:
            raise caught.error
        return placed


def named_repository(given: str | None, *, where: str, base: Path) -> str:
    """A job's `repo` as it may be stored and sent on: an absolute path, or an address without a password."""
    if given is None or not is_address(given):
        return str((base / given).absolute() if given is not None else base)
    try:
        address = parse_address(given)
    except UsageError as error:
        raise UsageError(f"{error} ({where})") from error
    if ":" in address.login and address.text == address.url:
        raise UsageError(
            f"ADDRESS_LOGIN: {where}: {shown_address(given)}: a password has no place in a file of jobs; "
            f"write ${{GIT_LOGIN}}@ before the host and set that variable, or use ~/.netrc"
        )
    return address.text
