"""Repositories on other machines, as people name them: `https://…`, `ssh://…`, `git@host:path`, `git://…`, `file://…`.

A login may stand in an https or http address as `user:password@`, or better as the name of an environment variable:
`${GIT_LOGIN}@` or `user:${GIT_LOGIN_ACME}@`. Only a name is ever recorded or printed, and git is told neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from hashlib import sha256
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from xnagent.core.values import dataclass
from xnagent.errors import UsageError

SCHEMES: Final = ("https", "http", "ssh", "git", "file")
"""Git can speak more; `ext` would run a command."""
REFERENCE: Final = re.compile(r"\$\{(GIT_LOGIN[A-Z0-9_]*)\}")
"""The name of a variable in place of a login; no others, so that nobody else's address can ask for your other keys."""
SSH_LIKE: Final = re.compile(r"(?P<user>[^/\s@:]+)@(?P<host>\[[0-9A-Fa-f:.]+\]|[^/\s:@\[\]]+):(?P<path>(?!//)\S+)")
HASH_DIGITS: Final = 24

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//|:)")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f]|%0[0ad]", re.IGNORECASE)
_USERINFO: Final = re.compile(r"(?<=://)[^/?#]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a repository can be fetched from."""

    url: str
    """In one spelling, without a login: what git is told, and what errors say."""
    scheme: str
    login: str = field(default="", repr=False)
    """As it was given, with https and http; "": whatever `~/.netrc` knows."""

    @property
    def text(self) -> str:
        """What is recorded: the login only if its secret is the name of a variable."""
        if not REFERENCE.fullmatch(self.login.rpartition(":")[2]):
            return self.url
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{self.login}@{rest}"

    @property
    def name(self) -> str:
        """Of its mirror's folder: a hash of the URL."""
        return sha256(self.url.encode("utf-8", "surrogateescape")).hexdigest()[:HASH_DIGITS]

    def credentials(self, environ: Mapping[str, str]) -> tuple[str, str] | None:
        """User and password. Raises UsageError if a variable is not set."""
        if not self.login:
            return None
        parts = [self._value(part, environ) for part in self.login.split(":", 1)]
        user, _, password = ":".join(parts).partition(":") if len(parts) == 1 else (parts[0], ":", parts[1])
        return user, password

    def _value(self, part: str, environ: Mapping[str, str]) -> str:
        found = REFERENCE.fullmatch(part)
        if found is None:
            return unquote(part)
        if not environ.get(found[1]):
            raise UsageError(f"LOGIN_MISSING: {found[1]} is not set; {self.url} needs it")
        return environ[found[1]]


def is_address(text: str) -> bool:
    """Whether it names a repository to be fetched and not a folder. One that git would take for a helper counts."""
    return bool(_ADDRESS.match(text) or SSH_LIKE.fullmatch(text))


def parse_address(text: str) -> Address:
    """Take an address apart. Raises UsageError for one that is not fetched from; the message holds no password."""
    if _UNPRINTABLE.search(text):
        raise _refused(text, "it holds a space or control character")
    if (found := SSH_LIKE.fullmatch(text)) is not None:
        return _ssh_like(found, text)
    try:
        parts = urlsplit(text)
        has_port = parts.port is not None
    except ValueError as error:
        raise _refused(text, str(error)) from error
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES or not text[len(scheme) :].startswith("://"):
        raise _refused(text, f"only {', '.join(SCHEMES)} and user@host:path are fetched from")
    if scheme == "file":
        return _file(parts, text)
    if not parts.hostname or parts.hostname.startswith("-") or not parts.path.strip("/"):
        raise _refused(text, "it names no host or no repository")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = f"{host}:{parts.port}" if has_port else host
    return _remote(parts, text, scheme=scheme, place=place)


def shown_address(text: str) -> str:
    """A text that may be an address, with the user part left out."""
    return _USERINFO.sub("***@", text)


def _remote(parts: SplitResult, text: str, *, scheme: str, place: str) -> Address:
    path = parts.path.rstrip("/")
    if scheme in {"https", "http"}:
        if parts.query or parts.fragment:
            raise _refused(text, "a query has no place in a repository's address")
        login = parts.netloc.rpartition("@")[0]
        if "${" in REFERENCE.sub("", login):
            raise _refused(text, "a variable for a login has a name that begins with GIT_LOGIN")
        return Address(url=f"{scheme}://{place}{path}", scheme=scheme, login=login)
    if parts.password is not None or (scheme == "git" and parts.username is not None):
        raise _refused(text, f"{scheme} takes no password from an address; use a key or an agent")
    user = f"{parts.username}@" if parts.username else ""
    if user.startswith("-"):
        raise _refused(text, "a user's name does not begin with a dash")
    return Address(url=f"{scheme}://{user}{place}{path}", scheme=scheme)


def _ssh_like(found: re.Match[str], text: str) -> Address:
    if text.startswith("-") or found["host"].startswith("-"):
        raise _refused(text, "a user's or host's name does not begin with a dash")
    return Address(url=text.rstrip("/"), scheme="ssh")


def _file(parts: SplitResult, text: str) -> Address:
    if parts.netloc not in {"", "localhost"} or not parts.path.strip("/"):
        raise _refused(text, "write file:///path/to/repository")
    return Address(url=f"file://{text.split('://', 1)[1].removeprefix('localhost').rstrip('/')}", scheme="file")


def _refused(text: str, why: str) -> UsageError:
    return UsageError(f"ADDRESS_REFUSED: {shown_address(text)!r}: {why}")
