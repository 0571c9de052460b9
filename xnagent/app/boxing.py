"""From settings to the box that a session's commands run in."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from xnagent.app.host import Host
from xnagent.config import SandboxSettings
from xnagent.core.ids import SessionId
from xnagent.core.values import dataclass
from xnagent.errors import UsageError
from xnagent.workspaces.box.groups import ROOT, Groups
from xnagent.workspaces.box.ladder import Kind, Tried, first_that_works, make_box, owner_for, try_all
from xnagent.workspaces.box.sealing import Box, Grounds, Rules
from xnagent.workspaces.box.syscalls import ARCHITECTURES
from xnagent.workspaces.box.visible import sight, with_folders
from xnagent.workspaces.box.watching import half_of_memory

NAMES: Final[Mapping[Kind, str]] = {
    "bubblewrap": "bubblewrap",
    "bubblewrap-root": "bubblewrap (as root of a user namespace: no user id of their own)",
    "landlock": "Landlock and seccomp",
    "sockets": "a filter of sockets",
}
UNBOXED: Final = "commands run unboxed, with your rights and {}, in copies of the repository"
PROVIDED: Final = "commands run in the box that you provide, with {}, in copies of the repository"
COUNTED: Final = {"memory": "memory", "pids": "processes"}
GROUPED: Final = {**COUNTED, "cpu": "processors"}
"""What controllers limit."""
NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where commands will run."""

    kind: Kind | None
    told: str
    """One line for people."""


def choose(settings: SandboxSettings, environ: Mapping[str, str]) -> Choice:
    """The tightest box that works here, as far as the settings ask for one; tried once in a process. Blocks.

    Raises UsageError if one is required and none works.
    """
    if settings.mode in {"off", "external"}:
        return _declined(settings)
    kind = first_that_works(environ)
    if kind is not None:
        return Choice(kind=kind, told=_described(kind, settings))
    tried = faults(try_all(environ))
    if settings.mode == "required":
        raise UsageError(
            f"SANDBOX_UNAVAILABLE: no sandbox works here ({tried}); install bubblewrap, or pass --sandbox external if "
            f"this machine is a container that may be lost, or --sandbox off to run commands with your own rights"
        )
    without = _declined(settings)
    return replace(without, told=f"warning: no sandbox works here ({tried}); {without.told}")


def _declined(settings: SandboxSettings) -> Choice:
    """No box. The network can be shut all the same: that needs nothing but a filter."""
    can_shut = platform.machine() in ARCHITECTURES
    if settings.network == "off" and not can_shut:
        raise UsageError(f"NETWORK_OPEN: no filter of sockets for {platform.machine()}; leave --network off out")
    told = PROVIDED if settings.mode == "external" else UNBOXED
    network = "no network" if settings.network == "off" else "your network"
    return Choice(kind="sockets" if settings.network == "off" else None, told=told.format(network))


def faults(tried: tuple[Tried, ...]) -> str:
    """Which kinds do not work, and why."""
    return "; ".join(f"{one.kind}: {one.fault}" for one in tried if one.fault)


def box_for(
    host: Host,
    settings: SandboxSettings,
    *,
    session: SessionId,
    repository: Path,
    skills: tuple[Path, ...] = (),
    shown: tuple[Path, ...] = (),
) -> Box | None:
    """The box of a session whose repositories are there; None where commands run without. Blocks.

    `skills` are folders of the user's that commands may read; `shown` is what else can be read in it.
    """
    choice = choose(settings, host.environ)
    if choice.kind is None:
        return None
    objects = (host.work_folder(session).resolve() / "integration.git" / "objects",)
    owner = owner_for(choice.kind, session, objects=objects)
    kind = "bubblewrap-root" if choice.kind == "bubblewrap" and owner is None else choice.kind
    rules = rules_of(settings)
    grounds = Grounds(
        sight=with_folders(sight(host.environ, has_network=rules.network), shown),
        rules=rules,
        objects=objects,
        skills=skills,
        hidden=(host.home.resolve(), repository.resolve()),
        owner=owner,
    )
    try:
        return make_box(kind, grounds, environ=host.environ)
    except OSError as error:
        raise UsageError(f"SANDBOX_UNAVAILABLE: {error.strerror}; install bubblewrap") from error


def rules_of(settings: SandboxSettings) -> Rules:
    """What the settings allow; the network is off unless it is asked for."""
    usual = Rules()
    return Rules(
        network=settings.network == "on",
        unix_sockets=settings.unix_sockets,
        debug=settings.debug,
        memory_bytes=settings.memory_bytes or half_of_memory(),
        processes=settings.processes or usual.processes,
        processors=settings.processors,
        cpu_seconds=settings.cpu_seconds or usual.cpu_seconds,
        open_files=settings.open_files or usual.open_files,
        disk_bytes=settings.disk_bytes or usual.disk_bytes,
        file_bytes=min(usual.file_bytes, settings.disk_bytes or usual.disk_bytes),
    )


def limits_told(settings: SandboxSettings, kind: Kind | None, *, root: Path = ROOT) -> str:
    """What would hold commands to their limits here; control groups are below `root`. Blocks."""
    if kind in {None, "sockets"}:
        return "none: commands run without a box"
    groups = Groups(rules=rules_of(settings), root=root)
    group = groups.of(Path("/"))
    groups.close()
    held = [name for controller, name in GROUPED.items() if controller in group.controllers]
    counted = [name for controller, name in COUNTED.items() if controller not in group.controllers]
    told = [f"{', '.join(held)} by control groups of version {group.version}"] if held else []
    told += [f"{', '.join(counted)} by counting, as no control group can be made for it"] if counted else []
    if settings.processors is not None and "cpu" not in group.controllers:
        told.append(f"processors by {NOTHING}: sandbox.processors needs control groups with cpu")
    return "; ".join(
        [*told, "processor time, open files, size of a file by the kernel for each process; disk by measuring"]
    )


def _described(kind: Kind, settings: SandboxSettings) -> str:
    network = "with your network" if settings.network == "on" else "without network"
    return f"commands run in a box made by {NAMES[kind]}, {network}, in copies of the repository"
