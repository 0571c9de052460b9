"""What OpenAI refuses in a Responses request that nothing is stored for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from xnagent.testing.answer import decrypt
from xnagent.testing.check_ids import openai_id
from xnagent.testing.check_schema import openai_tools
from xnagent.testing.reading import response_items
from xnagent.testing.refusal import Refusal

_MOST_ID_LETTERS: Final = 64
_ROLES: Final = ("assistant", "system", "developer", "user")

Item = Mapping[str, Any]


def check_responses(data: Mapping[str, Any], *, reasoned: Mapping[str, str]) -> Iterator[Refusal]:
    """Everything wrong; `reasoned` holds the calls (by id) that were made with reasoning."""
    items = response_items(data)
    if not items:
        yield Refusal(
            message="One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
            code="missing_required_parameter",
            param="input",
        )
    if data.get("previous_response_id"):
        previous = data["previous_response_id"]
        yield Refusal(
            message=f"Previous response with id '{previous}' not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    for number, item in enumerate(items):
        yield from _item(number, item)
    yield from _pairs(items)
    yield from _reasoning(items, reasoned)
    yield from openai_tools(data.get("tools"), is_flat=True)


def _item(number: int, item: Item) -> Iterator[Refusal]:
    match item.get("type", "message"):
        case "message" if item.get("role") not in _ROLES:
            listed = ", ".join(repr(one) for one in _ROLES[:-1])
            yield Refusal(
                message=f"Invalid value: {item.get('role')!r}. Supported values are: {listed}, and {_ROLES[-1]!r}.",
                code="invalid_value",
                param=f"input[{number}].role",
            )
        case "message":
            yield from _parts(f"input[{number}].content", item)
        case "function_call" | "function_call_output":
            yield from openai_id(f"input[{number}].call_id", item.get("call_id"), most_letters=_MOST_ID_LETTERS)
        case "reasoning":
            yield from _encrypted(item)
        case "item_reference":
            yield _not_kept(item)
        case _:
            return


def _parts(where: str, item: Item) -> Iterator[Refusal]:
    content = item.get("content")
    expected = "output_text" if item.get("role") == "assistant" else "input_text"
    for number, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type")
        if kind != expected and kind in {"input_text", "output_text", "text"}:
            other = "refusal" if expected == "output_text" else "input_image"
            yield Refusal(
                message=f"Invalid value: '{kind}'. Supported values are: '{expected}' and '{other}'.",
                code="invalid_value",
                param=f"{where}[{number}].type",
            )


def _encrypted(item: Item) -> Iterator[Refusal]:
    hidden = item.get("encrypted_content")
    if not hidden:
        yield _not_kept(item)
    elif decrypt(hidden) is None:
        yield Refusal(
            message=f"The encrypted content for item {item.get('id')} could not be verified. Reason: Encrypted content "
            "could not be decrypted or parsed.",
            code="invalid_encrypted_content",
        )


def _not_kept(item: Item) -> Refusal:
    return Refusal(
        message=f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. Try "
        "again with `store` set to true, or remove this item from your input.",
        status=404,
        param="input",
    )


def _pairs(items: Sequence[Item]) -> Iterator[Refusal]:
    calls = Counter(one.get("call_id") for one in items if one.get("type") == "function_call")
    outputs = Counter(one.get("call_id") for one in items if one.get("type") == "function_call_output")
    for call_id in calls:
        if call_id not in outputs:
            yield Refusal(message=f"No tool output found for function call {call_id}.", param="input")
    for call_id in outputs:
        if call_id not in calls:
            yield Refusal(message=f"No tool call found for function call output with call_id {call_id}.", param="input")
    for call_id, count in (calls | outputs).items():
        if count > 1:
            yield Refusal(message=f"Duplicate item found with call_id {call_id}.", param="input")


def _reasoning(items: Sequence[Item], reasoned: Mapping[str, str]) -> Iterator[Refusal]:
    """Reasoning stands right before what it led to, and comes back with it."""
    turn: list[Item] = []
    for item, following in zip(items, [*items[1:], None], strict=True):
        if not _is_written(item):
            turn = []
            continue
        turn.append(item)
        if item.get("type") == "reasoning" and (following is None or not _is_written(following)):
            yield Refusal(
                message=f"Item '{item.get('id')}' of type 'reasoning' was provided "
                "without its required following item.",
                param="input",
            )
        is_alone = not any(one.get("type") == "reasoning" for one in turn)
        if item.get("type") == "function_call" and item.get("call_id") in reasoned and is_alone:
            needed = "rs_" + str(item.get("id", "")).removeprefix("fc_").rpartition("_")[0]
            yield Refusal(
                message=f"Item '{item.get('id')}' of type 'function_call' was provided without its required "
                f"'reasoning' item: '{needed}'.",
                param="input",
            )


def _is_written(item: Item) -> bool:
    return item.get("type") in {"reasoning", "function_call"} or item.get("role") == "assistant"
