"""A request as the model reads it: blocks in the order of rendering, with the marks and turns that caches look at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

from xnagent.core.text import Json
from xnagent.testing.prefix import compact, without_markers
from xnagent.testing.reading import Message, as_blocks, response_items
from xnagent.testing.received import Received
from xnagent.testing.script import ReplySpec

Order = Literal["tools-system-messages", "system-tools-messages"]
Part = tuple[str, Json]
"""A piece of what the model wrote: its kind (`reasoning`, `text`, `call`) and its content."""

LIFETIMES: Final[Mapping[str, float]] = {"5m": 300.0, "1h": 3600.0, "30m": 1800.0, "12h": 43200.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of the prompt that a mark can stand behind."""

    data: bytes
    """Without marks."""
    mark: str = ""
    """Lifetime of the cache mark on it (`5m`, `1h`, `30m`, `12h`); empty: no mark."""
    written: tuple[Part, ...] | None = None
    """What the model wrote, if it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """All blocks."""

    scope: bytes
    """What a cache never mixes: model and cache key."""
    blocks: tuple[Block, ...]
    slot: int | None = None
    """The slot asked for (llama.cpp)."""
    mode: str = "implicit"
    """Whether the newest block has a mark of itself (OpenAI)."""
    default_mark: str = "30m"
    """Lifetime of marks that name none (OpenAI)."""

    @property
    def data(self) -> bytes:
        """The bytes of all blocks."""
        return b"".join(block.data for block in self.blocks)

    def turns(self) -> Iterator[tuple[int, int, bytes]]:
        """Where the model's turns begin and end, in bytes, and a digest of what it wrote."""
        at, begin, parts = 0, 0, list[Part]()
        for block in self.blocks:
            if block.written is None and parts:
                yield begin, at, digest_parts(parts)
                parts = []
            if block.written is not None:
                begin = begin if parts else at
                parts += block.written
            at += len(block.data)
        if parts:
            yield begin, at, digest_parts(parts)


def digest_parts(parts: Iterable[Part]) -> bytes:
    """A digest of what the model wrote that does not depend on the wire."""
    joined: list[list[Json]] = []
    for kind, content in parts:
        if kind != "call" and joined and joined[-1][0] == kind:
            joined[-1][1] = f"{joined[-1][1]}{content}"
        elif content:
            joined.append([kind, content])
    order = sorted(joined, key=lambda part: ("reasoning", "text", "call").index(str(part[0])))
    return hashlib.blake2b(compact(order), digest_size=16).digest()


def digest_reply(spec: ReplySpec) -> bytes:
    """The digest of an answer."""
    calls: list[Part] = [("call", [call.name, _arguments(call.text)]) for call in spec.calls]
    return digest_parts([("reasoning", spec.reasoning), ("text", spec.text), *calls])


def prompt_of(request: Received, order: Order) -> Prompt:
    """The prompt of a request."""
    data = request.data
    tools = [_marked(tool, compact(without_markers(tool))) for tool in data.get("tools") or ()]
    system, messages = _PARTS[request.wire](data)
    head = [*tools, *system] if order == "tools-system-messages" else [*system, *tools]
    blocks = [*head, *messages]
    if data.get("cache_control") and blocks:
        blocks[-1] = Block(data=blocks[-1].data, mark=_mark_of(data), written=blocks[-1].written)
    options = data.get("prompt_cache_options") or {}
    slot = data.get("id_slot")
    return Prompt(
        scope=compact([data.get("model"), data.get("prompt_cache_key")]),
        blocks=tuple(blocks),
        slot=slot if isinstance(slot, int) and slot >= 0 else None,
        mode=options.get("mode", "implicit"),
        default_mark=options.get("ttl", "30m"),
    )


def prompt_bytes(request: Received, order: Order) -> bytes:
    """The prompt of a request as bytes."""
    return prompt_of(request, order).data


def _chat_parts(data: Mapping[str, Any]) -> tuple[list[Block], list[Block]]:
    messages = [message for message in data.get("messages") or () if isinstance(message, dict)]
    count = next((n for n, m in enumerate(messages) if m.get("role") not in {"system", "developer"}), len(messages))
    blocks = [list(_chat_blocks(message)) for message in messages]
    return list(chain.from_iterable(blocks[:count])), list(chain.from_iterable(blocks[count:]))


