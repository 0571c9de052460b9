"""Control groups: how much memory and how many processes a run may have, where the machine lets us say so.

One group for each run. Version 2 needs a folder that was delegated, version 1 root. Where neither is there, whoever
watches a command counts (`watching.py`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from xnagent.workspaces.box.sealing import Rules

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
_LIMIT_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max",),
}
_EVENT_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "memory.events": ("oom_kill", "memory"),
    "memory.oom_control": ("oom_kill", "memory"),
    "pids.events": ("max", "pids"),
}
_NAME: Final = re.compile(r"xnagent-(\d+)-[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The folders of one run's group: one in version 2, one for each controller in version 1."""

    folders: tuple[Path, ...] = ()
    controllers: frozenset[str] = frozenset()
    """What is limited: `memory`, `pids`."""

    @property
    def joins(self) -> tuple[Path, ...]:
        """Files that make whoever writes its number there a member."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    def counts(self) -> dict[str, int]:
        """How often each limit was hit so far."""
        found = dict.fromkeys(self.controllers, 0)
        for folder in self.folders:
            for name, (word, controller) in _EVENT_FILES.items():
                hits = _counted(folder / name, word)
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
        limits = {"memory": self.rules.memory_bytes, "pids": self.rules.processes}
        folders: list[Path] = []
        controllers: set[str] = set()
        for parent, offered in self._parents():
            _sweep(parent)
            wanted = {one: limit for one in offered - controllers if (limit := limits.get(one)) is not None}
            made = _limited(parent / name, wanted)
            if made:
                folders.append(parent / name)
                controllers |= made
        return Group(folders=tuple(folders), controllers=frozenset(controllers))

    def _parents(self) -> Iterator[tuple[Path, frozenset[str]]]:
        """Folders below which groups may be made, and what they can limit there."""
        with suppress(OSError):
            for line in self.own.read_text("utf-8").splitlines():
                _, names, path = line.split(":", 2)
                controllers = frozenset(names.split(",")) & frozenset(_LIMIT_FILES)
                base = self.root if not names else self.root / names
                places = [base / path.strip("/"), base]
                if not names:
                    yield from ((place, found) for place in places if (found := _delegated(place)))
                elif controllers:
                    yield next(place for place in places if place.is_dir() or place == base), controllers


def _delegated(place: Path) -> frozenset[str]:
    with suppress(OSError):
        control = place / "cgroup.subtree_control"
        wanted = frozenset(_LIMIT_FILES)
        if not wanted <= frozenset(control.read_text("utf-8").split()):
            control.write_text("+memory +pids", "utf-8")
        return wanted & frozenset(control.read_text("utf-8").split())
    return frozenset()


def _limited(folder: Path, limits: Mapping[str, int]) -> set[str]:
    """Make the folder and set the limits; which of them hold."""
    done: set[str] = set()
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        for controller, limit in limits.items():
            for file in _files_of(folder, controller):
                file.write_text(str(limit), "utf-8")
                done.add(controller)
    if not done:
        with suppress(OSError):
            folder.rmdir()
    return done


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
