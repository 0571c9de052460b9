"""What masks the secrets of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from xnagent.config import Settings
from xnagent.core.masking import MIN_CHARACTERS, Mask, mask_of
from xnagent.core.secrets import known_secrets
from xnagent.errors import UsageError

STORE: Final = "STORE_URL"
"""Stands for the setting `store.url` in placeholders."""


def mask_for(environ: Mapping[str, str], settings: Settings) -> Mask:
    """Takes the secrets of this process out of texts: keys of models, and what else the environment holds.

    Raises UsageError for a variable that the user names as a secret and that is too short to be masked.
    """
    for name in settings.secrets.env:
        if 0 < len(environ.get(name, "").strip()) < MIN_CHARACTERS:
            raise UsageError(
                f"SECRET_TOO_SHORT: {name} holds fewer than {MIN_CHARACTERS} characters: masking them would hide "
                f"ordinary text; leave --secret-env {name} out"
            )
    chosen = [settings.planner.model.api_key_env, settings.worker.model.api_key_env]
    servers = settings.mcp.servers.values()
    chosen += [name for server in servers for name in (server.bearer_env, *server.headers_env.values())]
    keys = filter(None, [*chosen, *(table.api_key_env for table in settings.models.values())])
    known = {**environ, STORE: settings.store.url}
    return mask_of(known_secrets(known, certain=[*settings.secrets.env, *keys]))


def check_checks(checks: Iterable[str], mask: Mask) -> None:
    """Raise UsageError for a check that holds a secret: it is stored, and masked it would be another check."""
    for check in checks:
        if (masked := mask.text(check)) is not check:
            raise UsageError(
                f"CHECK_HOLDS_SECRET: a check holds a secret value: {masked}; let it read the value from a file"
            )
