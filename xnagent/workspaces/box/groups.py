"""Control groups: how much memory, how many processes and processors a run may have, where the machine lets us say so.

One group for each run. Version 2 needs a folder that was delegated, version 1 root. Where neither is there, whoever
watches a command counts (`watching.py`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.workspaces.box.sealing import Rules

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
_LIMIT_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max",),
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
}
_LEAST_QUOTA: Final = 1_000
_PERIOD: Final = 100_000
"""Microseconds in which so much processor time may be used: what both versions begin with."""
_SWAP: Final = "memory.swap.max"
"""Memory that is swapped out is not in the limit of version 2."""
_OFFERED: Final = "cgroup.controllers"
"""In folders of version 2 alone."""
_EVENT_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "memory.events": ("oom_kill", "memory"),
    "memory.oom_control": ("oom_kill", "memory"),
    "pids.events": ("max", "pids"),
    "cpu.stat": ("nr_throttled", "cpu"),
}
_NAME: Final = re.compile(r"xnagent-(\d+)-[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The folders of one run's group: one in version 2, one for each controller in version 1."""

    folders: tuple[Path, ...] = ()
    controllers: frozenset[str] = frozenset()
    """What is limited: `memory`, `pids`, `cpu`."""

    @property
    def joins(self) -> tuple[Path, ...]:
        """Files that make whoever writes a 0 there a member.

        Of version 1 the one for a single thread: to move a thread by itself the kernel waits for nobody, to move a
        process it waits until no processor is about to start one, which takes milliseconds.
        """
        return tuple(folder / ("cgroup.procs" if _is_unified(folder) else "tasks") for folder in self.folders)

    @property
    def version(self) -> int:
        """Of control groups; 0 without any."""
        if not self.folders:
            return 0
        return 2 if any(map(_is_unified, self.folders)) else 1

    def counts(self) -> dict[str, int]:
        """How often each limit was hit so far."""
        found = dict.fromkeys(self.controllers, 0)
        for folder in self.folders:
            for name, (word, controller) in _EVENT_FILES.items():
                hits = _counted(folder / name, word) if controller in found else None
                if hits is not None:
                    found[controller] = hits
        return found

    def remove(self) -> None:
        """Remove it, if nobody is in it any more."""
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of one session's runs, made when they are needed. `root` and `own` are where the machine's are."""

    rules: Rules
    root: Path = ROOT
    own: Path = OWN
    known: dict[str, Group] = field(default_factory=dict)

    def of(self, place: Path) -> Group:
        """The group of the run with that folder; one that limits nothing where none can be made."""
        key = str(place)
        if key not in self.known:
            self.known[key] = self._made(f"xnagent-{os.getpid()}-{hashlib.sha256(key.encode()).hexdigest()[:12]}")
        return self.known[key]

    def close(self) -> None:
        """Remove all of them."""
        for group in self.known.values():
            group.remove()
        self.known.clear()

    def _made(self, name: str) -> Group:
        folders: list[Path] = []
        controllers: set[str] = set()
        limits = self._limits()
        for parent, offered in self._parents(frozenset(limits)):
            _sweep(parent)
            made = _limited(parent / name, {one: limits[one] for one in sorted(offered - controllers)})
            if made:
                folders.append(parent / name)
                controllers |= made
        return Group(folders=tuple(folders), controllers=frozenset(controllers))

    def _limits(self) -> dict[str, int]:
        rules = self.rules
        quota = None if rules.processors is None else max(_LEAST_QUOTA, round(rules.processors * _PERIOD))
        limits = {"memory": rules.memory_bytes, "pids": rules.processes, "cpu": quota}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def _parents(self, wanted: frozenset[str]) -> Iterator[tuple[Path, frozenset[str]]]:
        """Folders below which groups may be made, and what they can limit there of what is wanted."""
        with suppress(OSError):
            for line in self.own.read_text("utf-8").splitlines():
                _, names, path = line.split(":", 2)
                base = self.root if not names else self.root / names
                place = base / path.strip("/")
                if not names:
                    yield from _delegated((place, place.parent if place != base else base, base), wanted)
                elif offered := frozenset(names.split(",")) & wanted:
                    yield (place if place.is_dir() else base), offered


def _is_unified(folder: Path) -> bool:
    return (folder / _OFFERED).exists()


def _delegated(places: Sequence[Path], wanted: frozenset[str]) -> list[tuple[Path, frozenset[str]]]:
    """Of version 2 a process can be in one group only: below the place that can limit most.

    The own group comes first; it cannot have any below while processes are in it, except as the machine's root. The one
    above it often can: systemd gives a user the whole of it.
    """
    offers: dict[Path, frozenset[str]] = {}
    for place in dict.fromkeys(places):
        offers[place] = _offered(place, wanted)
        if offers[place] == wanted:
            break
    best = max(offers, key=lambda place: len(offers[place]))
    return [(best, offers[best])] if offers[best] else []


def _offered(place: Path, wanted: frozenset[str]) -> frozenset[str]:
    """What groups below can limit; what is offered and not passed on yet is, if that is allowed."""
    control = place / "cgroup.subtree_control"
    if not os.access(place, os.W_OK) or not control.exists():
        return frozenset()
    for name in sorted(wanted & _words(place / _OFFERED) - _words(control)):
        with suppress(OSError):
            control.write_text(f"+{name}", "utf-8")
    return wanted & _words(control)


def _words(file: Path) -> frozenset[str]:
    with suppress(OSError):
        return frozenset(file.read_text("utf-8").split())
    return frozenset()


def _limited(folder: Path, limits: Mapping[str, int]) -> set[str]:
    """Make the folder and set the limits, each for itself; which of them hold."""
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        done = {controller for controller, limit in limits.items() if _is_set(folder, controller, limit=limit)}
        if (folder / _SWAP).exists():
            with suppress(OSError):
                (folder / _SWAP).write_text("0", "utf-8")
        if done:
            return done
        folder.rmdir()
    return set()


def _is_set(folder: Path, controller: str, *, limit: int) -> bool:
    with suppress(OSError):
        files = _files_of(folder, controller)
        for file in files:
            file.write_text(str(limit), "utf-8")
        return bool(files)
    return False


def _files_of(folder: Path, controller: str) -> list[Path]:
    return [folder / name for name in _LIMIT_FILES[controller] if (folder / name).exists()]


def _counted(file: Path, word: str) -> int | None:
    with suppress(OSError):
        found = re.search(rf"^{word} (\d+)$", file.read_text("utf-8"), re.MULTILINE)
        return int(found[1]) if found else None
    return None


def _sweep(parent: Path) -> None:
    """Remove what processes that are gone have left."""
    for folder in parent.glob("xnagent-*"):
        found = _NAME.fullmatch(folder.name)
        if found and not Path("/proc", found[1]).exists():
            with suppress(OSError):
                folder.rmdir()
