"""What agents read of what others wrote: instructions and skills."""

from __future__ import annotations

from xnagent.config.section import Name, Section


class ProjectSettings(Section):
    """What a repository brings along for agents (docs/instructions-and-skills.md)."""

    instructions: tuple[Name, ...] = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
    """Names of instruction files: in each folder the first of them that is there counts. Empty: none is read."""


class SkillSettings(Section):
    """Whose skills agents may use."""

    project: bool = False
    """The repository's. It may not say so itself."""
    user: bool = True
    """Those in the folder `skills` beside the user's file."""
