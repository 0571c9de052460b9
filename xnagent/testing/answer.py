"""A whole answer before it is written in a wire's words."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xnagent.core.text import Json
from xnagent.testing.reading import Wire
from xnagent.testing.script import ReplySpec
from xnagent.testing.usage import Usage

PIECE_CHARACTERS: Final = 40
"""How much text a chunk holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer with the ids of its calls."""

    spec: ReplySpec
    ids: tuple[str, ...]
    model: str
    created: str
    """The answer's id."""
    usage: Usage
    wire: Wire = "chat"
    is_encrypted: bool = False
    """Whether reasoning comes in a form that can be sent back (Responses)."""
    tells_progress: bool = False
    """Whether it first says how much of the prompt was read (llama.cpp)."""

    @property
    def quirks(self) -> frozenset[str]:
        """What is odd about it."""
        return frozenset(self.spec.quirks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """An answer as a stream."""

    events: list[bytes]
    """Before the end is told: cut anywhere here, the answer is not whole."""
    closing: list[bytes]
    """The finish, the usage and the closing mark."""

    @property
    def all(self) -> list[bytes]:
        """All events."""
        return [*self.events, *self.closing]


def event(data: Json, *, name: str = "") -> bytes:
    """One server-sent event; half a surrogate pair goes as an escape, as providers send it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        text = json.dumps(data, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + b"data: " + text.encode() + b"\n\n"


def pieces(text: str) -> Sequence[str]:
    """A text as it comes in deltas."""
    return [text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)]


def output_bytes(spec: ReplySpec) -> int:
    """How much the model wrote."""
    texts = [spec.text, spec.reasoning, *(call.name + call.text for call in spec.calls)]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def sign(text: str) -> str:
    """The signature of a thinking block."""
    digest = hashlib.sha256(b"thinking:" + text.encode("utf-8", "surrogatepass")).digest()
    return b64encode(digest).decode()


def encrypt(text: str) -> str:
    """Reasoning that only this server reads and checks."""
    raw = text.encode("utf-8", "surrogatepass")
    return b64encode(hashlib.sha256(b"reasoning:" + raw).digest()[:8] + raw).decode()


def decrypt(content: object) -> str | None:
    """What was encrypted; None if it was changed or comes from elsewhere."""
    try:
        raw = b64decode(str(content), validate=True)
        text = raw[8:].decode("utf-8", "surrogatepass")
    except ValueError:
        return None
    return text if encrypt(text) == content else None
