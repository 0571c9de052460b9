"""What providers refuse about tools: names, schemas, and strict schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from xnagent.testing.refusal import Refusal

_OPENAI_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def openai_tools(tools: object, *, is_flat: bool) -> Iterator[Refusal]:
    """For Chat Completions, and for Responses where a tool is flat."""
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        where = f"tools[{number}]" if is_flat else f"tools[{number}].function"
        function = tool if is_flat else tool.get("function")
        if tool.get("type") == "function" and isinstance(function, Mapping):
            yield from _openai_function(function, where)
        elif tool.get("type") == "function" or not is_flat:
            yield Refusal(
                message=f"Missing required parameter: '{where}'.", code="missing_required_parameter", param=where
            )


def _openai_function(function: Mapping[str, Any], where: str) -> Iterator[Refusal]:
    name, schema = function.get("name"), function.get("parameters")
    if not isinstance(name, str):
        place = f"{where}.name"
        yield Refusal(message=f"Missing required parameter: '{place}'.", code="missing_required_parameter", param=place)
    elif not _OPENAI_NAME.fullmatch(name):
        yield Refusal(
            message=f"Invalid '{where}.name': string does not match pattern. Expected a string that matches the "
            "pattern '^[a-zA-Z0-9_-]+$'.",
            code="invalid_value",
            param=f"{where}.name",
        )
    if schema is None:
        return
    says = f"Invalid schema for function '{name}': "
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        problem = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
    else:
        problem = next(_strict_problems(schema, ()), "") if function.get("strict") else ""
    if problem:
        yield Refusal(message=says + problem, code="invalid_function_parameters", param=f"{where}.parameters")


def _strict_problems(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with a strict schema (OpenAI, DeepSeek)."""
    where = f"In context={path!r}, "
    if _is_object(schema):
        properties = schema.get("properties") or {}
        missing = [key for key in properties if key not in (schema.get("required") or ())]
        if schema.get("additionalProperties") is not False:
            yield f"{where}'additionalProperties' is required to be supplied and to be false."
        if missing:
            yield (
                f"{where}'required' is required to be supplied and to be an array including every key in properties. "
                f"Missing '{missing[0]}'."
            )
    for key, part in _parts(schema):
        yield from _strict_problems(part, (*path, *key))


def anthropic_tools(tools: object) -> Iterator[Refusal]:
    """For Messages."""
    names: list[str] = []
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        if tool.get("type", "custom") != "custom":
            continue
        where, name, schema = f"tools.{number}.custom", tool.get("name"), tool.get("input_schema")
        if not isinstance(name, str):
            yield Refusal(message=f"{where}.name: Field required")
        elif not _ANTHROPIC_NAME.fullmatch(name):
            yield Refusal(message=f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not isinstance(schema, Mapping):
            yield Refusal(message=f"{where}.input_schema: Field required")
        elif schema.get("type") != "object":
            yield Refusal(message=f"{where}.input_schema.type: Input should be 'object'")
        elif tool.get("strict") and not all(map(_is_closed, _objects(schema))):
            yield Refusal(message=f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false")
        names.append(str(name))
    if len(set(names)) < len(names):
        yield Refusal(message="tools: Tool names must be unique.")


def _is_object(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _is_closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False


def _objects(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if _is_object(schema):
        yield schema
    for _, part in _parts(schema):
        yield from _objects(part)


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    for key in ("properties", "$defs", "definitions"):
        named = schema.get(key)
        for name, part in named.items() if isinstance(named, Mapping) else ():
            if isinstance(part, Mapping):
                yield (key, name), part
    if isinstance(items := schema.get("items"), Mapping):
        yield ("items",), items
    for key in ("anyOf", "allOf", "oneOf"):
        listed = schema.get(key)
        for number, part in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(part, Mapping):
                yield (key, str(number)), part
