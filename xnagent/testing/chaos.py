"""Faults drawn from a seed: the same for the same request and attempt, and so few that each request is answered."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from xnagent.core.text import Json
from xnagent.testing.providers import Family
from xnagent.testing.reading import Wire
from xnagent.testing.refusal import Refusal, error_body
from xnagent.testing.script import QUIRKS, Fault

_CHAT_ONLY: Final = frozenset({"no_done", "empty_choices", "repeated_ids", "index_zero", "duplicate_ids", "empty_ids"})
"""Oddities of gateways that speak the chat wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What goes wrong with one attempt: a fault in place of the answer, or quirks of it; or nothing."""

    fault: Fault | None = None
    quirks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """What a fault is made from."""

    dice: Random
    chaos: Chaos
    wire: Wire
    family: Family

    def error(self, status: int, kind: str, *, message: str, code: str | None = None) -> Json:
        """An error body in the provider's shape."""
        refusal = Refusal(message=message, status=status, type=kind, code=code)
        return error_body(refusal, wire=self.wire, family=self.family)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chaos:
    """How often, which, and how long."""

    seed: int
    rate: float = 0.2
    """Share of the attempts that have a trouble."""
    kinds: tuple[str, ...] = ()
    """Names in `FAULTS` and `script.QUIRKS`; empty: all that the wire can have."""
    most_per_body: int | None = 2
    """Attempts of one body that may have one; None: any number, so that a request may stay unanswered."""
    wait_seconds: float = 1.0
    """The longest wait that a `Retry-After` asks for."""
    hang_seconds: float = 0.5
    """How long the server keeps silent before it closes the connection."""

    def __post_init__(self) -> None:
        if unknown := set(self.kinds).difference(FAULTS, QUIRKS):
            raise ValueError(f"unknown kind of trouble {min(unknown)!r}; known: {', '.join([*FAULTS, *QUIRKS])}")

    def draw(self, body: bytes, *, attempt: int, wire: Wire, family: Family) -> Trouble:
        """The trouble of the n-th attempt (1, 2, …) of a body: a function of seed, body and attempt."""
        digest = hashlib.sha256(f"{self.seed}:{attempt}:".encode() + hashlib.sha256(body).digest()).digest()
        dice = Random(digest)
        is_over = self.most_per_body is not None and attempt > self.most_per_body
        if is_over or dice.random() >= self.rate:
            return Trouble()
        possible = [kind for kind in self.kinds or (*FAULTS, *QUIRKS) if wire == "chat" or kind not in _CHAT_ONLY]
        if not possible:
            return Trouble()
        kind = dice.choice(possible)
        if kind in QUIRKS:
            return Trouble(quirks=(kind,))
        return Trouble(fault=FAULTS[kind](_Draw(dice=dice, chaos=self, wire=wire, family=family)))


def retry_after_shapes(wait_seconds: float) -> tuple[Mapping[str, str], ...]:
    """Every shape of `Retry-After` that was seen (B022), none asking for more than so long."""
    whole = str(int(wait_seconds))
    header = (
        whole,
        f" {whole} ",
        f"{wait_seconds / 2:.2f}",
        "0",
        "-1",
        f"date+{whole}",
        "date-3600",
        "Tue, 99 Foo 2030 00:00:00 GMT",
        "",
        "abc",
        "nan",
        "inf",
        f"{whole}, {whole}",
    )
    milliseconds = {"retry-after-ms": str(int(wait_seconds * 500))}
    return ({}, milliseconds, *({"Retry-After": value} for value in header))


def _rate_limit(draw: _Draw) -> Fault:
    kind, code = ("rate_limit_error", None) if draw.wire == "messages" else ("requests", "rate_limit_exceeded")
    body = draw.error(429, kind, message="Rate limit reached for requests", code=code)
    return Fault(status=429, headers=draw.dice.choice(retry_after_shapes(draw.chaos.wait_seconds)), body=body)


def _server(status: int) -> Callable[[_Draw], Fault]:
    def made(draw: _Draw) -> Fault:
        kind = {529: "overloaded_error"}.get(status, "api_error" if draw.wire == "messages" else "server_error")
        says = {503: "The engine is currently overloaded, please try again later", 529: "Overloaded"}
        body = draw.error(status, kind, message=says.get(status, "The server had an error"))
        return Fault(status=status, body=body)

    return made


def _gateway(status: int) -> Callable[[_Draw], Fault]:
    return lambda _draw: Fault(status=status, html=True)


def _cut(draw: _Draw) -> Fault:
    return Fault(cut_share=draw.dice.random(), is_polite=draw.dice.random() < _EVEN)


def _hang(how: str) -> Callable[[_Draw], Fault]:
    return lambda draw: Fault(hang=how, hang_seconds=draw.chaos.hang_seconds)


def _stall(draw: _Draw) -> Fault:
    return Fault(hang="stream", hang_seconds=draw.chaos.hang_seconds, after_events=draw.dice.randint(1, _MOST_EVENTS))


def _error_event(draw: _Draw) -> Fault:
    overloaded: Json = {"type": "overloaded_error", "message": "Overloaded"}
    failed: Json = {"message": "Internal Network Failure", "code": 502}
    error = draw.dice.choice([overloaded, failed, "upstream timeout"])
    return Fault(error_event=error, after_events=draw.dice.randint(0, _MOST_EVENTS))


def _wrong_type(draw: _Draw) -> Fault:
    text = "upstream connect error or disconnect/reset before headers. reset reason: connection termination"
    return Fault(status=200, body=text, content_type=draw.dice.choice(["text/plain", "application/octet-stream"]))


_EVEN: Final = 0.5
_MOST_EVENTS: Final = 4

FAULTS: Final[Mapping[str, Callable[[_Draw], Fault]]] = {
    "rate_limit": _rate_limit,
    "error_500": _server(500),
    "html_502": _gateway(502),
    "error_503": _server(503),
    "html_504": _gateway(504),
    "error_529": _server(529),
    "html_200": _gateway(200),
    "wrong_type": _wrong_type,
    "hang": _hang("start"),
    "stall": _stall,
    "keepalive_only": _hang("keepalive"),
    "cut": _cut,
    "error_event": _error_event,
}
"""By kind. All of them are worth a retry."""
