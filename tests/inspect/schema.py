"""The schema that docs/inspect.md promises, read from there, and whether a document keeps to it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DOCS = (Path(__file__).resolve().parents[2] / "docs/inspect.md").read_text(encoding="utf-8")
TYPES: Mapping[str, Any] = {"text": str, "int": int, "number": int | float, "bool": bool, "object": dict}


def block(name: str, separator: str) -> dict[str, str]:
    """The lines of a fenced block, by what stands before the separator."""
    (found,) = re.findall(f"^```{name}\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)
    pairs = (line.split(separator, 1) for line in found.splitlines())
    return {key.strip(): value.strip() for key, value in pairs}


SHAPES = block("schema", " = ")
VIEWS = {name: tuple(columns.split()) for name, columns in block("views", ":").items()}


def problems(value: Any, shape: str, where: str) -> Iterator[str]:
    """What about a value is not as the shape says."""
    if shape.endswith("?"):
        if value is not None:
            yield from problems(value, shape[:-1], where)
    elif shape in TYPES:
        is_flag = isinstance(value, bool)
        if not isinstance(value, TYPES[shape]) or is_flag != (shape == "bool"):
            yield f"{where}: {value!r} is no {shape}"
    elif shape[0] in "[{" and shape[1:-1]:
        is_list = shape[0] == "["
        if not isinstance(value, list if is_list else dict):
            yield f"{where}: {value!r} is no {'list' if is_list else 'object'}"
            return
        for part in value if is_list else value.values():
            yield from problems(part, shape[1:-1], f"{where}[]")
    else:
        yield from _fields(value, SHAPES[shape], where)


def _fields(value: Any, shape: str, where: str) -> Iterator[str]:
    if ":" not in shape:
        yield from problems(value, shape, where)
        return
    fields = dict(field.split(":", 1) for field in shape.split())
    if set(value) != set(fields):
        yield f"{where}: fields {sorted(set(value) ^ set(fields))} are only on one side"
        return
    for name, inner in fields.items():
        yield from problems(value[name], inner, f"{where}.{name}")
