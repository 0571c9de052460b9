"""A database's address: as a driver takes it, and as people may see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from xnagent.errors import UsageError

SECRETS: Final = ("password", "sslpassword")
HIDDEN: Final = "***"
LEAST_SECRET_CHARACTERS: Final = 3
"""Replacing less would garble words and hide nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a database is. Its `str` and `repr` name no password."""

    url: str = field(repr=False)
    shown: str
    secrets: tuple[str, ...] = field(repr=False)

    def __str__(self) -> str:
        """Without user, password and options."""
        return self.shown

    def masked(self, text: str) -> str:
        """A text without the address's secrets."""
        for secret in (self.url, *self.secrets):
            text = text.replace(secret, HIDDEN)
        return text


def parse_address(url: str) -> Address:
    """The address; raises UsageError, which does not repeat it."""
    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError:
        raise UsageError(
            "STORE_URL: store.url cannot be read as an address; write postgresql://USER@HOST/DATABASE, "
            "with %XX for special characters in the parts (the password may stand in ~/.pgpass instead)"
        ) from None
    secrets = (str(parts[key]) for key in SECRETS if parts.get(key))
    host = parts.get("host") or parts.get("hostaddr") or ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return Address(
        url=url,
        shown=f"postgresql://{host}{port}/{parts.get('dbname') or ''}",
        secrets=tuple(secret for secret in secrets if len(secret) >= LEAST_SECRET_CHARACTERS),
    )
