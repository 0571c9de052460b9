"""What a model is sent for a summary: the live request with the instruction behind it, or a request of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from xnagent.agents.asking import EMPTY_REPLY
from xnagent.agents.prompting import system_text
from xnagent.core.checkpoint import dump
from xnagent.core.ids import Ticket
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText, calls_of, text_of
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.state import SUMMARY_ROLE
from xnagent.core.summary import Answer, SummaryLog, read_answer
from xnagent.core.text import Json, canonical, clean, clip, one_line
from xnagent.core.tokens import estimate_items, estimate_part

MESSAGE_CHARACTERS: Final = 4_000
SHORTEST_MESSAGE: Final = 250
GAP: Final = "\n\n"
"""Between two messages."""
CHECKPOINT_CHARACTERS: Final = 24_000
VALUE_CHARACTERS: Final = 400
SPEAKERS: Final = {
    "user": "the user",
    "task": "the Planner",
    "state": "xnagent",
    "harness": "xnagent",
    "project": "the project, as data",
}
NOT_EXECUTED: Final = "NOT_EXECUTED: no tool runs while a summary is asked for."


def instruction(summary: SummaryLog) -> UserText:
    """What is asked for, with the names of the values that are stored."""
    names = ", ".join(dump(name) for name in sorted(summary.values))
    stored = f"\nStored now: {names}." if names else "\nNo value is stored yet."
    text = system_text("summary").replace("{round}", str(summary.rounds + 1)).replace("{stored}", stored)
    return UserText(text=text, origin="harness")


def reminder(answer: Answer, *, has_calls: bool) -> UserText | None:
    """Asks once more where something is missing (M83); None: nothing is."""
    wanted = [
        *(["it called tools"] if has_calls else []),
        *(["there was no summary in it"] if not answer.text else []),
        *(["it had no `<values>` that can be read"] if answer.values is None else []),
    ]
    if not wanted:
        return None
    return UserText(text=system_text("summary_again").replace("{why}", ", ".join(wanted)), origin="harness")


def read_reply(items: Sequence[Item]) -> Answer:
    """What a reply says; one that was empty got a text of xnagent's."""
    text = text_of(items)
    return read_answer("" if text == EMPTY_REPLY else clean(text))


def stored_value(value: str, *, put: Callable[[bytes], Ticket]) -> str:
    """The value as it is stored; a long one is an artifact, and its ticket is shown (M85)."""
    if len(value) <= VALUE_CHARACTERS:
        return value
    return f"{len(value):,} characters: read {put(value.encode())}"


def own_manifest(live: ManifestRecorded) -> ManifestRecorded:
    """For a request of its own: no tools, and a system text that says what it reads."""
    bare = replace(live, manifest="", role=f"{SUMMARY_ROLE}:{live.model}", tools="[]")
    bare = replace(bare, system=system_text("summary_alone"))
    parts: list[Json] = [
        bare.role,
        bare.wire,
        bare.model,
        bare.system,
        bare.tools,
        bare.max_output_tokens,
        bare.window_tokens,
        bare.options,
        bare.send_reasoning,
    ]
    return replace(bare, manifest=sha256(canonical(parts).encode()).hexdigest()[:16])


def cropped(spine: Spine, asked: UserText, *, most_tokens: int) -> UserText:
    """The history as text, small enough for a request of `most_tokens` estimated tokens.

    First each message is cut shorter, then the oldest are left out: neither the task nor the checkpoint is (M94, B032).
    """
    limit = MESSAGE_CHARACTERS
    head, told = spine.items[: spine.head], spine.items[spine.head :]
    begin = 1 if spine.generation and told else 0
    first = [*_labelled(head, limit=CHECKPOINT_CHARACTERS), *_labelled(told[:begin], limit=CHECKPOINT_CHARACTERS)]
    rest = list(_labelled(told[begin:], limit=limit))
    message = _joined(first, rest, asked=asked)
    while estimate_items([message]) > most_tokens and limit > SHORTEST_MESSAGE:
        limit //= 2
        rest = list(_labelled(told[begin:], limit=limit))
        message = _joined(first, rest, asked=asked)
    if estimate_items([message]) <= most_tokens:
        return message
    whole = estimate_items([_joined(first, rest, asked=asked, omitted=True)])
    left = _without_oldest(rest, too_many=whole - most_tokens + 1)
    return _joined(first, left, asked=asked, omitted=True)


def _without_oldest(messages: Sequence[str], *, too_many: float) -> Sequence[str]:
    """As few of the oldest left out as it takes to save so many tokens; each is estimated once (M73)."""
    for number, message in enumerate(messages):
        if too_many <= 0:
            return messages[number:]
        too_many -= estimate_part(f"{GAP}{message}")
    return ()


def _joined(first: Sequence[str], rest: Sequence[str], *, asked: UserText, omitted: bool = False) -> UserText:
    gap = ["(The oldest messages that stood here were left out, because there was no room.)"] if omitted else []
    record = GAP.join([*first, *gap, *rest])
    return UserText(text=f"<record>\n{record}\n</record>\n\n{asked.text}", origin="harness")


def _labelled(items: Sequence[Item], *, limit: int) -> Iterator[str]:
    names = {call.call_id: call.name for call in calls_of(items)}
    for item in items:
        match item:
            case UserText():
                yield _message(SPEAKERS[item.origin], item.text, limit=limit)
            case AssistantText():
                yield _message("the Worker", item.text, limit=limit)
            case ToolCall():
                yield _message(f"the Worker, calling {item.name}", item.arguments, limit=limit)
            case ToolResult():
                yield _message(f"the result of {names.get(item.call_id, 'a tool')}", item.text, limit=limit)
            case Reasoning():
                continue


def _message(speaker: str, text: str, *, limit: int) -> str:
    """No text can close its message, and so speak as somebody else (T24)."""
    inside = clip(text, limit).replace("</", "<\\/")
    return f'<message from="{one_line(speaker)}">\n{inside}\n</message>'
