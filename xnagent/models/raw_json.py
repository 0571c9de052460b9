"""JSON texts taken apart without rewriting them: what a model or a provider wrote goes on byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from xnagent.core.text import Json, clean

UNPARSED: Final = "unparsed_arguments"
"""Name under which arguments that are no object are shown to the model that wrote them."""

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DEEPEST: Final = 100
"""Providers' parsers stop at about 128 levels, the request's own included."""
_MOST_ENCODINGS: Final = 3
_ESCAPE: Final = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F]))"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}",
    re.DOTALL,
)


def dump(value: Json) -> str:
    """Compact JSON in the order of the keys as they are, without half surrogate pairs."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def members(text: str) -> dict[str, str]:
    """The members of an object, each as it was written; empty for anything else. The text is valid JSON."""
    found: dict[str, str] = {}
    place = _after_space(text, 0)
    if text[place] != "{":
        return found
    place = _after_space(text, place + 1)
    while text[place] != "}":
        name, place = _DECODER.raw_decode(text, place)
        start = _after_space(text, _after_space(text, place) + 1)
        _, place = _DECODER.raw_decode(text, start)
        found[name] = text[start:place]
        place = _after_comma(text, place)
    return found


def elements(text: str) -> Iterator[str]:
    """The elements of an array, each as it was written; none for anything else. The text is valid JSON."""
    place = _after_space(text, 0)
    if text[place] != "[":
        return
    place = _after_space(text, place + 1)
    while text[place] != "]":
        _, end = _DECODER.raw_decode(text, place)
        yield text[place:end]
        place = _after_comma(text, end)


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _after_comma(text: str, place: int) -> int:
    place = _after_space(text, place)
    return _after_space(text, place + 1) if text[place] == "," else place


def whole_pairs(text: str) -> str:
    """The JSON text, with escapes of half surrogate pairs replaced: strict parsers refuse a request that has one."""
    return _ESCAPE.sub(lambda found: found.group(1) or "\\ufffd", clean(text))


def object_text(arguments: str) -> str:
    """The arguments of a call as the text of a JSON object, for wires that want one (B004).

    What is a valid object stays as it was written. Nothing and `null` are `{}`, a string that holds an object is that
    object, and what cannot be read is kept as a string in an object.
    """
    text = clean(arguments).strip().removeprefix("\ufeff")
    try:
        return _object_in(text)
    except (ValueError, RecursionError):
        return dump({UNPARSED: clean(arguments)})


def argument_text(arguments: str) -> str:
    """The arguments of a call for wires whose field is a string: byte for byte what was written, if that is an object.

    Some servers (llama.cpp, vLLM) read that string as JSON and refuse each later request if they can't; so what is no
    object becomes one, and escapes of half surrogate pairs are replaced, as for the wires that want an object.
    """
    text = clean(arguments)
    try:
        value, sent = _read(text)
    except (ValueError, RecursionError):
        return object_text(text)
    return whole_pairs(text) if isinstance(value, dict) and sent == text.strip() else object_text(text)


def _object_in(text: str) -> str:
    for _ in range(_MOST_ENCODINGS):
        if not text.strip():
            return "{}"
        value, text = _read(text)
        if isinstance(value, dict):
            return whole_pairs(text)
        if value is None:
            return "{}"
        if not isinstance(value, str):
            break
        text = value
    raise ValueError("no object")


def _read(text: str) -> tuple[Json, str]:
    """The value, and the text that may be sent for it."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except ValueError:
        # Raw line breaks inside strings have one reading, but no parser of a provider takes them.
        value = json.loads(text, strict=False, parse_constant=_refuse, parse_float=_finite)
        text = dump(value)
    if text.count("{") + text.count("[") > _DEEPEST and _depth(value) > _DEEPEST:
        raise ValueError("nested too deeply")
    return value, text.strip()


def _depth(value: Json) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if abs(value) != float("inf") else _refuse(number)
