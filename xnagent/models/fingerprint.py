"""What makes bytes of a history, named so that a log can say which it was: a version and a fingerprint.

The fingerprint is taken of the bytes that a history with everything in it renders to, so a change is noticed although
nobody thought of the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Final

from xnagent.core.ids import PLANNER, CallId
from xnagent.core.items import AssistantText, Item, Reasoning, ToolCall, ToolResult, UserText
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import Json, canonical
from xnagent.models.wires import encode

VERSIONS: Final[Mapping[str, int]] = {"chat": 1, "responses": 1, "messages": 1}
"""By wire; raised by whoever changes what a renderer makes of recorded items."""
DIGITS: Final = 12

_TOOL: Final[Mapping[str, Json]] = {
    "name": "read",
    "description": "Reads, „so to say“.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}},
}
_CALLS: Final = (
    ("c1", "read", '{"path": "a.py",  "n": 1e3}'),
    ("c 2/\u00e4" * 20, "read now", '{"path": "b'),
    ("c3", "read", ""),
)
_ITEMS: Final[tuple[Item, ...]] = (
    UserText(text='Objective: \u00fc \u2028 \ud800 \U0001f600 <x> "q" \\ \x01', origin="user"),
    UserText(text="", origin="harness"),
    Reasoning(wire="chat", payload="Let me see.", model="m"),
    Reasoning(wire="chat:extra_content", payload='[{"google":{"thought_signature":"s"}},null]', model="m"),
    Reasoning(wire="chat:reasoning_details", payload='[{"type":"reasoning.text","text":"t"}]', model="m"),
    Reasoning(wire="responses", payload='{"type":"reasoning","id":"r","encrypted_content":"e"}', model="m"),
    Reasoning(wire="responses", payload='{"phase":"commentary"}', model="m"),
    Reasoning(wire="messages", payload='{"type":"thinking","thinking":"t","signature":"s"}', model="m"),
    Reasoning(wire="messages", payload='{"type":"thinking","thinking":"t","signature":"s"}', model="another"),
    AssistantText(text="I look.\n"),
    *(ToolCall(call_id=CallId(call_id), name=name, arguments=text) for call_id, name, text in _CALLS),
    *(
        ToolResult(call_id=CallId(call_id), text=f"line {n}\n" * n, is_error=n == 1)
        for n, (call_id, _, _) in enumerate(_CALLS)
    ),
    UserText(text="News.", origin="harness"),
    AssistantText(text="Done."),
    UserText(text="Go on.", origin="task"),
)


@cache
def renderer_of(wire: str) -> str:
    """`chat-1-0123456789ab`: the wire, the version, the fingerprint. Raises KeyError for an unknown wire."""
    digest = sha256()
    for options in _options(wire):
        digest.update(encode(sample_manifest(wire, options), _ITEMS, long_items=2, agent=PLANNER))
    return f"{wire}-{VERSIONS[wire]}-{digest.hexdigest()[:DIGITS]}"


def _options(wire: str) -> tuple[str, ...]:
    plain = canonical({"temperature": 0.5, "top_p": None})
    if wire == "messages":
        return plain, canonical({"cache_ttl": "none"})
    return plain, canonical({"cache_breakpoint": True, "slots": 3})


def sample_manifest(wire: str, options: str) -> ManifestRecorded:
    """What stands before the sample."""
    return ManifestRecorded(
        manifest="sample",
        role="planner",
        wire=wire,
        model="m",
        system="You are \u00fcber.\nBe good.",
        tools=canonical([_TOOL]),
        max_output_tokens=1_000,
        window_tokens=10_000,
        options=options,
        send_reasoning=True,
    )
