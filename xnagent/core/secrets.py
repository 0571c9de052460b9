"""Which values of an environment are secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from xnagent.core.masking import MIN_CHARACTERS, Secret

NAME: Final = re.compile(
    r"KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(^|_)(PASS|PWD|PAT|AUTH)$|_DSN$|COOKIE", re.IGNORECASE
)
ORDINARY_NAME: Final = re.compile(
    r"^(PWD|OLDPWD)$|KEYBOARD|KEYMAP|TOKENIZERS?_|_TOKENS$|(^|_)(PUBLIC|PUB)_?KEY|_(FILE|PATH|DIR|URL|NAME|ID|TYPE)$|"
    r"KEY_?ID$|KEYRING",
    re.IGNORECASE,
)
"""Names that only look as if they held a secret."""
PARAMETER: Final = re.compile(r"key|secret|token|sig|signature|password|auth", re.IGNORECASE)
URL: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:(?P<user>[^:/?#\s]*?)(?::(?P<password>[^/?#\s]*))?@)?[^?#\s]*(?:\?(?P<query>[^#\s]*))?(?:#\S*)?",
    re.IGNORECASE,
)
PERCENT: Final = re.compile(r"(?:%[0-9a-f]{2})+", re.IGNORECASE)
PLACE: Final = re.compile(r"(~|\.{0,2})/|[A-Za-z]:\\")
PLAIN_NUMBER: Final = re.compile(r"[\d.,:_-]+")
ARMOUR: Final = re.compile(r"-----(BEGIN|END)[^-]*-----")
FEW_CHARACTERS: Final = 5
SHORT_NUMBER: Final = 16
LONG_USER: Final = 16
WORDS: Final = frozenset(
    {
        "changeme",
        "password",
        "password1",
        "passw0rd",
        "secret123",
        "disabled",
        "required",
        "optional",
        "production",
        "development",
        "staging",
        "testing",
        "localhost",
        "anonymous",
        "postgres",
        "postgresql",
        "administrator",
        "undefined",
        "unlimited",
        "default1",
        "username",
        "keychain",
    }
)
"""Values that are no secret to anybody, and stand in ordinary text."""


def known_secrets(environ: Mapping[str, str], *, certain: Iterable[str] = ()) -> tuple[Secret, ...]:
    """The secrets in an environment: what `certain` names, what is named like a secret, credentials in addresses.

    The same value has one name, so its placeholder is always the same.
    """
    named = sorted(set(certain))
    found: dict[str, Secret] = {}
    for name in [*named, *sorted(environ)]:
        for value in _values(name, environ.get(name, "").strip(), is_certain=name in named):
            found.setdefault(value, Secret(name=name, value=value))
    return tuple(found.values())


def _values(name: str, value: str, *, is_certain: bool) -> Iterator[str]:
    """The parts of a variable's value that are secret."""
    if URL.fullmatch(value):
        yield from _in_address(value)
        return
    is_named = NAME.search(name) is not None and ORDINARY_NAME.search(name) is None
    if not is_certain and not is_named:
        return
    if value.startswith("{"):
        yield from _in_json(value)
    elif ARMOUR.search(value):
        yield "".join(ARMOUR.sub("", value.replace("\\n", "\n")).split())
    elif (value and is_certain) or not is_trivial(value):
        yield value


def is_trivial(value: str) -> bool:
    """Whether a value named like a secret is none: too short, a path, a number, a common word, one character."""
    if len(value) < MIN_CHARACTERS or len(set(value)) < FEW_CHARACTERS:
        return True
    if PLAIN_NUMBER.fullmatch(value) and len(value) < SHORT_NUMBER:
        return True
    return value.lower() in WORDS or PLACE.match(value) is not None


def _in_address(url: str) -> Iterator[str]:
    parts = URL.fullmatch(url)
    if parts is None:
        return
    user, password = parts["user"] or "", parts["password"] or ""
    found = [password, user if not password and len(user) >= LONG_USER else ""]
    pairs = [pair.partition("=") for pair in (parts["query"] or "").split("&")]
    found += [value for name, _, value in pairs if PARAMETER.search(name)]
    for value in found:
        plain = PERCENT.sub(lambda code: bytes.fromhex(code[0].replace("%", "")).decode("utf-8", "replace"), value)
        yield from (one for one in dict.fromkeys([value, plain]) if one and not is_trivial(one))


def _in_json(text: str) -> Iterator[str]:
    """The secret members of a service account's file."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return
    for name, value in cast("dict[str, Any]", fields).items() if isinstance(fields, dict) else ():
        if isinstance(value, str):
            yield from _values(name, value.strip(), is_certain=False)
