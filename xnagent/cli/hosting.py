"""From arguments to where sessions are kept: what every command needs, and nothing that only a run does.

What asks models is not loaded here: it takes longer than opening a session of 100,000 events.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from xnagent.app.host import Host
from xnagent.app.stores import sessions_at
from xnagent.config.flags import OPTION_KEYS, from_option
from xnagent.config.hooks import in_toml
from xnagent.config.load import Sources, hook_settings, store_settings
from xnagent.config.places import home_folder
from xnagent.config.sources import Setting, from_assignment

STORE_VARIABLES: Final = {"url": "XNAGENT_STORE__URL", "lease_seconds": "XNAGENT_STORE__LEASE_SECONDS"}
HOOKS_VARIABLE: Final = "XNAGENT_HOOKS"


def home_of(arguments: Namespace) -> Host:
    """The process as its sessions see it, but for where they are kept."""
    environ = dict(os.environ)
    return Host(home=home_folder(environ, getattr(arguments, "home", None)), environ=environ)


def host_of(arguments: Namespace) -> Host:
    """The process as its sessions see it. Raises UsageError if the place where they are kept cannot be used."""
    host = home_of(arguments)
    return replace(host, store=sessions_at(store_settings(sources_of(arguments, host)), home=host.home))


def acting_host_of(arguments: Namespace) -> Host:
    """The same for what runs sessions: with the user's hooks. Raises UsageError for hooks that cannot be meant."""
    host = host_of(arguments)
    return replace(host, hooks=hook_settings(sources_of(arguments, host)))


def worker_environ(arguments: Namespace, host: Host) -> dict[str, str]:
    """The environment of a process that works in the same store, with the same hooks.

    No option, since an address may hold a password.
    """
    store = store_settings(sources_of(arguments, host))
    named = {variable: str(getattr(store, name)) for name, variable in STORE_VARIABLES.items()} if store.url else {}
    hooks = {HOOKS_VARIABLE: in_toml(host.hooks)} if host.hooks else {}
    return {**host.environ, **named, **hooks}


def sources_of(arguments: Namespace, host: Host, *, repository: Path | None = None) -> Sources:
    """Where the settings come from, in their order."""
    return Sources(
        environ=host.environ,
        repository=repository,
        files=[Path(file) for file in arguments.config],
        options=explicit(arguments),
    )


def explicit(arguments: Namespace) -> list[Setting]:
    """What the command line itself says."""
    return [*map(from_assignment, arguments.set), *_given(arguments)]


def _given(arguments: Namespace) -> Iterator[Setting]:
    for name in OPTION_KEYS:
        if hasattr(arguments, name):
            yield from from_option(name, getattr(arguments, name), origin=_flag(name))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
