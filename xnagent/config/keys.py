"""Which keys there are, and what a text means as the value of one."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, Final, TypeAlias, cast, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from xnagent.config import ModelTable, PriceTable, Settings
from xnagent.config.mcp import McpServerTable
from xnagent.config.section import Section
from xnagent.errors import UsageError

KeyPath: TypeAlias = tuple[str, ...]
"""A key as its parts: `("limits", "usd")`."""

MODELS: Final = "models"
SERVERS: Final = ("mcp", "servers")
HEADERS: Final = "headers_env"
_FREE: Final = frozenset({(MODELS,), SERVERS})
"""Tables whose keys are names that a user chooses."""


@cache
def known_keys() -> Mapping[KeyPath, FieldInfo]:
    """All keys but those below `models` and `mcp.servers`, where the next part is free."""
    return dict(_walk(Settings, ()))


def _walk(section: type[BaseModel], prefix: KeyPath) -> Iterator[tuple[KeyPath, FieldInfo]]:
    for name, field in section.model_fields.items():
        path = (*prefix, name)
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            yield from _walk(annotation, path)
        elif path not in _FREE:
            yield path, field


def field_at(path: KeyPath) -> FieldInfo | None:
    """What the key holds; None if there is no such key."""
    if path[:2] == SERVERS:
        return server_keys().get(path[3:]) or (server_keys()[HEADERS,] if path[3:-1] == (HEADERS,) else None)
    if path[0] != MODELS:
        return known_keys().get(path)
    return model_keys().get(path[2:]) or (ModelTable.model_fields["options"] if path[2:3] == ("options",) else None)


@cache
def model_keys() -> Mapping[KeyPath, FieldInfo]:
    """The keys of one table of `models`; below `options` any key may stand."""
    return {
        (*path, *rest): field
        for path, field in _walk(ModelTable, ())
        for rest in ([()] if path != ("price",) else [(name,) for name in PriceTable.model_fields])
    }


@cache
def server_keys() -> Mapping[KeyPath, FieldInfo]:
    """The keys of one table of `mcp.servers`; below `headers_env` any header may stand."""
    return dict(_walk(McpServerTable, ()))


def is_table(path: KeyPath) -> bool:
    """Whether the path names a table, which may be empty."""
    return path[0] in {MODELS, SERVERS[0]} or any(known[: len(path)] == path for known in known_keys())


def dotted(path: KeyPath) -> str:
    """The key as a person writes it; parts that hold a dot are quoted."""
    return ".".join(part if part and "." not in part else f'"{part}"' for part in path)


def parse_key(text: str) -> KeyPath:
    """The parts of a dotted key; a model's name may hold dots itself (`models.gpt-5.1.price.input_usd`)."""
    head, _, rest = text.partition(".")
    for key in model_keys() if head == MODELS else ():
        name = rest.removesuffix("." + ".".join(key))
        if name not in {rest, ""}:
            return MODELS, name.strip('"'), *key
    return tuple(text.split("."))


def check_known(path: KeyPath, origin: str) -> None:
    """Raise UsageError for a key that does not exist, naming the nearest one and where it came from."""
    if field_at(path) is not None or path in _FREE:
        return
    below = sorted(dotted(known[len(path) :]) for known in known_keys() if known[: len(path)] == path)
    if below:
        raise UsageError(
            f'CONFIG_INVALID: {origin}: "{dotted(path)}" is a table, not a value; its keys: {", ".join(below)}'
        )
    if path[0] == "hooks":
        raise UsageError(f"CONFIG_INVALID: {origin}: hooks are a list; begin each with [[hooks]] in a line of its own")
    if not any(path):
        raise UsageError(f"CONFIG_INVALID: {origin}: write -s KEY=VALUE, such as -s limits.usd=2")
    raise UsageError(f'CONFIG_UNKNOWN_KEY: {origin}: unknown key "{dotted(path)}"; did you mean "{_nearest(path)}"?')


def _nearest(path: KeyPath) -> str:
    if path[:2] == SERVERS and len(path) > len(SERVERS):
        names = [dotted((*path[:3], *key)) for key in server_keys()]
    elif path[0] == MODELS and len(path) > 1:
        names = [dotted((MODELS, path[1], *key)) for key in model_keys()]
    else:
        names = [dotted(known) for known in known_keys()]
    return nearest(dotted(path), names)


def nearest(name: str, names: list[str]) -> str:
    """The name that is most like it."""
    return difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]


def value_of(path: KeyPath, text: str) -> object:
    """What a text from the environment or an option means as the value of a known key.

    A list is a TOML array, or the text alone as its one element; `none` takes a limit away. Numbers and booleans stay
    text: the settings' types read them.
    """
    field = field_at(path)
    annotation = cast("Any", field.annotation if field else None)
    if NoneType in get_args(annotation) and text.strip().lower() in {"", "none", "null"}:
        return None
    if any(get_origin(one) is tuple for one in (annotation, *get_args(annotation))):
        return _list_of(text)
    return text.strip()


def _list_of(text: str) -> list[object]:
    if not text.lstrip().startswith("["):
        return [text] if text.strip() else []
    try:
        values = tomllib.loads(f"values = {text}")["values"]
    except tomllib.TOMLDecodeError:
        return [text]
    return cast("list[object]", values)
