"""What a program says about its sessions: the options of the command line as keyword arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast

from xnagent.api.functions import FunctionTool
from xnagent.app.host import Host
from xnagent.app.stores import sessions_at
from xnagent.config import Settings
from xnagent.config.entry import Role
from xnagent.config.flags import OPTION_KEYS, ROLES, from_option
from xnagent.config.keys import check_known, parse_key, value_of
from xnagent.config.load import Sources, hook_settings, load_settings, require_box, store_settings, with_settings
from xnagent.config.places import home_folder
from xnagent.config.secrets import mask_for
from xnagent.config.sources import Setting, check_names, from_file
from xnagent.config.surroundings import environment
from xnagent.core.masking import Mask
from xnagent.errors import UsageError

Folder: TypeAlias = "str | PathLike[str]"


class Options(TypedDict, total=False):
    """The keyword arguments of `xnagent.open`. Each is optional and says what the option of its name says.

    They stand above every file and variable, as options do; None takes a limit away.
    """

    home: Folder
    """Where sessions are kept; else XNAGENT_HOME, else the XDG state folder."""
    directory: Folder
    """The repository of a new session; else the working directory."""
    config: Sequence[Folder]
    """Settings files, later ones win."""
    settings: Mapping[str, object]
    """Any setting by its dotted key: `{"spine.policy": "threshold"}`."""
    environ: Mapping[str, str]
    """Stands for the environment of the process: keys of models, PATH, XNAGENT_…"""
    tools: Sequence[FunctionTool[..., Any]]
    """Functions that Workers may call (`xnagent.tool`)."""
    model: str
    worker_model: str
    wire: Literal["chat", "responses", "messages"]
    base_url: str
    api_key_env: str
    checks: Sequence[str]
    """Acceptance of the whole: commands, as `--check`."""
    max_usd: float | None
    max_tokens: int | None
    max_steps: int | None
    max_runs: int | None
    deadline: float | None
    """Seconds."""
    parallel: int
    apply: bool
    bundle: str
    prefix: Literal["off", "warn", "strict"]
    sandbox: Literal["required", "auto", "external", "off"]
    network: Literal["on", "off"]
    allow: Sequence[str]
    deny: Sequence[str]
    max_denials: int | None
    secret_env: Sequence[str]
    trust_project_skills: bool


OWN: Final = frozenset({"home", "directory", "config", "settings", "environ", "tools"})
"""What is no setting."""
RENAMED: Final = {"checks": "check"}
"""Where the command line says one at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The options of one `open`, checked as far as they can be without a session."""

    host: Host
    explicit: tuple[Setting, ...]
    files: tuple[Path, ...]
    directory: Folder

    def settings(self) -> Settings:
        """All settings of a new session, joined and checked."""
        return load_settings(
            Sources(environ=self.host.environ, repository=self.folder(), files=self.files, options=self.explicit)
        )

    def changed(self, settings: Settings) -> Settings:
        """The settings of a session that goes on, with what these options say about them."""
        changes = self._changes()
        require_box(change for change in changes if change not in self.explicit)
        return with_settings(settings, changes)

    def roles(self) -> tuple[Role, ...]:
        """The roles whose model these options name."""
        named = {setting.path for setting in self._changes()}
        return tuple(role for role in ROLES if (role, "model", "name") in named)

    def _changes(self) -> list[Setting]:
        return [*(setting for file in self.files for setting in from_file(file)), *self.explicit]

    def mask(self) -> Mask:
        """What takes the secrets of the process out of what is shown of a session that is not open."""
        return mask_for(self.host.environ, self.settings())

    def folder(self) -> Path:
        """The repository: an existing folder, absolute."""
        try:
            folder = Path(self.directory).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"NO_FOLDER: {self.directory}: there is no such folder; choose one with directory="
            ) from error
        if not folder.is_dir():
            raise UsageError(f"NO_FOLDER: {self.directory} is no folder; choose one with directory=")
        return folder


def choose(options: Options) -> Chosen:
    """Check names and values. Raises UsageError that says what is wrong with which."""
    given = cast("dict[str, object]", dict(options))
    check_names(given, [*OWN, *(_argument(name) for name in OPTION_KEYS)], where="xnagent.open")
    environ = options.get("environ")
    environ = environment() if environ is None else dict(environ)
    home = options.get("home")
    files = tuple(Path(file) for file in options.get("config", ()))
    explicit = tuple(_explicit(options, given))
    folder = home_folder(environ, None if home is None else fspath(home))
    sources = Sources(environ=environ, files=files, options=explicit)
    return Chosen(
        host=Host(
            home=folder,
            environ=environ,
            store=sessions_at(store_settings(sources), home=folder),
            hooks=hook_settings(sources),
            tools=tuple(tool.given() for tool in options.get("tools", ())),
        ),
        explicit=explicit,
        files=files,
        directory=options.get("directory", "."),
    )


def _argument(option: str) -> str:
    return next((ours for ours, theirs in RENAMED.items() if theirs == option), option)


def _explicit(options: Options, given: Mapping[str, object]) -> Iterator[Setting]:
    for key, value in options.get("settings", {}).items():
        path, origin = parse_key(key), f'settings["{key}"]'
        check_known(path, origin)
        yield Setting(
            path=path, value=value_of(path, value) if isinstance(value, str) else _plain(value), origin=origin
        )
    for name in OPTION_KEYS:
        if (argument := _argument(name)) in given:
            yield from from_option(name, _plain(given[argument]), origin=f"{argument}=")


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple | set | frozenset) else value
