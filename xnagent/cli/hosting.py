"""From arguments to where sessions are kept: what every command needs, and nothing that only a run does.

What asks models is not loaded here: it takes longer than opening a session of 100,000 events.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from xnagent.app.host import Host
from xnagent.app.stores import sessions_at
from xnagent.config.hooks import in_toml
from xnagent.config.keys import KeyPath, value_of
from xnagent.config.load import Sources, hook_settings, store_settings
from xnagent.config.places import home_folder
from xnagent.config.sources import Setting, from_assignment

ROLES: Final = ("planner", "worker")

OPTION_KEYS: Final[Mapping[str, Sequence[KeyPath]]] = {
    "model": [(role, "model", "name") for role in ROLES],
    "worker_model": [("worker", "model", "name")],
    "wire": [(role, "model", "wire") for role in ROLES],
    "base_url": [(role, "model", "base_url") for role in ROLES],
    "api_key_env": [(role, "model", "api_key_env") for role in ROLES],
    "max_usd": [("limits", "usd")],
    "max_tokens": [("limits", "tokens")],
    "max_steps": [("limits", "steps")],
    "max_runs": [("limits", "runs")],
    "deadline": [("limits", "deadline_seconds")],
    "parallel": [("parallel",)],
    "apply": [("apply",)],
    "bundle": [("workspace", "bundles")],
    "prefix": [("prefix",)],
    "sandbox": [("sandbox", "mode")],
    "network": [("sandbox", "network")],
    "check": [("checks",)],
    "allow": [("permissions", "allow")],
    "deny": [("permissions", "deny")],
    "max_denials": [("permissions", "max_denials")],
    "secret_env": [("secrets", "env")],
    "trust_project_skills": [("skills", "project")],
}
"""What each option sets; later ones win."""

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
    for name, paths in OPTION_KEYS.items():
        if hasattr(arguments, name):
            value = getattr(arguments, name)
            origin = _flag(name)
            yield from (
                Setting(path=path, value=value_of(path, value) if isinstance(value, str) else value, origin=origin)
                for path in paths
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
