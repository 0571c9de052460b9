"""One file, the environment, or the options, as a list of settings that know where they came from."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from xnagent.config.keys import KeyPath, check_known, dotted, is_table, nearest, parse_key, value_of
from xnagent.core.values import dataclass
from xnagent.errors import UsageError

PREFIX: Final = "XNAGENT_"
NOT_SETTINGS: Final = frozenset({"XNAGENT_HOME"})
TEST_PREFIX: Final = "XNAGENT_TEST_"
"""Left to test suites, which must reach subprocesses somehow."""
MAX_FILE_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 12
"""No key is deeper, but for a model's `options`, whose values are taken as they are from here on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value for one key."""

    path: KeyPath
    value: object
    origin: str
    """A file's path, the name of a variable, or an option: for messages."""


def from_file(path: Path) -> list[Setting]:
    """The settings in a TOML file. Raises UsageError naming file and line or key."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"CONFIG_UNREADABLE: {path}: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"CONFIG_UNREADABLE: {path}: larger than {MAX_FILE_BYTES:,} bytes; this is no settings file")
    try:
        data = tomllib.loads(content.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"CONFIG_MALFORMED: {path}: {_one_line(error)}") from error
    return from_table(data, (), origin=str(path))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def from_table(table: Mapping[str, Any], prefix: KeyPath, *, origin: str) -> list[Setting]:
    """The settings of a table, such as a file or the limits of a batch job. Raises UsageError for unknown keys."""
    settings = [Setting(path=path, value=value, origin=origin) for path, value in _leaves(table, prefix)]
    for setting in settings:
        check_known(setting.path, origin)
    return settings


def _leaves(table: Mapping[str, Any], prefix: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    for name, value in table.items():
        path = (*prefix, name)
        if not isinstance(value, dict) or len(path) > MAX_DEPTH:
            yield path, value
        elif value:
            yield from _leaves(value, path)
        elif not is_table(path):
            yield path, value


def from_environment(environ: Mapping[str, str]) -> list[Setting]:
    """The settings in `XNAGENT_KEY__SUBKEY`; an empty variable counts as not set."""
    names = sorted(name for name, value in environ.items() if name.startswith(PREFIX) and value)
    return [_from_variable(name, environ[name]) for name in names if not _is_other(name)]


def _is_other(name: str) -> bool:
    return name in NOT_SETTINGS or name.startswith(TEST_PREFIX)


def _from_variable(name: str, text: str) -> Setting:
    path = tuple(name.removeprefix(PREFIX).lower().split("__"))
    check_known(path, f"environment variable {name}")
    return Setting(path=path, value=value_of(path, text), origin=f"environment variable {name}")


def from_assignment(text: str) -> Setting:
    """The setting of `-s key=value`."""
    key, equals, value = text.partition("=")
    path = parse_key(key.strip())
    check_known(path, f"-s {key.strip()}")
    if not equals:
        raise UsageError(f"CONFIG_INVALID: -s {text}: write -s {dotted(path)}=VALUE")
    return Setting(path=path, value=value_of(path, value), origin=f"-s {key.strip()}")


def check_names(given: Iterable[str], known: Iterable[str], *, where: str) -> None:
    """Raise UsageError for the first name that is not known, naming the nearest one."""
    names = list(known)
    for name in given:
        if name not in names:
            raise UsageError(
                f'CONFIG_UNKNOWN_KEY: {where}: unknown key "{name}"; did you mean "{nearest(name, names)}"?'
            )
