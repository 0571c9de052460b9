"""From arguments to a place, settings and models: everything that can be wrong before work begins."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from xnagent.app.host import Host
from xnagent.app.stores import sessions_at
from xnagent.config import Settings
from xnagent.config.entry import Role, catalog_of, model_chain, model_entry
from xnagent.config.keys import KeyPath, value_of
from xnagent.config.load import Sources, load_settings, require_box, store_settings, with_settings
from xnagent.config.places import home_folder
from xnagent.config.sources import Setting, from_assignment, from_file
from xnagent.core.rebase import MARGIN_TOKENS
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry

ROLES: Final[tuple[Role, ...]] = ("planner", "worker")

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


def home_of(arguments: Namespace) -> Host:
    """The process as its sessions see it, but for where they are kept."""
    environ = dict(os.environ)
    return Host(home=home_folder(environ, getattr(arguments, "home", None)), environ=environ)


def host_of(arguments: Namespace) -> Host:
    """The process as its sessions see it. Raises UsageError if the place where they are kept cannot be used."""
    host = home_of(arguments)
    return replace(host, store=sessions_at(store_settings(_sources(arguments, host)), home=host.home))


def worker_environ(arguments: Namespace, host: Host) -> dict[str, str]:
    """The environment of a process that works in the same store: no option, since an address may hold a password."""
    store = store_settings(_sources(arguments, host))
    named = {variable: str(getattr(store, name)) for name, variable in STORE_VARIABLES.items()} if store.url else {}
    return {**host.environ, **named}


def folder_of(arguments: Namespace) -> Path:
    """The repository: an existing folder, absolute."""
    given = getattr(arguments, "directory", ".")
    try:
        folder = Path(given).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"NO_FOLDER: {given}: there is no such folder; choose one with -C DIR") from error
    if not folder.is_dir():
        raise UsageError(f"NO_FOLDER: {given} is no folder; choose one with -C DIR")
    return folder


def settings_of(arguments: Namespace, host: Host, *, repository: Path | None) -> Settings:
    """All settings, joined and checked."""
    return _checked(load_settings(_sources(arguments, host, repository=repository)), arguments)


def _sources(arguments: Namespace, host: Host, *, repository: Path | None = None) -> Sources:
    return Sources(
        environ=host.environ,
        repository=repository,
        files=[Path(file) for file in arguments.config],
        options=_explicit(arguments),
    )


def changed_settings(arguments: Namespace, settings: Settings) -> Settings:
    """The settings of a session that goes on, with what this command line says about them."""
    changes = [setting for file in arguments.config for setting in from_file(Path(file))]
    require_box(changes)
    return _checked(with_settings(settings, [*changes, *_explicit(arguments)]), arguments)


def chosen_roles(arguments: Namespace) -> tuple[Role, ...]:
    """The roles whose model this command line names."""
    changes = [setting for file in arguments.config for setting in from_file(Path(file))]
    named = {setting.path for setting in (*changes, *_explicit(arguments))}
    return tuple(role for role in ROLES if (role, "model", "name") in named)


def _checked(settings: Settings, arguments: Namespace) -> Settings:
    return _with_budget(settings, getattr(arguments, "budget", None))


def _explicit(arguments: Namespace) -> list[Setting]:
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


def _with_budget(settings: Settings, budget: int | None) -> Settings:
    """`--budget`: as much of the window as leaves this room for the history once the output has its place."""
    if budget is None:
        return settings
    output = min(model_entry(settings, "planner").max_output_tokens, budget)
    numbers = {"window": budget + output + MARGIN_TOKENS, "max_output_tokens": output}
    return with_settings(
        settings,
        [Setting(path=("planner", "model", key), value=value, origin="--budget") for key, value in numbers.items()],
    )


def models_of(settings: Settings, host: Host) -> dict[Role, tuple[ModelEntry, ...]]:
    """Each role's model and, behind it, its fallbacks. Raises UsageError that says what to set, before any work."""
    if settings.planner.model.name is None:
        raise UsageError(_no_model(settings, host.environ))
    chains = {role: model_chain(settings, role) for role in ROLES}
    for entry in (entry for chain in chains.values() for entry in chain):
        if entry.api_key_env and not host.environ.get(entry.api_key_env, "").strip():
            raise UsageError(
                f"KEY_MISSING: {entry.name} needs a key: set the environment variable {entry.api_key_env}, "
                f"or name another one with --api-key-env"
            )
    return chains


def _no_model(settings: Settings, environ: Mapping[str, str]) -> str:
    known = catalog_of(settings)
    usable = [(table.api_key_env, name) for name, table in known.items() if environ.get(table.api_key_env or "")]
    if not usable:
        return (
            "MODEL_MISSING: no model is configured; pass --model NAME with its key in the environment "
            "(`xnagent models` lists known ones), or --model NAME --base-url URL for an endpoint of your own"
        )
    variable, name = usable[0]
    return f"MODEL_MISSING: no model is configured; {variable} is set: try --model {name}"
