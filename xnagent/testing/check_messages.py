"""What Anthropic refuses in a Messages request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from xnagent.testing.answer import sign
from xnagent.testing.check_marks import check_marks
from xnagent.testing.check_schema import anthropic_tools
from xnagent.testing.reading import as_blocks
from xnagent.testing.refusal import Refusal

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_THINKING_FIRST: Final = (
    "Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is enabled, a final `assistant` "
    "message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We "
    "recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
)

Block = Mapping[str, Any]
Turn = tuple[str, list[dict[str, Any]]]


def check_messages(data: Mapping[str, Any], *, alternates: bool, reasoned: Mapping[str, str]) -> Iterator[Refusal]:
    """Everything wrong; `reasoned` holds the calls (by id) that were made with thinking."""
    for field in ("model", "max_tokens", "messages"):
        if data.get(field) is None:
            yield Refusal(message=f"{field}: Field required")
    given = data.get("messages")
    turns: list[Turn] = [(str(one.get("role")), as_blocks(one.get("content"))) for one in given or ()]
    yield from _roles(turns, alternates=alternates)
    yield from check_marks(data)
    for number, (role, blocks) in enumerate(turns):
        yield from _content(number, blocks, is_last=number == len(turns) - 1 and role == "assistant")
    yield from _pairs(turns)
    yield from _thinking(data, turns, reasoned=reasoned)
    yield from anthropic_tools(data.get("tools"))


def _roles(turns: Sequence[Turn], *, alternates: bool) -> Iterator[Refusal]:
    if not turns:
        yield Refusal(message="messages: at least one message is required")
        return
    for number, (role, _) in enumerate(turns):
        if role == "system":
            yield Refusal(
                message='messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, '
                'not "system" as an input message role.'
            )
        elif role not in {"user", "assistant"}:
            yield Refusal(message=f"messages.{number}.role: Input should be 'user' or 'assistant'")
        if alternates and number and turns[number - 1][0] == role:
            yield Refusal(
                message='messages: roles must alternate between "user" and "assistant", but found multiple '
                f'"{role}" roles in a row'
            )
    if turns[0][0] == "assistant":
        yield Refusal(message='messages: first message must use the "user" role')
    if turns[-1][0] == "assistant":
        yield Refusal(
            message="This model does not support assistant message prefill. "
            "The conversation must end with a user message."
        )


def _content(number: int, blocks: Sequence[Block], *, is_last: bool) -> Iterator[Refusal]:
    if not blocks and not is_last:
        yield Refusal(
            message=f"messages.{number}: all messages must have non-empty content except for the optional final "
            "assistant message"
        )
    for place, block in enumerate(blocks):
        where = f"messages.{number}.content.{place}"
        match block.get("type"):
            case "text" if not block.get("text"):
                yield Refusal(message="messages: text content blocks must be non-empty")
            case "text" if not str(block["text"]).strip():
                yield Refusal(message="messages: text content blocks must contain non-whitespace text")
            case "tool_use":
                yield from _tool_use(where, block)
            case "thinking" if block.get("signature") != sign(str(block.get("thinking"))):
                yield Refusal(message=f"{where}: Invalid `signature` in `thinking` block")
            case _:
                continue


def _tool_use(where: str, block: Block) -> Iterator[Refusal]:
    if not _ID.fullmatch(str(block.get("id", ""))):
        yield Refusal(message=f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("input"), Mapping):
        yield Refusal(message=f"{where}.tool_use.input: Input should be a valid dictionary")


def _pairs(turns: Sequence[Turn]) -> Iterator[Refusal]:
    seen: set[str] = set()
    merged = _merged(turns)
    for position, (number, role, blocks) in enumerate(merged):
        before = merged[position - 1][2] if position else []
        yield from _results(number, blocks, before=before)
        uses = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if len(set(uses)) < len(uses) or seen.intersection(uses):
            yield Refusal(message=f"messages.{number}: `tool_use` ids must be unique")
        seen.update(uses)
        after = merged[position + 1][2] if position + 1 < len(merged) else []
        answered = _leading_results(after)
        if role == "assistant" and (missing := [use for use in uses if use not in answered]):
            yield Refusal(
                message=f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block "
                "in the next message."
            )


def _merged(turns: Sequence[Turn]) -> list[tuple[int, str, list[dict[str, Any]]]]:
    """Neighbours of one role are one turn, as the provider reads them; with the number of the first message."""
    merged: list[tuple[int, str, list[dict[str, Any]]]] = []
    for number, (role, blocks) in enumerate(turns):
        if merged and merged[-1][1] == role:
            merged[-1][2].extend(blocks)
        else:
            merged.append((number, role, list(blocks)))
    return merged


def _leading_results(blocks: Sequence[Block]) -> list[str]:
    count = next((n for n, block in enumerate(blocks) if block.get("type") != "tool_result"), len(blocks))
    return [str(block.get("tool_use_id")) for block in blocks[:count]]


def _results(number: int, blocks: Sequence[Block], *, before: Sequence[Block]) -> Iterator[Refusal]:
    uses = [str(block.get("id")) for block in before if block.get("type") == "tool_use"]
    answered: set[str] = set()
    for place, block in enumerate(blocks):
        if block.get("type") != "tool_result":
            continue
        use = str(block.get("tool_use_id"))
        if use not in uses:
            yield Refusal(
                message=f"messages.{number}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{use}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if use in answered:
            yield Refusal(
                message=f"messages.{number}.content.{place}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {use}"
            )
        answered.add(use)


def _thinking(data: Mapping[str, Any], turns: Sequence[Turn], *, reasoned: Mapping[str, str]) -> Iterator[Refusal]:
    thinking = data.get("thinking") or {}
    budget, most = thinking.get("budget_tokens"), data.get("max_tokens")
    if isinstance(budget, int) and isinstance(most, int) and budget >= most:
        yield Refusal(message="`max_tokens` must be greater than `thinking.budget_tokens`.")
    if thinking.get("type") not in {"enabled", "adaptive"}:
        return
    if (data.get("tool_choice") or {}).get("type") in {"any", "tool"} and thinking["type"] == "enabled":
        yield Refusal(message="Thinking may not be enabled when tool_choice forces tool use.")
    loop = next((n for n in range(len(turns) - 1, -1, -1) if _is_question(turns[n])), -1)
    for number, (role, blocks) in enumerate(turns[loop + 1 :], loop + 1):
        kinds = [block.get("type") for block in blocks]
        ids = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
        if role == "assistant" and ids.intersection(reasoned) and kinds[0] not in _THINKING:
            yield Refusal(message=f"messages.{number}.content.0.type: {_THINKING_FIRST.format(found=kinds[0])}")


def _is_question(turn: Turn) -> bool:
    """A user's message that begins a new turn: one that holds no results."""
    return turn[0] == "user" and not any(block.get("type") == "tool_result" for block in turn[1])
