"""Tools whose only effect is on the session's state: a pure function from the call to its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xnagent.core.spine_events import ToolStarted
from xnagent.core.text import Json, canonical
from xnagent.core.values import dataclass
from xnagent.ports import Call, Intent, Outcome, ToolSpec

STRING: Mapping[str, Json] = {"type": "string"}
STRINGS: Mapping[str, Json] = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTool:
    """A tool made of its definition and one pure function; its events are committed together with its result."""

    spec: ToolSpec
    act: Callable[[Call], Outcome]

    async def intend(self, call: Call) -> Intent | Outcome:
        """Nothing happens outside the state."""
        return Intent(effect="pure")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Compute the outcome."""
        return self.act(call)

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """Run it again."""
        return None


def describe(field: Mapping[str, Json], description: str) -> dict[str, Json]:
    """A schema with a description."""
    return {**field, "description": description}


def object_schema(properties: Mapping[str, Json], *, required: tuple[str, ...] = ()) -> dict[str, Json]:
    """A strict object."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def refuse(code: str, text: str) -> Outcome:
    """An outcome that changes nothing and says what to do."""
    return Outcome(text=f"{code}: {text}", code=code, label=f"{code}: {text}"[:160])


def answer(label: str, **fields: Json) -> Outcome:
    """An outcome that is one small JSON object."""
    return Outcome(text=canonical(fields), label=label)
