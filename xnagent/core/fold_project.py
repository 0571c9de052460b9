"""The part of `fold` that is about instructions, skills and hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from xnagent.core import fold_hooks
from xnagent.core.evolve import evolve
from xnagent.core.ids import AgentId
from xnagent.core.project import Project
from xnagent.core.project_events import ProjectRead, SkillActivated, SkillsChanged
from xnagent.core.state import SessionState, spine_of, work_of


def _project_read(state: SessionState, event: ProjectRead) -> SessionState:
    project = Project(instructions=event.instructions, skills=event.skills, has_skill_tool=bool(event.skills))
    return evolve(state, project=project)


def _skills_changed(state: SessionState, event: SkillsChanged) -> SessionState:
    return evolve(state, project=evolve(state.project, skills=event.skills))


def _skill_activated(state: SessionState, event: SkillActivated) -> SessionState:
    log = work_of(state, event.agent)
    skills = {**log.skills, event.skill: spine_of(state, event.agent).generation}
    return evolve(state, work={**state.work, event.agent: evolve(log, skills=skills)})


def with_told(state: SessionState, agent: AgentId, *, keys: tuple[str, ...]) -> SessionState:
    """The state after a message told these."""
    if not keys:
        return state
    log = work_of(state, agent)
    return evolve(state, work={**state.work, agent: evolve(log, told=tuple(dict.fromkeys((*log.told, *keys))))})


HANDLERS: Final[Mapping[type[Any], Callable[[SessionState, Any], SessionState]]] = {
    ProjectRead: _project_read,
    SkillsChanged: _skills_changed,
    SkillActivated: _skill_activated,
    **fold_hooks.HANDLERS,
}
"""By event type."""
