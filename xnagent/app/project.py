"""Finds what a repository and its user bring along for agents: once when a session begins, skills at each resume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

import anyio.to_thread

from xnagent.app.places import Places
from xnagent.config import Settings
from xnagent.config.places import user_skills
from xnagent.core.project_events import InstructionFile, ProjectRead, Skill, SkillFile, SkillsChanged
from xnagent.core.skills import SkillText, parse_skill
from xnagent.core.state import SessionState
from xnagent.core.values import dataclass
from xnagent.ports import Artifacts

INSTRUCTIONS_BYTES: Final = 32 * 1024
"""Of one file; what is more is left to `read`."""
MOST_FILES: Final = 100
MOST_SKILLS: Final = 64
SKILL_BYTES: Final = 64 * 1024
RESOURCE_BYTES: Final = 256 * 1024
MOST_RESOURCES: Final = 40
SKILL_FILE: Final = "SKILL.md"
SKILL_FOLDERS: Final = (".agents/skills", ".claude/skills")
"""In a repository; of two skills with one name the first counts."""


@dataclass(slots=True, kw_only=True)
class _Found:
    """Skills by name, and why others are none."""

    skills: dict[str, Skill] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def add(self, text: str, *, name: str, folder: str) -> SkillText | None:
        """The skill, if it can be used and there is none of its name yet."""
        parsed = parse_skill(text, folder=PurePosixPath(folder).name)
        if isinstance(parsed, str):
            self.skipped.append(f"{name}: {parsed}")
        elif len(self.skills) >= MOST_SKILLS:
            self.skipped.append(f"{name}: there are {MOST_SKILLS} skills already")
        elif parsed.name not in self.skills:
            return parsed
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectReader:
    """Reads a session's base commit and the user's folder."""

    places: Places
    artifacts: Artifacts
    settings: Settings
    environ: Mapping[str, str]

    async def begin(self, commit: str) -> ProjectRead | None:
        """What a new session begins with; None if that is nothing."""
        paths = await self.places.trees.files(commit)
        instructions = [await self._instructions(commit, path) for path in self._chosen(paths)]
        found = await self._skills(commit, paths)
        read = ProjectRead(
            instructions=tuple(one for one in instructions if one is not None),
            skills=_sorted(found),
            skipped=tuple(found.skipped),
        )
        return read if read.instructions or read.skills or read.skipped else None

    async def again(self, state: SessionState) -> SkillsChanged | None:
        """The skills as they are now; None if they are as they were, or the session can use none."""
        base = state.started.base if state.started else None
        if base is None or not state.project.has_skill_tool:
            return None
        found = await self._skills(base, await self.places.trees.files(base))
        skills = _sorted(found)
        if skills == state.project.skills:
            return None
        return SkillsChanged(skills=skills, skipped=tuple(found.skipped))

    def _chosen(self, paths: Iterable[str]) -> list[str]:
        """In each folder the first name that is there; the root's first."""
        names = {name: rank for rank, name in enumerate(self.settings.project.instructions)}
        best: dict[str, str] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            if name in names and (folder not in best or names[name] < names[best[folder]]):
                best[folder] = name
        places = sorted(best, key=lambda folder: (folder.count("/") + bool(folder), folder))
        return [f"{place}/{best[place]}" if place else best[place] for place in places[:MOST_FILES]]

    async def _instructions(self, commit: str, path: str) -> InstructionFile | None:
        data = await self.places.workspaces.read(commit, path)
        if data is None or not data.strip() or b"\0" in data:
            return None
        text = data[:INSTRUCTIONS_BYTES].decode("utf-8", "replace").strip()
        if len(data) > INSTRUCTIONS_BYTES:
            text += f"\n[… cut here: the file has {len(data):,} bytes; `read` {path} for the rest …]"
        return InstructionFile(path=path, text=text, sha256=sha256(data).hexdigest())

    async def _skills(self, commit: str, paths: Iterable[str]) -> _Found:
        found = _Found()
        if self.settings.skills.project:
            await self._project_skills(found, commit, paths=sorted(paths))
        if self.settings.skills.user:
            folder = user_skills(self.environ)
            for name, texts in await anyio.to_thread.run_sync(lambda: list(_read_folders(folder))):
                self._user_skill(found, name, texts=texts)
        return found

    async def _project_skills(self, found: _Found, commit: str, *, paths: list[str]) -> None:
        for top in SKILL_FOLDERS:
            for path in paths:
                folder = path.removesuffix(f"/{SKILL_FILE}")
                if folder == path or str(PurePosixPath(folder).parent) != top:
                    continue
                data = await self.places.workspaces.read(commit, path) or b""
                parsed = found.add(_text(data), name=path, folder=folder)
                if parsed is None:
                    continue
                rest = [one for one in paths if one.startswith(f"{folder}/") and one != path]
                files = tuple(SkillFile(path=one.removeprefix(f"{folder}/")) for one in rest[:MOST_RESOURCES])
                self._keep(found, parsed, skill_files=files, folder=folder)

    def _user_skill(self, found: _Found, name: str, *, texts: Mapping[str, bytes]) -> None:
        parsed = found.add(_text(texts[SKILL_FILE]), name=f"the user's skills/{name}/{SKILL_FILE}", folder=name)
        if parsed is not None:
            others = sorted(path for path in texts if path != SKILL_FILE)
            files = tuple(SkillFile(path=path, ticket=self.artifacts.put(texts[path])) for path in others)
            self._keep(found, parsed, skill_files=files, folder="")

    def _keep(self, found: _Found, parsed: SkillText, *, skill_files: tuple[SkillFile, ...], folder: str) -> None:
        found.skills[parsed.name] = Skill(
            name=parsed.name,
            description=parsed.description,
            origin="project" if folder else "user",
            folder=folder or parsed.name,
            body=self.artifacts.put(parsed.body.encode()),
            files=skill_files,
        )


def skill_folders(environ: Mapping[str, str], state: SessionState) -> tuple[Path, ...]:
    """Where the files of the session's skills are that are the user's own; none that is a link to somewhere else."""
    top = user_skills(environ)
    folders = [top / skill.folder for skill in state.project.skills if skill.origin == "user"]
    return tuple(folder for folder in folders if folder.is_dir() and not folder.is_symlink())


def _sorted(found: _Found) -> tuple[Skill, ...]:
    return tuple(skill for _, skill in sorted(found.skills.items()))


def _text(data: bytes) -> str:
    text = data[:SKILL_BYTES].decode("utf-8", "replace")
    return text if len(data) <= SKILL_BYTES else f"{text}\n[… cut here: the file has {len(data):,} bytes …]"


def _read_folders(folder: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The user's skills by the names of their folders: `SKILL.md` and other files of text, by path."""
    with suppress(OSError):
        for place in sorted(folder.iterdir()):
            if (place / SKILL_FILE).is_file():
                yield place.name, {SKILL_FILE: (place / SKILL_FILE).read_bytes(), **_resources(place)}


def _resources(place: Path) -> dict[str, bytes]:
    files = (path for path in sorted(place.rglob("*")) if path.is_file() and path != place / SKILL_FILE)
    small = islice((path for path in files if path.stat().st_size <= RESOURCE_BYTES), MOST_RESOURCES)
    contents = {path.relative_to(place).as_posix(): path.read_bytes() for path in small}
    return {name: data for name, data in contents.items() if data and b"\0" not in data}
