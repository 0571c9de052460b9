"""From arguments to a place, settings and models: everything that can be wrong before work begins."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from xnagent.app.host import Host
from xnagent.cli.hosting import explicit, sources_of
from xnagent.config import Settings
from xnagent.config.entry import Role, catalog_of, model_chain, model_entry
from xnagent.config.load import load_settings, require_box, with_settings
from xnagent.config.sources import Setting, from_file
from xnagent.core.rebase import MARGIN_TOKENS
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry

ROLES: Final[tuple[Role, ...]] = ("planner", "worker")


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
    return _checked(load_settings(sources_of(arguments, host, repository=repository)), arguments)


def changed_settings(arguments: Namespace, settings: Settings) -> Settings:
    """The settings of a session that goes on, with what this command line says about them."""
    changes = [setting for file in arguments.config for setting in from_file(Path(file))]
    require_box(changes)
    return _checked(with_settings(settings, [*changes, *explicit(arguments)]), arguments)


def chosen_roles(arguments: Namespace) -> tuple[Role, ...]:
    """The roles whose model this command line names."""
    changes = [setting for file in arguments.config for setting in from_file(Path(file))]
    named = {setting.path for setting in (*changes, *explicit(arguments))}
    return tuple(role for role in ROLES if (role, "model", "name") in named)


def _checked(settings: Settings, arguments: Namespace) -> Settings:
    return _with_budget(settings, getattr(arguments, "budget", None))


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
