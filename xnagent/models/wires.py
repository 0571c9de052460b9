"""The wires by name: what each is made of. Everything else that a request or an answer needs is the same for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from xnagent.core.ids import AgentId
from xnagent.core.items import Item
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.values import dataclass
from xnagent.errors import UsageError
from xnagent.models import chat, messages, responses
from xnagent.models.chat_stream import ChatDecoder
from xnagent.models.decoding import Decoder
from xnagent.models.encoder import Renderer, render
from xnagent.models.messages_stream import MessagesDecoder
from xnagent.models.responses_stream import ResponsesDecoder
from xnagent.models.transport import KEY, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A protocol: two pure halves, and where its requests go."""

    renderer: Renderer
    new_decoder: Callable[[], Decoder]
    target: Target


_BEARER: Final = {"Authorization": f"Bearer {KEY}"}

CHAT: Final = Wire(
    renderer=chat.ChatRenderer(),
    new_decoder=ChatDecoder,
    target=Target(path="/chat/completions", headers=_BEARER),
)
RESPONSES: Final = Wire(
    renderer=responses.ResponsesRenderer(),
    new_decoder=ResponsesDecoder,
    target=Target(path="/responses", headers=_BEARER),
)
MESSAGES: Final = Wire(
    renderer=messages.MessagesRenderer(),
    new_decoder=MessagesDecoder,
    target=Target(path="/v1/messages", headers={"x-api-key": KEY, "anthropic-version": "2023-06-01"}),
)

BY_NAME: Final[Mapping[str, Wire]] = {chat.WIRE: CHAT, responses.WIRE: RESPONSES, messages.WIRE: MESSAGES}


def wire_named(name: str, *, model: str) -> Wire:
    """The wire. Raises UsageError for one that this version does not speak."""
    if name not in BY_NAME:
        raise UsageError(f"WIRE_UNKNOWN: wire {name!r} of model {model!r}: this version speaks {', '.join(BY_NAME)}")
    return BY_NAME[name]


def encode(
    manifest: ManifestRecorded, items: Sequence[Item], *, long_items: int = 0, agent: AgentId | None = None
) -> bytes:
    """The body of an agent's request, on the wire that its manifest names: the bytes that were sent, for its spine.

    Cache markers up to `long_items` items ask for the longer lifetime, as the log says of each request.
    Raises UsageError for a wire that this version does not speak.
    """
    renderer = wire_named(manifest.wire, model=manifest.model).renderer
    return render(renderer, manifest, items=items, long_items=long_items, agent=agent)
