"""The tools that put facts and progress on record: `record_fact`, `correct_fact`, `retract_fact`, `note`, `submit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xnagent.core.board import Fact
from xnagent.core.events import Event, FactCorrected, FactRecorded, FactRetracted, ProgressNoted, RunSubmitted
from xnagent.core.ids import FactId, RunId
from xnagent.core.state import SessionState
from xnagent.core.text import canonical, clean, clip, first_line
from xnagent.core.view import FACT_CHARACTERS, SUMMARY_CHARACTERS
from xnagent.ports import Call, Outcome, ToolSpec
from xnagent.tools.state_tool import STRING, StateTool, answer, describe, object_schema, refuse

REPORT_FACTS = 20
REPORT_CHARACTERS = 8_000
"""Of the facts of one hand-in together; what is more goes behind a ticket."""

_VALUE = describe(STRING, "The exact value: number, id, name, path, version, as you saw it, to the last digit.")
_PINNED = {"type": "boolean", "description": "Keep it in sight always."}
_FACT = describe(STRING, "The fact's id, such as f1.")

RECORD_FACT = ToolSpec(
    name="record_fact",
    description="Put a confirmed statement on record. Facts survive every rebase and are given to all later Workers.",
    parameters=object_schema(
        {"text": describe(STRING, "The statement, on its own."), "value": _VALUE, "pinned": _PINNED},
        required=("text",),
    ),
)
CORRECT_FACT = ToolSpec(
    name="correct_fact",
    description="Replace a fact that was wrong or has changed. The old wording is kept in the log only.",
    parameters=object_schema(
        {"fact": _FACT, "text": describe(STRING, "The statement as it is now."), "value": _VALUE},
        required=("fact", "text"),
    ),
)
RETRACT_FACT = ToolSpec(
    name="retract_fact",
    description="Take back a fact that no longer holds. It is not shown any more.",
    parameters=object_schema({"fact": _FACT, "reason": describe(STRING, "Why.")}, required=("fact", "reason")),
)
NOTE = ToolSpec(
    name="note",
    description=(
        "Tell the Planner something at once. With `value` or `pinned` it is recorded as a fact that others can rely "
        "on; without, it says where you are."
    ),
    parameters=object_schema(
        {"text": describe(STRING, "One or two sentences."), "value": _VALUE, "pinned": _PINNED},
        required=("text",),
    ),
)
SUBMIT = ToolSpec(
    name="submit",
    description=(
        "Hand in and end your run. `completed`: the task is done; its checks are then run on your files and decide. "
        "`failed`: you could not do it. `blocked`: something outside the task must be decided first."
    ),
    parameters=object_schema(
        {
            "status": {
                "type": "string",
                "enum": ["completed", "failed", "blocked"],
                "description": "How it stands.",
            },
            "summary": describe(
                STRING,
                "What changed and why, what you found, what is left. A few sentences; of more than 2,000 characters "
                "the middle goes behind a ticket.",
            ),
            "facts": {
                "type": "array",
                "description": "What others should rely on.",
                "items": {
                    **object_schema(
                        {"text": describe(STRING, "The statement."), "value": _VALUE, "pinned": _PINNED},
                        required=("text",),
                    ),
                    "type": ["object", "string"],
                },
            },
        },
        required=("status", "summary"),
    ),
)


def fact_tools() -> tuple[StateTool, ...]:
    """The Planner's."""
    return (
        StateTool(spec=RECORD_FACT, act=_record_fact),
        StateTool(spec=CORRECT_FACT, act=_correct_fact),
        StateTool(spec=RETRACT_FACT, act=_retract_fact),
    )


def reporting_tools() -> tuple[StateTool, ...]:
    """A Worker's."""
    return StateTool(spec=NOTE, act=_note), StateTool(spec=SUBMIT, act=_submit)


def _next_fact(state: SessionState, *, ahead: int = 0) -> FactId:
    return FactId(f"f{len(state.board.facts) + 1 + ahead}")


def _recorded(call: Call, given: str | Mapping[str, Any], *, ahead: int = 0) -> FactRecorded:
    fields = {"text": given} if isinstance(given, str) else given
    return FactRecorded(
        fact=_next_fact(call.state, ahead=ahead),
        text=str(fields["text"]),
        value=fields.get("value"),
        source=call.agent,
        is_pinned=bool(fields.get("pinned")),
    )


