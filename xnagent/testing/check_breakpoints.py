"""What OpenAI refuses about explicit cache breakpoints, on both of its wires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from xnagent.testing.reading import Wire, response_items
from xnagent.testing.refusal import Refusal

_MODES: Final = frozenset({"implicit", "explicit"})
_LIFETIMES: Final = frozenset({"30m", "12h"})

Part = tuple[str, Mapping[str, Any]]


def check_breakpoints(data: Mapping[str, Any], *, wire: Wire, is_known: bool) -> Iterator[Refusal]:
    """Where a breakpoint stands, what it says, and whether the model has them at all (5.6 and later)."""
    marked = [(where, part) for where, part in _parts(data, wire) if part.get("prompt_cache_breakpoint") is not None]
    options = data.get("prompt_cache_options")
    if not is_known:
        yield from (_unsupported(f"{where}.prompt_cache_breakpoint") for where, _ in marked)
        if options is not None:
            yield _unsupported("prompt_cache_options")
        return
    for where, part in marked:
        yield from _breakpoint(where, part)
    if isinstance(options, Mapping):
        yield from _options(options, data)


def _unsupported(param: str) -> Refusal:
    return Refusal(
        message=f"Unsupported parameter: '{param}' is not supported with this model.",
        code="unsupported_parameter",
        param=param,
    )


def _breakpoint(where: str, part: Mapping[str, Any]) -> Iterator[Refusal]:
    param = f"{where}.prompt_cache_breakpoint"
    mark = part["prompt_cache_breakpoint"]
    mode = mark.get("mode") if isinstance(mark, Mapping) else mark
    if mode != "explicit":
        yield _invalid(f"{param}.mode", mode, known=frozenset({"explicit"}))
    if part.get("type") == "output_text" or part.get("role") == "assistant":
        yield Refusal(message=f"Unknown parameter: '{param}'.", code="unknown_parameter", param=param)


def _options(options: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Refusal]:
    if (mode := options.get("mode", "implicit")) not in _MODES:
        yield _invalid("prompt_cache_options.mode", mode, known=_MODES)
    if (lifetime := options.get("ttl", "30m")) not in _LIFETIMES:
        yield _invalid("prompt_cache_options.ttl", lifetime, known=_LIFETIMES)
    if "ttl" in options and data.get("prompt_cache_retention") is not None:
        yield Refusal(
            message="'prompt_cache_retention' cannot be used together with 'prompt_cache_options.ttl'.",
            code="invalid_request_error",
            param="prompt_cache_retention",
        )


def _invalid(param: str, value: object, *, known: frozenset[str]) -> Refusal:
    listed = " and ".join(f"'{name}'" for name in sorted(known))
    return Refusal(
        message=f"Invalid value: {value!r}. Supported values are: {listed}.", code="invalid_value", param=param
    )


def _parts(data: Mapping[str, Any], wire: Wire) -> Iterator[Part]:
    name = "input" if wire == "responses" else "messages"
    found = response_items(data) if wire == "responses" else data.get("messages") or ()
    for number, message in enumerate(found):
        if not isinstance(message, Mapping):
            continue
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, Mapping):
                yield f"{name}[{number}].content[{place}]", {**part, "role": message.get("role")}
