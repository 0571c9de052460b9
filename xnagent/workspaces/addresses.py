"""Repositories on other machines, as people name them: `https://…`, `ssh://…`, `git@host:path`, `git://…`, `file://…`.

What is recorded, printed or handed to git is `Address.text`, which never holds a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from xnagent.errors import UsageError

SCHEMES: Final = ("https", "http", "ssh", "git", "file")
"""Git can speak more; `ext` would run a command."""
SSH_LIKE: Final = re.compile(r"(?P<user>[^/\s@:]+)@(?P<host>\[[0-9A-Fa-f:.]+\]|[^/\s:@\[\]]+):(?P<path>(?!//)\S+)")
HASH_DIGITS: Final = 24

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//|:)")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f]|%0[0ad]", re.IGNORECASE)
_USERINFO: Final = re.compile(r"(?<=://)[^/?#]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a repository can be fetched from."""

    text: str
    """Without credentials, in one spelling: what may be seen, and what git is told."""
    scheme: str
    username: str | None = field(default=None, repr=False)
    """With https and http; None: whatever `~/.netrc` knows."""
    password: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Of its mirror's folder: a hash of the text."""
        return sha256(self.text.encode("utf-8", "surrogateescape")).hexdigest()[:HASH_DIGITS]

    def masked(self, text: str) -> str:
        """The text without this address's credentials."""
        for secret in (self.password, self.username):
            if secret and self.scheme in {"https", "http"}:
                text = text.replace(secret, "***")
        return text


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
        username = None if parts.username is None else unquote(parts.username)
        password = None if username is None else unquote(parts.password or "")
        return Address(text=f"{scheme}://{place}{path}", scheme=scheme, username=username, password=password)
    if parts.password is not None or (scheme == "git" and parts.username is not None):
        raise _refused(text, f"{scheme} takes no password from an address; use a key or an agent")
    user = f"{parts.username}@" if parts.username else ""
    if user.startswith("-"):
        raise _refused(text, "a user's name does not begin with a dash")
    return Address(text=f"{scheme}://{user}{place}{path}", scheme=scheme)


def _ssh_like(found: re.Match[str], text: str) -> Address:
    if text.startswith("-") or found["host"].startswith("-"):
        raise _refused(text, "a user's or host's name does not begin with a dash")
    return Address(text=text.rstrip("/"), scheme="ssh")


def _file(parts: SplitResult, text: str) -> Address:
    if parts.netloc not in {"", "localhost"} or not parts.path.strip("/"):
        raise _refused(text, "write file:///path/to/repository")
    return Address(text=f"file://{text.split('://', 1)[1].removeprefix('localhost').rstrip('/')}", scheme="file")


def _refused(text: str, why: str) -> UsageError:
    return UsageError(f"ADDRESS_REFUSED: {shown_address(text)!r}: {why}")
