"""The arguments of a call: what the model wrote, made into what the schema asks for, or a problem that it can mend.

Checked are `type` (also a list of types), `enum`, `properties`, `required`, `additionalProperties: false` and `items`;
other keywords of JSON Schema are not looked at. Repairs are made only where one reading is possible.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from xnagent.core.text import Json, clean
from xnagent.core.values import dataclass
from xnagent.ports import ToolSpec

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "artifact": ("target", "path"),
    "cmd": ("command",),
    "dir": ("path",),
    "directory": ("path",),
    "file": ("path", "target"),
    "file_path": ("path", "target"),
    "file_text": ("content",),
    "filename": ("path", "target"),
    "filepath": ("path", "target"),
    "include": ("glob",),
    "new_str": ("new",),
    "new_string": ("new",),
    "new_text": ("new",),
    "old_str": ("old",),
    "old_string": ("old",),
    "old_text": ("old",),
    "path": ("target",),
    "regex": ("pattern",),
    "replace_all": ("all",),
    "target": ("path",),
    "ticket": ("target", "path"),
    "timeout": ("timeout_seconds",),
    "timeout_s": ("timeout_seconds",),
}
"""Names from other tools, accepted without a word where the schema has the name that they stand for."""

Value: TypeAlias = "str | int | float | bool | list[Any] | dict[str, Any] | None"
"""What `json.loads` makes."""

WHOLE_NUMBER: Final = re.compile(r"\s*([+-]?\d{1,15})(?:\.0+)?\s*")
TYPE_NAMES: Final[Mapping[type, str]] = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    type(None): "null",
}
MAX_DOUBLE_ENCODING: Final = 3
SHOWN_VALUE: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentProblem:
    """Why a call was not carried out."""

    text: str
    """What the model reads: `BAD_ARGS: …`, with the shape that is expected."""
    code: str = "BAD_ARGS"


def parse_arguments(raw: str, spec: ToolSpec) -> Mapping[str, Any] | ArgumentProblem:
    """The arguments as an object that is valid against the tool's schema, or what is wrong with them.

    `""`, blanks and `null` are `{}`; a JSON string that holds JSON is read again; nothing that is broken is guessed.
    """
    try:
        value = _decoded(raw)
    except ValueError as error:
        return _problem(spec, [_syntax(error, raw)])
    if not isinstance(value, Mapping):
        return _problem(spec, [f"the arguments are {_a(_type_name(value))}, not an object"])
    checker = _Checker()
    arguments = checker.object(value, schema=spec.parameters, where="")
    return _problem(spec, checker.problems) if checker.problems else arguments


def shape(spec: ToolSpec) -> str:
    """The schema on one line: `{"path": string, "limit"?: integer}`."""
    return _shape(spec.parameters)


def _decoded(raw: str) -> Value:
    text = raw.strip().removeprefix("\ufeff")
    for _ in range(MAX_DOUBLE_ENCODING):
        if not text.strip():
            return {}
        value = _load(text)
        if not isinstance(value, str):
            return {} if value is None else value
        text = value
    return text


def _load(text: str) -> Value:
    try:
        # Raw line breaks inside strings have one reading; models write them.
        value: Value = json.loads(text, strict=False)
        return value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _syntax(error: ValueError, raw: str) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return f"the arguments are not usable JSON ({error})"
    if error.msg == "Extra data":
        return f"the arguments hold more than one JSON value (the second begins at position {error.pos})"
    is_cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
    advice = "; they seem to be cut off, so make the call shorter" if is_cut else ""
    return f"the arguments are not valid JSON: {error.msg} at position {error.pos} of {len(raw.strip())}{advice}"


def _problem(spec: ToolSpec, problems: Iterable[str]) -> ArgumentProblem:
    found = "; ".join(problems)
    return ArgumentProblem(text=clean(f"BAD_ARGS: {found}. Nothing was done. `{spec.name}` takes {shape(spec)}."))


@dataclass(slots=True)
class _Checker:
    """Walks value and schema together; notes every problem, not only the first."""

    problems: list[str] = field(default_factory=list)

    def object(self, value: Mapping[str, Any], *, schema: Mapping[str, Any], where: str) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        is_closed = schema.get("additionalProperties") is False
        found: dict[str, Any] = {}
        for name, item in _renamed(value, properties).items():
            if name not in properties:
                if is_closed:
                    self.problems.append(_unknown(name, properties=properties, where=where))
                else:
                    found[name] = item
            elif item is not None or _allows(properties[name], "null"):
                found[name] = self.value(item, schema=properties[name], where=f"{where}{name}")
        missing = [name for name in properties if name in required and name not in found]
        self.problems.extend(f"missing: {where}{name}" for name in missing)
        return found

    def value(self, value: Value, *, schema: Mapping[str, Any], where: str) -> Value:
        value = _coerced(value, schema)
        types = _types(schema)
        if types and not any(_is(value, name) for name in types):
            self.problems.append(f"{where} is {_shown(value)}, must be {_a(' or '.join(types))}")
            return value
        if "enum" in schema and value not in schema["enum"]:
            self.problems.append(f"{where} is {_shown(value)}, must be one of {_choices(schema)}")
        if isinstance(value, Mapping):
            return self.object(value, schema=schema, where=f"{where}.")
        if isinstance(value, list):
            items = schema.get("items") or {}
            return [self.value(item, schema=items, where=f"{where}[{n}]") for n, item in enumerate(value)]
        return clean(value) if isinstance(value, str) else value


def _renamed(value: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: item for name, item in value.items() if name in properties}
    for name, item in value.items():
        if name in properties:
            continue
        meant = next((known for known in ALIASES.get(name, ()) if known in properties), name)
        if meant not in found:
            found[meant] = item
        elif found[meant] != item:
            found[name] = item
    return found


def _unknown(name: str, *, properties: Mapping[str, Any], where: str) -> str:
    near = difflib.get_close_matches(name, list(properties), n=1, cutoff=0.5)
    return f"unknown field {where}{_clipped(name)}" + (f", did you mean {near[0]}?" if near else "")


def _coerced(value: Value, schema: Mapping[str, Any]) -> Value:
    """The value as the one other JSON type that it can stand for."""
    types = _types(schema)
    if not types or any(_is(value, name) for name in types):
        return int(value) if isinstance(value, float) and "integer" in types else value
    if isinstance(value, str):
        return _from_string(value, types)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_whole and "string" in types else value


def _from_string(value: str, types: tuple[str, ...]) -> Value:
    if "integer" in types and (number := WHOLE_NUMBER.fullmatch(value)):
        return int(number[1])
    if "boolean" in types and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    if {"array", "object", "number"}.intersection(types):
        try:
            inner = _load(value)
        except ValueError:
            return value
        return inner if any(_is(inner, name) for name in types) else value
    return value


def _types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    declared = schema.get("type", ())
    return (declared,) if isinstance(declared, str) else tuple(declared)


def _allows(schema: Mapping[str, Any], name: str) -> bool:
    types = _types(schema)
    return not types or name in types


def _is(value: Value, name: str) -> bool:
    match name:
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "object":
            return isinstance(value, Mapping)
        case _:
            return TYPE_NAMES.get(type(value)) == name


def _type_name(value: Value) -> str:
    return TYPE_NAMES.get(type(value), type(value).__name__)


def _a(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}" if noun != "null" else noun


def _shown(value: Value) -> str:
    return f"{_clipped(json.dumps(value, ensure_ascii=False))} ({_type_name(value)})"


def _clipped(text: str) -> str:
    return text if len(text) <= SHOWN_VALUE else text[:SHOWN_VALUE] + "…"


def _choices(schema: Mapping[str, Any]) -> str:
    return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in schema["enum"])


def _shape(schema: Json) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return _choices(schema)
    types = _types(schema)
    if types == ("array",):
        return f"[{_shape(schema.get('items'))}, …]"
    properties = schema.get("properties")
    if types == ("object",) and isinstance(properties, Mapping):
        required = schema.get("required") or ()
        marks = {name: "" if isinstance(required, list | tuple) and name in required else "?" for name in properties}
        return "{" + ", ".join(f'"{name}"{marks[name]}: {_shape(properties[name])}' for name in properties) + "}"
    return " or ".join(types) or "any"
