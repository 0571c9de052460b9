"""What a command finds in its environment: an allow-list and quiet settings, so that no key can be among it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from xnagent.ports import Workspace
from xnagent.workspaces.git import search_path
from xnagent.workspaces.processes import MARKER

ALLOWED: Final = frozenset({"PATH", "USER", "LOGNAME", "TZ"})
"""Passed on as they are; HOME, LANG, TERM are there too, with values of ours."""
QUIET: Final[Mapping[str, str]] = {
    "CI": "1",
    "GH_PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "MANPAGER": "cat",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "PIP_PROGRESS_BAR": "off",
    "TERM": "dumb",
    "TQDM_DISABLE": "1",
}
TOOLCHAINS: Final[Mapping[str, str]] = {"PYENV_ROOT": ".pyenv", "RUSTUP_HOME": ".rustup"}
"""Programs on the PATH that look for the rest of themselves in the home folder, where no credentials are."""


def command_environment(
    environ: Mapping[str, str], workspace: Workspace, *, mark: str, passed: tuple[str, ...]
) -> dict[str, str]:
    """The whole environment of a command.

    HOME and TMPDIR are private folders in the run's scratch folder, so that credentials in the user's home are not
    picked up; `passed` names variables that are passed on all the same, HOME included.
    """
    home, temporary = workspace.scratch / "home", workspace.scratch / "tmp"
    for folder in (home, temporary):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    outer = environ.get(MARKER)
    return {
        **{name: value for name, value in environ.items() if name in ALLOWED},
        "PATH": search_path(environ),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        **_toolchains(environ),
        **QUIET,
        **{name: environ[name] for name in passed if name in environ},
        "GIT_CEILING_DIRECTORIES": str(workspace.root.parent),
        MARKER: f"{outer}:{mark}" if outer else mark,
    }


def boxed(environment: Mapping[str, str]) -> dict[str, str]:
    """The same in a box, where commands have an account of their own."""
    return {**environment, "USER": "worker", "LOGNAME": "worker"}


def _toolchains(environ: Mapping[str, str]) -> dict[str, str]:
    home = environ.get("HOME")
    if not home:
        return {}
    places = {name: Path(environ.get(name) or Path(home, folder)) for name, folder in TOOLCHAINS.items()}
    return {name: str(place) for name, place in places.items() if place.is_dir()}
