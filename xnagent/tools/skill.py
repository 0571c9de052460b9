"""The `skill` tool: the instructions of a skill, when a model wants them."""

from __future__ import annotations

from pathlib import Path

from xnagent.core.project import SKILL_TOOL, contained
from xnagent.core.project_events import Skill, SkillActivated, SkillFile
from xnagent.core.spine_events import ToolStarted
from xnagent.core.state import spine_of, work_of
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Outcome, ToolSpec
from xnagent.tools.state_tool import STRING, describe, object_schema, refuse

SPEC = ToolSpec(
    name=SKILL_TOOL,
    description=(
        "Get the instructions of a skill that the list of skills names, and the files that belong to it. Follow them "
        "for the work that they are for."
    ),
    parameters=object_schema({"name": describe(STRING, "The skill's name, as listed.")}, required=("name",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillTool:
    """Shows a skill's instructions as they were when the session began or was last resumed."""

    folders: tuple[Path, ...] = ()
    """Of the user's skills that commands can read."""
    spec: ToolSpec = SPEC

    async def intend(self, call: Call) -> Intent | Outcome:
        """Showing them may be repeated."""
        return Intent(effect="pure")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Show them, unless they stand in the history already."""
        name = str(call.arguments["name"]).strip()
        skills = {skill.name: skill for skill in call.state.project.skills}
        if name not in skills:
            return refuse("NOT_FOUND", f"there is no skill {name[:80]!r} (skills: {', '.join(skills) or 'none'}).")
        if work_of(call.state, call.agent).skills.get(name) == spine_of(call.state, call.agent).generation:
            text = f"[The instructions of {name} stand above, from when you asked for them.]"
            return Outcome(text=text, label=f"skill {name}: stands above")
        body = await call.artifacts.get(skills[name].body)
        if body is None:
            return refuse("NOT_FOUND", f"the instructions of {name} are not stored here. Go on without them.")
        return Outcome(
            text=_shown(skills[name], body.decode("utf-8", "replace"), folders=self.folders),
            label=f"skill {name}",
            events=(SkillActivated(agent=call.agent, skill=name),),
        )

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """Run it again."""
        return None


def _shown(skill: Skill, body: str, *, folders: tuple[Path, ...]) -> str:
    whose = "the repository" if skill.origin == "project" else "the user's folder"
    files = "\n".join(f"- {_place(skill, one)}" for one in skill.files)
    more = f"\n\nFiles of this skill, for `read`:\n{files}" if files else ""
    if skill.origin == "user":
        more += "".join(
            f"\n\nCommands find all of its files in {folder}, where nothing can be changed."
            for folder in folders
            if folder.name == skill.folder
        )
    return f'<skill name="{skill.name}" from="{whose}">\n{contained(body)}\n</skill>{more}'


def _place(skill: Skill, file: SkillFile) -> str:
    return f"{skill.folder}/{file.path}" if file.ticket is None else f"{file.path}: {file.ticket}"
