"""All sources in their order of precedence, as one `Settings` (CONTRACT, "Commands")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from xnagent.config import Settings, StoreSettings
from xnagent.config.keys import KeyPath, dotted
from xnagent.config.places import PROJECT_FILE, shipped, user_file
from xnagent.config.sources import Setting, from_environment, from_file
from xnagent.core.hooks import Hook
from xnagent.core.values import dataclass
from xnagent.errors import UsageError

Merged: TypeAlias = dict[KeyPath, Setting]

NARROWING_SECTIONS: Final = ("limits", "spine")
NARROWING_KEYS: Final = frozenset(
    {
        ("apply",),
        ("check_timeout_seconds",),
        ("checks",),
        ("parallel",),
        ("permissions", "deny"),
        ("permissions", "max_denials"),
        ("permissions", "narrow"),
        ("prefix",),
        ("project", "instructions"),
    }
)
DENY: Final = ("permissions", "deny")
"""Deny rules add up over all sources; an empty list takes those below away, but a repository's does not."""
HOOKS: Final = ("hooks",)
"""A list of tables: messages say which one, counted from 0."""
UNBOXED_MODES: Final = ("off", "external")
STRICTNESS: Final = ("off", "warn", "strict")
SECRET_KEYS: Final = frozenset({"api_key_env", "args", "base_url", "bearer_env", "env", "headers_env", "url"})
"""Where people put a key by mistake: the value is not repeated in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where settings are looked for, beside what ships."""

    environ: Mapping[str, str]
    repository: Path | None = None
    """The folder whose project file counts."""
    files: Sequence[Path] = ()
    """`--config`, later ones win."""
    options: Sequence[Setting] = field(default=())


def load_settings(sources: Sources) -> Settings:
    """Find, check and join all settings. Raises UsageError naming the key and where it came from."""
    merged: Merged = {}
    for path in (shipped("default.toml"), user_file(sources.environ)):
        _put(merged, from_file(path) if path.is_file() else ())
    if sources.repository is not None:
        _put(merged, _project(sources.repository / PROJECT_FILE, merged))
    for path in sources.files:
        _put(merged, from_file(path))
    _put(merged, from_environment(sources.environ))
    require_box(merged.values())
    _put(merged, sources.options)
    return _build(merged, named={setting.path for setting in sources.options})


def store_settings(sources: Sources) -> StoreSettings:
    """Where the host keeps its sessions. The project file has no say in it."""
    return _of_host(sources, "store").store


def hook_settings(sources: Sources) -> tuple[Hook, ...]:
    """The host's hooks. Neither the project file nor a stored session has a say in them."""
    return tuple(table.to_hook() for table in _of_host(sources, HOOKS[0]).hooks)


def _of_host(sources: Sources, section: str) -> Settings:
    merged: Merged = {}
    user = user_file(sources.environ)
    for path in (*([user] if user.is_file() else ()), *sources.files):
        _put(merged, from_file(path))
    _put(merged, from_environment(sources.environ))
    _put(merged, sources.options)
    own = {path: setting for path, setting in merged.items() if path[0] == section}
    return _build(own, named=frozenset())


def with_settings(settings: Settings, changes: Iterable[Setting]) -> Settings:
    """The settings with some replaced, checked again."""
    data = settings.model_dump()
    merged: Merged = {DENY: Setting(path=DENY, value=data["permissions"]["deny"], origin="the session")}
    _put(merged, changes)
    for change in merged.values():
        _place(data, change)
    _put_first(data, merged.keys())
    return _validated(data, merged)


def require_box(settings: Iterable[Setting]) -> None:
    """Raise UsageError if commands are to run without a box: only a command line may say that."""
    for setting in settings:
        if setting.path == ("sandbox", "mode") and setting.value in UNBOXED_MODES:
            raise UsageError(
                f'CONFIG_NOT_ALLOWED: {setting.origin}: "sandbox.mode" may be "{setting.value}" only on the command '
                f"line; pass --sandbox {setting.value}"
            )


def stored_settings(text: str, *, session: str) -> Settings:
    """The settings that a session was begun or last resumed with."""
    try:
        return Settings.model_validate_json(text)
    except ValidationError as error:
        what = error.errors(include_url=False)[0]
        key = ".".join(map(str, what["loc"]))
        raise UsageError(
            f'CONFIG_INVALID: the settings stored with {session} cannot be read ("{key}": {what["msg"]}); '
            f"resume it with the xnagent that began it"
        ) from error


def _put(merged: Merged, settings: Iterable[Setting]) -> None:
    for setting in settings:
        merged[setting.path] = _joined(merged[DENY], setting) if setting.path == DENY and DENY in merged else setting