def _chat_blocks(message: Mapping[str, Any]) -> Iterator[Block]:
    written = tuple(_chat_written(message)) if message.get("role") == "assistant" else None
    content = message.get("content")
    if written is not None or not isinstance(content, list):
        yield Block(data=compact(message), written=written)
        return
    yield Block(data=compact({key: value for key, value in message.items() if key != "content"}))
    yield from (_marked(part, compact(without_markers(part))) for part in content)


def _chat_written(message: Mapping[str, Any]) -> Iterator[Part]:
    yield "reasoning", message.get("reasoning_content") or ""
    content = message.get("content")
    yield "text", "".join(part.get("text", "") for part in content) if isinstance(content, list) else content or ""
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        yield "call", [function.get("name"), _arguments(function.get("arguments"))]


def _responses_parts(data: Mapping[str, Any]) -> tuple[list[Block], list[Block]]:
    system = [Block(data=compact(data["instructions"]))] if data.get("instructions") else []
    return system, [block for item in response_items(data) for block in _item_blocks(item)]


def _item_blocks(item: Mapping[str, Any]) -> Iterator[Block]:
    content = item.get("content")
    match item.get("type", "message"):
        case "message" if item.get("role") == "assistant":
            text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
            yield Block(data=compact(item), written=(("text", text),))
        case "message" if isinstance(content, list):
            yield Block(data=compact({key: value for key, value in item.items() if key != "content"}))
            yield from (_marked(part, compact(without_markers(part))) for part in content)
        case "reasoning":
            summary = "".join(part.get("text", "") for part in item.get("summary") or ())
            yield Block(data=compact(item), written=(("reasoning", summary),))
        case "function_call":
            call: Json = [item.get("name"), _arguments(item.get("arguments"))]
            yield Block(data=compact(item), written=(("call", call),))
        case _:
            yield Block(data=compact(item))


def _anthropic_parts(data: Mapping[str, Any]) -> tuple[list[Block], list[Block]]:
    system = [_marked(block, compact(without_markers(block))) for block in as_blocks(data.get("system"))]
    settings = compact([data.get("thinking"), data.get("tool_choice")])
    messages = []
    for message in data.get("messages") or ():
        role = message.get("role")
        for block in as_blocks(message.get("content")):
            written = _anthropic_written(block) if role == "assistant" else None
            messages.append(_marked(block, compact([role, without_markers(block)]), written=written))
    if messages:
        first = messages[0]
        messages[0] = Block(data=settings + first.data, mark=first.mark, written=first.written)
    return system, messages


def _anthropic_written(block: Mapping[str, Any]) -> tuple[Part, ...]:
    match block.get("type"):
        case "thinking":
            return (("reasoning", block.get("thinking") or ""),)
        case "text":
            return (("text", block.get("text") or ""),)
        case "tool_use":
            return (("call", [block.get("name"), block.get("input")]),)
        case _:
            return ()


def _marked(block: Message, data: bytes, *, written: tuple[Part, ...] | None = None) -> Block:
    return Block(data=data, mark=_mark_of(block), written=written)


def _mark_of(block: Mapping[str, Any]) -> str:
    if isinstance(found := block.get("cache_control"), Mapping):
        return str(found.get("ttl") or "5m")
    found = block.get("prompt_cache_breakpoint")
    return str(found.get("ttl") or "default") if isinstance(found, Mapping) else ""


def _arguments(text: object) -> Json:
    if not isinstance(text, str):
        return text if isinstance(text, dict | list) else None
    try:
        parsed: Json = json.loads(text)
    except ValueError:
        return text
    return parsed


def tokens_of(size_bytes: int, bytes_per_token: int) -> int:
    """How many tokens so many bytes are."""
    return -(-size_bytes // bytes_per_token)


def ends_of(blocks: Sequence[Block]) -> list[int]:
    """Where each block ends, in bytes."""
    ends, at = [], 0
    for block in blocks:
        at += len(block.data)
        ends.append(at)
    return ends


_PARTS: Final = {"chat": _chat_parts, "responses": _responses_parts, "messages": _anthropic_parts}