def _too_long(*facts: str | Mapping[str, Any]) -> Outcome | None:
    """A refusal, if a fact could not be shown whole wherever facts are shown."""
    texts = [fact if isinstance(fact, str) else f"{fact['text']}{fact.get('value') or ''}" for fact in facts]
    longest = max(map(len, texts), default=0)
    if longest <= FACT_CHARACTERS:
        return None
    advice = "State the point, and put the rest into a file or leave it to an artifact ticket."
    return refuse("TOO_LONG", f"a fact has at most {FACT_CHARACTERS:,} characters, this has {longest:,}. {advice}")


def _record_fact(call: Call) -> Outcome:
    refusal = _too_long(call.arguments)
    if refusal is not None:
        return refusal
    event = _recorded(call, call.arguments)
    return replace(answer(f"{event.fact}: {event.text}", fact=event.fact), events=(event,))


def _known(call: Call) -> Fact | Outcome:
    name = str(call.arguments["fact"])
    fact = call.state.board.facts.get(FactId(name))
    if fact is None:
        known = ", ".join(call.state.board.facts) or "none yet"
        return refuse("NOT_FOUND", f"there is no fact {name!r} (facts: {known}).")
    return fact


def _correct_fact(call: Call) -> Outcome:
    fact = _too_long(call.arguments) or _known(call)
    if isinstance(fact, Outcome):
        return fact
    event = FactCorrected(
        fact=fact.fact, text=str(call.arguments["text"]), value=call.arguments.get("value"), source=call.agent
    )
    return replace(answer(f"{fact.fact} corrected", fact=fact.fact, revision=fact.revision + 1), events=(event,))


def _retract_fact(call: Call) -> Outcome:
    fact = _known(call)
    if isinstance(fact, Outcome):
        return fact
    event = FactRetracted(fact=fact.fact, reason=str(call.arguments["reason"]))
    return replace(answer(f"{fact.fact} retracted", fact=fact.fact, retracted=True), events=(event,))


def _note(call: Call) -> Outcome:
    if call.arguments.get("value") is None and not call.arguments.get("pinned"):
        event = ProgressNoted(run=RunId(call.agent), text=_handed_up(call, str(call.arguments["text"])))
        return replace(answer(f"note: {first_line(event.text)}", noted=True), events=(event,))
    return _record_fact(call)


def _submit(call: Call) -> Outcome:
    given: Sequence[str | Mapping[str, Any]] = call.arguments.get("facts") or []
    refusal = _too_long(*given)
    if refusal is not None:
        return refusal
    room = _fitting(given)
    told = [*given[:room], *_pointer(call, given[room:])]
    facts: list[Event] = [_recorded(call, fact, ahead=number) for number, fact in enumerate(told)]
    summary = _handed_up(call, str(call.arguments["summary"]))
    submitted = RunSubmitted(run=RunId(call.agent), status=call.arguments["status"], summary=summary)
    outcome = answer(f"submit: {submitted.status}", submitted=submitted.status)
    return replace(outcome, events=(*facts, submitted))


def _fitting(facts: Sequence[str | Mapping[str, Any]]) -> int:
    """How many of the facts, from the first, a hand-in has room for."""
    used = 0
    for count, fact in enumerate(facts[:REPORT_FACTS]):
        used += len(canonical(fact))
        if used > REPORT_CHARACTERS:
            return count
    return min(len(facts), REPORT_FACTS)


def _pointer(call: Call, facts: Sequence[str | Mapping[str, Any]]) -> list[str]:
    """One statement that stands for the facts that there was no room for; none if there was."""
    if not facts:
        return []
    lines = "\n".join(fact if isinstance(fact, str) else canonical(fact) for fact in facts)
    return [f"{call.agent} handed in {len(facts)} more facts: read {call.artifacts.put(clean(lines).encode())}"]


def _handed_up(call: Call, text: str) -> str:
    """A text for the Planner; where it is too long, its ends and a ticket to the whole."""
    if len(text) <= SUMMARY_CHARACTERS:
        return text
    ticket = call.artifacts.put(clean(text).encode())
    return clip(text, SUMMARY_CHARACTERS, head_share=0.7, how_to_get=f"read {ticket} for the whole")
