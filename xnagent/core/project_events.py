"""What a repository and its user bring along: instructions, skills and hooks, and the events that record them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from xnagent.core.given_events import ToolsGiven
from xnagent.core.hook_events import HookRan
from xnagent.core.ids import AgentId, Ticket
from xnagent.core.mcp_events import McpEvent
from xnagent.core.values import dataclass

SkillOrigin = Literal["project", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFile:
    """A file of instructions as it was at the session's base commit."""

    path: str
    text: str
    """Cut where it is too long, and says so."""
    sha256: str
    """Of the file, whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """A further file of a skill."""

    path: str
    """Within the skill's folder."""
    ticket: Ticket | None = None
    """Where its content is kept; None: it is in the tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Instructions for one kind of work, read when they are needed."""

    name: str
    description: str
    origin: SkillOrigin
    folder: str
    """With a project's: its path in the tree. With a user's: its name."""
    body: Ticket
    """`SKILL.md` without its front matter."""
    files: tuple[SkillFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRead:
    """What a session begins with. None of it is read again, but for the catalogue of skills when it is resumed."""

    instructions: tuple[InstructionFile, ...] = ()
    """The root's first, then those of folders by path."""
    skills: tuple[Skill, ...] = ()
    """By name."""
    skipped: tuple[str, ...] = ()
    """Skills that cannot be used: file and reason."""
    type: Literal["project_read"] = "project_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsChanged:
    """A resumed session found other skills than it knew; the fields are the new ones, whole."""

    skills: tuple[Skill, ...]
    skipped: tuple[str, ...] = ()
    type: Literal["skills_changed"] = "skills_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillActivated:
    """An agent asked for the instructions of a skill."""

    agent: AgentId
    skill: str
    type: Literal["skill_activated"] = "skill_activated"


ProjectEvent: TypeAlias = ProjectRead | SkillsChanged | SkillActivated | McpEvent | ToolsGiven | HookRan
"""What agents get beside what ships, and what the user's hooks came to."""
