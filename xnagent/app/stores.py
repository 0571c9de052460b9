"""Which store the host uses: files, or the database that an address names."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final, Protocol, cast

from xnagent.config import StoreSettings
from xnagent.errors import UsageError
from xnagent.store.place import Sessions

POSTGRES: Final = "xnagent.store.postgres.places"
"""Loaded only when it is used: its driver is an extra."""


class _StoreModule(Protocol):
    def sessions_in(self, url: str, *, lease_seconds: float, home: str) -> Sessions: ...


def sessions_at(store: StoreSettings, *, home: Path) -> Sessions | None:
    """The sessions in the database that the settings name; None where they name none: files. Connects to nothing yet.

    `home` is where this process keeps its folders.
    """
    if not store.url:
        return None
    try:
        module = cast("_StoreModule", importlib.import_module(POSTGRES))
    except ImportError as error:
        raise UsageError(
            f"STORE_EXTRA_MISSING: store.url names a PostgreSQL database, whose driver cannot be loaded "
            f"({error}); install it with: pip install 'xnagent[postgres]'"
        ) from error
    return module.sessions_in(store.url, lease_seconds=store.lease_seconds, home=str(home.resolve()))
