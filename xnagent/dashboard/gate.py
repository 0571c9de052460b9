"""Who may ask: the one who has the token, by an address of this server, from its own pages."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["let_in", "welcome", "wrong_host", "wrong_site", "no_token"]
"""`welcome`: the token stands in the address; it becomes a cookie."""

OWN_SITES: Final = frozenset({"", "same-origin", "none"})
HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What of a request decides."""

    method: str
    headers: Mapping[str, str]
    """By lower-case name."""
    cookie: str
    token: str
    """As it stands in the address; empty: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Decides about each request before anything else does."""

    token: str
    names: frozenset[str]
    """How the server may be called, in lower case; addresses in numbers always may."""

    def verdict(self, asked: Asked) -> Verdict:
        """Whether it goes on, and why not."""
        host = asked.headers.get("host", "")
        if not self._is_own_name(host):
            return "wrong_host"
        if asked.method == "GET" and self._is_token(asked.token):
            return "welcome"
        if not _is_own_site(asked, host):
            return "wrong_site"
        return "let_in" if self._is_token(asked.cookie) or self._is_token(_bearer(asked)) else "no_token"

    def _is_own_name(self, host: str) -> bool:
        """No name that somebody else could let lead here: against DNS rebinding."""
        found = HOST.fullmatch(host)
        return found is not None and (found["name"].lower() in self.names or _is_address(found["name"]))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _is_own_site(asked: Asked, host: str) -> bool:
    """Not asked by a page from elsewhere, another port of this machine included; changes only by a page of ours."""
    origin, site = asked.headers.get("origin"), asked.headers.get("sec-fetch-site", "")
    if site not in OWN_SITES or (origin is not None and origin != f"http://{host}"):
        return False
    return asked.method in {"GET", "HEAD"} or origin is not None or bool(_bearer(asked))


def _bearer(asked: Asked) -> str:
    kind, _, given = asked.headers.get("authorization", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""
