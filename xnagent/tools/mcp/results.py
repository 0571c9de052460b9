"""What a server's tool gave back, as the model reads it: data with a label, capped, binary content put aside."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from xnagent.core.ids import Ticket
from xnagent.core.mcp_events import McpTool
from xnagent.core.text import Json, canonical, clean, first_line
from xnagent.ports import Artifacts, Outcome
from xnagent.tools.mcp.link import Answer, Part, PeerError
from xnagent.tools.outcome import failure
from xnagent.tools.output import clip_lines, readable

MAX_CHARACTERS: Final = 12_000
MAX_BINARY_BYTES: Final = 16 * 1024 * 1024
_CLOSING: Final = re.compile(r"</(?=\s*data\b)", re.IGNORECASE)


def outcome_of(tool: McpTool, answer: Answer, *, artifacts: Artifacts) -> Outcome:
    """The outcome of a call that the server answered; `isError` is a failed call."""
    body = readable("\n".join(_lines(answer, artifacts)).encode("utf-8", "replace")) or "(nothing)"
    shown, ticket = _within(body, artifacts)
    text = labelled(shown, tool)
    if answer.is_error:
        return Outcome(
            text=f"MCP_FAILED: the tool says that it failed.\n{text}",
            code="MCP_FAILED",
            label=f"{tool.name}: MCP_FAILED: {first_line(body, 100)}",
            artifact=ticket,
        )
    return Outcome(text=text, label=f"{tool.name} → {len(body):,} characters", artifact=ticket)


def labelled(text: str, tool: McpTool) -> str:
    """Foreign text between tags that say whose it is, unable to close them."""
    contained = _CLOSING.sub(r"<\\/", clean(text))
    return f'<data from="MCP server {tool.server}">\n{contained}\n</data>'


def _within(body: str, artifacts: Artifacts) -> tuple[str, Ticket | None]:
    """Head and tail of what is too long; the whole goes to the artifacts."""
    first = clip_lines(body, MAX_CHARACTERS)
    if first == body:
        return body, None
    ticket = artifacts.put(body.encode("utf-8", "replace"))
    how = f"full result: {ticket}, use read with it and an offset, or grep with it as path"
    return clip_lines(body, MAX_CHARACTERS, how_to_get=how), ticket


def _lines(answer: Answer, artifacts: Artifacts) -> Iterator[str]:
    for part in answer.parts:
        yield _shown(part, artifacts)
    if answer.structured is not None and not _is_told(answer):
        yield json.dumps(answer.structured, ensure_ascii=False, indent=1, sort_keys=True)


def _shown(part: Part, artifacts: Artifacts) -> str:
    if part.kind == "text":
        return part.text
    kind = f" ({part.media_type})" if part.media_type else ""
    if part.kind == "link":
        return f"[link to {part.text}{kind}]"
    if part.data is None:
        return f"[{part.text}{kind}: not shown, its content cannot be decoded]"
    if len(part.data) > MAX_BINARY_BYTES:
        return f"[{part.text}{kind}: not shown and not kept, {len(part.data):,} bytes]"
    return f"[{part.text}{kind}: not shown, {len(part.data):,} bytes are kept as {artifacts.put(part.data)}]"


def _is_told(answer: Answer) -> bool:
    """Whether the text says the same: servers give structured content both ways."""
    told = "\n".join(part.text for part in answer.parts if part.kind == "text").strip()
    inner = answer.structured.get("result") if isinstance(answer.structured, dict) else None
    return told != "" and any(_is_same(told, value) for value in (answer.structured, inner) if value is not None)


def _is_same(told: str, value: Json) -> bool:
    if isinstance(value, str):
        return told == value.strip()
    try:
        return canonical(json.loads(told)) == canonical(value)
    except (ValueError, RecursionError):
        return False


_NEXT: Final = {
    "MCP_DOWN": "Call it once more: it is started anew. If that fails too, go on without it and say so.",
    "MCP_TIMEOUT": "It was stopped; the call may have had its effect, so check before you make it again.",
    "MCP_REFUSED": "Look at the arguments, or do it in another way.",
    "MCP_PROTOCOL": "Do it in another way: this call will not work.",
    "MCP_INPUT": "Do it in another way.",
}
_GIVEN_UP: Final = (
    "Do not call its tools again in this run: do it in another way, or say in your summary what is missing."
)


def fault_of(tool: McpTool, error: PeerError, *, is_given_up: bool) -> Outcome:
    """The outcome of a call that the server did not answer: a code, a fact and the next step."""
    advice = _GIVEN_UP if is_given_up else _NEXT[error.code]
    fact = readable(error.fact.encode("utf-8", "replace"))
    fact = clip_lines(fact, 1_500).rstrip(".\n")
    return failure(error.code, f"MCP server {tool.server}: {_CLOSING.sub('<', fact)}. {advice}", tool=tool.name)
