"""What the options of the command line, and the keyword arguments of Python, set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from xnagent.config.keys import KeyPath, value_of
from xnagent.config.sources import Setting

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


def from_option(name: str, value: object, *, origin: str) -> Iterator[Setting]:
    """The settings of an option, by its key in `OPTION_KEYS`; a text is read as on the command line."""
    for path in OPTION_KEYS[name]:
        yield Setting(path=path, value=value_of(path, value) if isinstance(value, str) else value, origin=origin)
