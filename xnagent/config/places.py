"""Where xnagent keeps and finds things."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import xnagent
from xnagent.errors import UsageError

PROJECT_FILE: Final = ".xnagent.toml"


def home_folder(environ: Mapping[str, str], option: str | None = None) -> Path:
    """Where sessions are: `--home`, else XNAGENT_HOME, else the XDG state folder; absolute, not yet made."""
    chosen = option if option is not None else environ.get("XNAGENT_HOME", "")
    if option is not None and not option.strip():
        raise UsageError("HOME_EMPTY: --home needs a folder")
    if chosen:
        return _expanded(chosen, environ).absolute()
    return _xdg(environ, "XDG_STATE_HOME", default=".local/state") / "xnagent"


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's own configuration; it need not exist."""
    return _xdg(environ, "XDG_CONFIG_HOME", default=".config") / "xnagent" / "config.toml"


def user_skills(environ: Mapping[str, str]) -> Path:
    """The folder of the user's own skills; it need not exist."""
    return user_file(environ).parent / "skills"


def _xdg(environ: Mapping[str, str], variable: str, *, default: str) -> Path:
    chosen = Path(environ.get(variable, ""))
    return chosen if chosen.is_absolute() else _user_home(environ) / default


def _user_home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME", "")
    if Path(home).is_absolute():
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        raise UsageError("HOME_UNKNOWN: HOME is not set; say where sessions may live with --home DIR") from error


def _expanded(path: str, environ: Mapping[str, str]) -> Path:
    is_home = path == "~" or path.startswith("~/")
    return _user_home(environ) / path[1:].lstrip("/") if is_home else Path(path)


def shipped(name: str) -> Path:
    """A file of the `configs` folder: inside the package in a wheel, beside it in a checkout."""
    package = Path(xnagent.__file__).parent
    inside = package / "configs" / name
    return inside if inside.exists() else package.parent / "configs" / name
