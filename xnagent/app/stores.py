"""Which store the host uses: files, or the database that an address names."""

from __future__ import annotations

import importlib
from typing import Final, Protocol, cast

from xnagent.errors import UsageError
from xnagent.store.place import Sessions

POSTGRES: Final = "xnagent.store.postgres.places"
"""Loaded only when it is used: its driver is an extra."""


class _StoreModule(Protocol):
    def sessions_in(self, url: str) -> Sessions: ...


def sessions_at(url: str) -> Sessions | None:
    """The sessions in the database at this address; None for an empty one: files. Connects to nothing yet."""
    if not url:
        return None
    try:
        module = cast("_StoreModule", importlib.import_module(POSTGRES))
    except ImportError as error:
        raise UsageError(
            f"STORE_EXTRA_MISSING: store.url names a PostgreSQL database, whose driver cannot be loaded "
            f"({error}); install it with: pip install 'xnagent[postgres]'"
        ) from error
    return module.sessions_in(url)
