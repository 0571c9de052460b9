"""What the tools of MCP servers and those who speak the protocol know of each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from xnagent.core.mcp import Offer
from xnagent.core.text import Json
from xnagent.ports import Service, Workspace

PartKind = Literal["text", "link", "binary"]
FaultCode = Literal["MCP_DOWN", "MCP_TIMEOUT", "MCP_REFUSED", "MCP_PROTOCOL", "MCP_INPUT"]


class PeerError(Exception):
    """A server did not do what it was asked for; `fact` says how, in a sentence without its end."""

    def __init__(self, code: FaultCode, fact: str, *, is_over: bool = False) -> None:
        """`is_over`: the connection is of no use any more."""
        super().__init__(fact)
        self.code: FaultCode = code
        self.fact = fact
        self.is_over = is_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A configured server: a service of each run, or an address of the whole session."""

    server: str
    start_seconds: float
    call_seconds: float
    service: Service | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """With their values."""
    missing: str = ""
    """A variable that is needed and not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a result."""

    kind: PartKind
    text: str = ""
    """The text, or what a link or binary content is called."""
    media_type: str = ""
    data: bytes | None = None
    """Binary content; None: it could not be decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool gave back."""

    parts: tuple[Part, ...]
    structured: Json = None
    is_error: bool = False


class Peer(Protocol):
    """A server that answers. Its methods raise PeerError."""

    @property
    def protocol(self) -> str:
        """The version of the protocol that was agreed on."""

    @property
    def is_open(self) -> bool:
        """Whether it is still there, as far as can be told without asking it."""

    async def offers(self) -> tuple[Offer, ...]:
        """Its tools."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Call one of them."""


class Dialler(Protocol):
    """Speaks the protocol."""

    def open(
        self, endpoint: Endpoint, *, place: Workspace | None, protocol: str, on_change: Callable[[], None]
    ) -> AbstractAsyncContextManager[Peer]:
        """A connection; raises PeerError. `protocol` is the version that it is known to speak, empty: to be found out.

        `on_change` is called when the server says that its tools are others now.
        """


def fault_of(error: Exception | None) -> PeerError | None:
    """What ended the talk, as a fault of the server; None: nothing did."""
    if error is None or isinstance(error, PeerError):
        return error
    told = str(error).strip() or type(error).__name__
    return PeerError("MCP_DOWN", told, is_over=True)
