"""What every wire puts before the history: parameters, options of the model, tools, and names that endpoints accept."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final

from xnagent.core.items import Item, UserText
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import Json, canonical
from xnagent.errors import UsageError
from xnagent.models.raw_json import dump

NAME_LIMIT: Final = 64
ID_LIMIT: Final = 64

LIFETIME_OPTION: Final = "cache_ttl"
"""An option that is not sent: `none` puts in no cache markers at all, `1h` asks for an hour with each of them.

Otherwise each request decides, see `core/lifetime.py`.
"""
BREAKPOINT_OPTION: Final = "cache_breakpoint"
"""An option that is not sent: true puts an explicit cache breakpoint after the first message, for a rebase to find.

The newest message is a breakpoint by itself (OpenAI since 5.6); a prefix that ends at neither is not found.
"""

_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_DIGITS: Final = 12
_KEY_DIGITS: Final = 32


def options_of(manifest: ManifestRecorded, reserved: Collection[str]) -> dict[str, Json]:
    """The model's options. Raises UsageError if they would overwrite what belongs to xnagent."""
    options: dict[str, Json] = json.loads(manifest.options or "{}")
    if taken := sorted(set(reserved).intersection(options)):
        raise UsageError(f"OPTION_RESERVED: model options cannot set {', '.join(taken)}; remove them from `options`")
    return options


def merged(fixed: Mapping[str, Json], options: Mapping[str, Json]) -> dict[str, Json]:
    """The parameters in a fixed order, then the options by name; an option may replace a parameter, null removes it."""
    both = {**fixed, **{key: options[key] for key in sorted(options)}}
    return {key: value for key, value in both.items() if value is not None}


def tools_of(manifest: ManifestRecorded, *, schema: str) -> list[dict[str, Json]]:
    """The tool definitions in the manifest's order: name, description, the parameters under the name `schema`."""
    tools: list[Mapping[str, Json]] = json.loads(manifest.tools or "[]")
    return [_tool(tool, schema=schema) for tool in tools]


def _tool(tool: Mapping[str, Json], *, schema: str) -> dict[str, Json]:
    known = {"name", "description", "parameters"}
    return {
        "name": tool["name"],
        "description": tool.get("description", ""),
        schema: json.loads(canonical(tool.get("parameters", {}))),
        **{key: tool[key] for key in sorted(tool) if key not in known},
    }


def sent_name(name: str) -> str:
    """The tool's name as endpoints accept it: an invented one would make every later request a 400."""
    return _NOT_IN_A_NAME.sub("_", name)[:NAME_LIMIT] or "unknown"


def plain_id(call_id: str) -> str:
    """The call id with letters, digits, `_` and `-` alone; one that is so already stays as it is (B054)."""
    if call_id and len(call_id) <= ID_LIMIT and not _NOT_IN_A_NAME.search(call_id):
        return call_id
    return _hashed(_NOT_IN_A_NAME.sub("_", call_id), call_id)


def short_id(call_id: str) -> str:
    """The call id, shortened where it is too long to be sent."""
    return call_id if 0 < len(call_id) <= ID_LIMIT else _hashed(call_id, call_id)


def cache_key(manifest: ManifestRecorded, items: Sequence[Item]) -> str:
    """Routes requests that begin alike to the same cache: the manifest and the first message, which no rebase changes.

    A new generation keeps its key, because system, tools and objective are still cached where the old one was.
    """
    first = items[0].text if items and isinstance(items[0], UserText) else ""
    return "xn-" + sha256(dump([manifest.manifest, first]).encode()).hexdigest()[:_KEY_DIGITS]


def _hashed(readable: str, original: str) -> str:
    digest = sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{readable[: ID_LIMIT - _HASH_DIGITS - 1]}_{digest}"