def _joined(below: Setting, setting: Setting) -> Setting:
    if not isinstance(setting.value, list) or not setting.value or not isinstance(below.value, list | tuple):
        return setting
    rules = [rule for rule in setting.value if rule not in below.value]
    return Setting(path=DENY, value=[*below.value, *rules], origin=f"{below.origin}, {setting.origin}")


def _build(merged: Merged, *, named: AbstractSet[KeyPath]) -> Settings:
    data: dict[str, Any] = {}
    for setting in merged.values():
        _place(data, setting)
    _put_first(data, named)
    return _validated(data, merged)


def _put_first(data: dict[str, Any], named: AbstractSet[KeyPath]) -> None:
    """A model that is named for this command alone is no longer its own fallback; the rest of the list stays."""
    for role in ("planner", "worker"):
        model = data.get(role, {}).get("model", {})
        is_named = (role, "model", "name") in named and (role, "model", "fallback") not in named
        if is_named and isinstance(model.get("fallback"), list | tuple):
            model["fallback"] = [name for name in model["fallback"] if name != model.get("name")]


def _place(data: dict[str, Any], setting: Setting) -> None:
    *tables, name = setting.path
    for table in tables:
        data = data.setdefault(table, {})
    data[name] = setting.value


def _validated(data: dict[str, Any], merged: Merged) -> Settings:
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        raise UsageError(_explain(error.errors(include_url=False)[0], merged)) from error


def _explain(error: ErrorDetails, merged: Merged) -> str:
    place = tuple(str(part) for part in error["loc"])
    hits = [path for path in merged if place[: len(path)] == path or path[: len(place)] == place]
    key = dotted(hits[0]) if len(hits) == 1 and hits != [HOOKS] else dotted(place)
    # What is missing came from nowhere: whoever wrote its table left it out.
    told = hits or [path for path in merged if path[: len(place) - 1] == place[:-1]]
    origins = ", ".join(dict.fromkeys(merged[path].origin for path in told)) or "defaults"
    message = error["msg"].removeprefix("Value error, ")
    is_shown = not SECRET_KEYS.intersection(place) and not isinstance(error["input"], dict | Settings)
    got = f", not {error['input']!r}" if is_shown and len(hits) == 1 else ""
    return f'CONFIG_INVALID: {origins}: "{key}": {message[:1].lower()}{message[1:]}{got}'


def _project(path: Path, merged: Merged) -> list[Setting]:
    """The project file's settings: only keys that a repository may set, and only in the narrower direction."""
    settings = from_file(path) if path.is_file() else []
    for setting in settings:
        if setting.path not in NARROWING_KEYS and setting.path[0] not in NARROWING_SECTIONS:
            raise UsageError(
                f'CONFIG_NOT_ALLOWED: {path}: a repository may not set "{dotted(setting.path)}"; '
                f"put it into the user file or pass --config"
            )
    return [_narrowed(setting, merged) for setting in settings if setting.path != DENY or setting.value != []]


def _narrowed(setting: Setting, merged: Merged) -> Setting:
    below = merged[setting.path].value if setting.path in merged else _default(setting.path)
    narrower = _NARROWER.get(setting.path, _smaller if setting.path[0] == "limits" else None)
    if narrower is None or not _is_alike(setting.value, below):
        return setting
    return Setting(path=setting.path, value=narrower(setting.value, below), origin=setting.origin)


def _is_alike(value: object, below: object) -> bool:
    """Whether the two can be compared at all; where not, validation will say what is wrong."""
    if isinstance(value, bool) or isinstance(below, bool):
        return isinstance(value, bool) and isinstance(below, bool)
    if below is None or isinstance(below, int | float):
        return isinstance(value, int | float)
    return isinstance(value, type(below)) or (isinstance(value, list) and isinstance(below, tuple))


def _default(path: KeyPath) -> object:
    value: object = Settings()
    for name in path:
        value = getattr(value, name)
    return value


def _smaller(value: object, below: object) -> object:
    return value if below is None else min(cast("float", value), cast("float", below))


def _stricter(value: object, below: object) -> object:
    return value if value not in STRICTNESS else max(value, cast("str", below), key=STRICTNESS.index)


def _both(value: object, below: object) -> object:
    return value and below


def _own_first(value: object, below: object) -> object:
    return below or value


def _chosen_of(value: object, below: object) -> object:
    """Only what is there already."""
    return [name for name in cast("list[object]", value) if name in cast("Sequence[object]", below)]


_NARROWER: Final[Mapping[KeyPath, Callable[[object, object], object]]] = {
    ("apply",): _both,
    ("parallel",): _smaller,
    ("permissions", "max_denials"): _smaller,
    ("permissions", "narrow"): _own_first,
    ("prefix",): _stricter,
    ("project", "instructions"): _chosen_of,
}
