"""Where a session's repositories are: begun from a folder or an address, and made again where they are gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xnagent.app.host import Host
from xnagent.config import Settings
from xnagent.config.secrets import mask_for
from xnagent.core.commits import Base, Patched
from xnagent.core.events import FactRecorded, SessionStarted
from xnagent.core.ids import FactId, SessionId, Ticket
from xnagent.core.masking import Mask
from xnagent.core.state import SessionState
from xnagent.core.tree_events import Snapshot
from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.ports import Artifacts
from xnagent.workspaces.addresses import is_address, parse_address
from xnagent.workspaces.mirrors import Mirrors
from xnagent.workspaces.repositories import Crossing, SessionWorkspaces
from xnagent.workspaces.restoring import Recorded, RecordedMerge
from xnagent.workspaces.spares import Spare
from xnagent.workspaces.trees import RunTrees


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The repositories of a session."""

    repository: Path
    """The user's folder, or a mirror."""
    workspaces: SessionWorkspaces
    trees: RunTrees
    spare: Spare

    async def take_up(self, state: SessionState, artifacts: Artifacts) -> None:
        """Make the integration repository again if it is gone, then make it what the log says.

        WorkspaceError if it is gone and the log and the repository do not have all that it takes.
        """
        if state.started is None or state.started.base is None:
            return
        base = state.started.base
        head = state.merges[-1].commit if state.merges else base
        if not await self.trees.has_integration(base, head):
            recorded = await _recorded(state, state.started, base=base, artifacts=artifacts)
            await self.trees.restore_integration(recorded, repository=self.repository)
        await self.workspaces.reset(state.board.session.get("integration_head", base))


def make_places(host: Host, session: SessionId, *, repository: Path, settings: Settings) -> Places:
    """The repositories of a session."""
    folder, chosen = host.work_folder(session), settings.workspace
    mask = mask_for(host.environ, settings) if settings.secrets.files == "withhold" else Mask()
    spare = Spare(folder, environ=host.environ)
    workspaces = SessionWorkspaces(
        repository=repository,
        folder=folder,
        session=session,
        environ=host.environ,
        crossing=Crossing(
            keep_bytes=0 if chosen.save == "off" else chosen.save_bytes,
            bundles=None if chosen.bundles is None else Path(chosen.bundles).expanduser().absolute(),
            mask=mask,
        ),
        spare=spare,
    )
    trees = RunTrees(folder, environ=host.environ, limit_bytes=chosen.save_bytes, mask=mask)
    return Places(repository=repository, workspaces=workspaces, trees=trees, spare=spare)


def mirrors_of(host: Host) -> Mirrors:
    """The mirrors of this home."""
    return Mirrors(host.home / "mirrors", environ=host.environ)


async def repository_of(host: Host, started: SessionStarted) -> Path:
    """The folder that a session's repository is in; fetched where it came by its address and its base is not here."""
    if not is_address(started.repository):
        return Path(started.repository)
    return (await mirrors_of(host).pin(parse_address(started.repository), started.base)).folder


def is_saving(settings: Settings, *, may_travel: bool) -> bool:
    """Whether trees of runs under way go into the log."""
    return settings.workspace.save == "always" or (settings.workspace.save == "auto" and may_travel)


def logged(base: Patched | None, artifacts: Artifacts) -> Snapshot | None:
    """A snapshot as the log has it."""
    if base is None:
        return None
    return Snapshot(parent=base.parent, seconds=base.seconds, patch=artifacts.put(base.patch, is_verbatim=True))


def findings(base: Base) -> tuple[FactRecorded, ...]:
    """What the Planner should know of the tree that a new session begins from."""
    return tuple(
        FactRecorded(fact=FactId(f"f{number}"), text=text, source="snapshot")
        for number, text in enumerate(base.withheld, start=1)
    )


async def _recorded(state: SessionState, started: SessionStarted, *, base: str, artifacts: Artifacts) -> Recorded:
    snapshot = started.snapshot
    tickets = [merge.patch for merge in state.merges] + ([] if snapshot is None else [snapshot.patch])
    contents = {ticket: await _content(ticket, artifacts) for ticket in tickets}
    return Recorded(
        base=base,
        is_shadow=started.is_shadow,
        snapshot=None if snapshot is None else _patched(snapshot, contents),
        merges=[
            RecordedMerge(
                run=merge.run,
                base=merge.base,
                patch=contents[merge.patch],
                message=merge.message,
                commit=merge.commit,
            )
            for merge in state.merges
        ],
    )


def _patched(snapshot: Snapshot, contents: Mapping[Ticket, bytes]) -> Patched:
    return Patched(parent=snapshot.parent, seconds=snapshot.seconds, patch=contents[snapshot.patch])


async def _content(ticket: Ticket, artifacts: Artifacts) -> bytes:
    content = await artifacts.get(ticket)
    if content is None:
        raise WorkspaceError(f"RESTORE_FAILED: {ticket} is not in the log")
    return content
