"""What to serve and where: values that need no server to be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xnagent.app.host import Host
from xnagent.core.masking import Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One server."""

    host: Host
    mask: Mask
    listen: str
    """Name or address."""
    port: int
    """0: any that is free."""
    token: str
    """Who has it sees everything."""
    can_act: bool
    """Sessions can be told something and cancelled."""
    words: Sequence[str]
    """Options that a command needs to find the same store."""


class Ready(Protocol):
    """Is told once when the server can be asked."""

    def __call__(self, address: str, *, host: str, port: int, is_loopback: bool) -> None:
        """The address holds the token."""
