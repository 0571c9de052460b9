"""What would be lost of a request's cached prefix if something had been changed before it, under each cache rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from xnagent.app.comparing import entry_of, segments_of, tokens_of
from xnagent.app.crew import make_manifest
from xnagent.app.lock import ROLES, definitions_of
from xnagent.app.replay import Made, requests_made
from xnagent.config import Settings
from xnagent.config.entry import Role, catalog_of, model_entry
from xnagent.core.caching import predicted_tokens
from xnagent.core.events import Stored
from xnagent.core.ids import PLANNER
from xnagent.core.prefix import find_named, segment_name
from xnagent.core.pricing import PER_MILLION, price_for, rewrite_usd, short_write_usd
from xnagent.core.spine_events import ManifestRecorded, RequestStarted
from xnagent.core.text import Json, canonical
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry
from xnagent.models.encoder import Encoder
from xnagent.models.wires import wire_named

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a model's cache would no longer serve. Tokens are those that were reported here, whatever the model."""

    model: str
    wire: str
    is_own: bool
    """It is the model that the request was sent to."""
    segment: str | None
    """The first part that would differ, as the model reads; None: none would."""
    served_tokens: int
    """What its cache serves of the request as it was: whole blocks, from its shortest prefix on."""
    lost_tokens: int
    """What of that it would not serve after the change."""
    lost_usd: float | None
    """What sending them costs more than reading them from the cache; None: no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposition:
    """A change, and what it would have cost."""

    change: str
    note: str
    """What was changed, for people."""
    held_by: int | None
    """The request whose prefix the caches hold; None: there is none that this one shares a beginning with."""
    losses: tuple[Loss, ...]
    """The request's own model first, then those of the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A request, and the earlier one that caches still hold."""

    events: Sequence[Stored]
    made: Made
    held: Made | None

    @property
    def role(self) -> Role:
        """Whose model it is."""
        return "planner" if self.made.agent == PLANNER else "worker"


Change = Callable[[ManifestRecorded], ManifestRecorded]


def suppose(events: Sequence[Stored], request: int, *, changes: Iterable[str]) -> list[Supposition]:
    """What each change (`cwd=…`, `model=…`, `add-tool=…`, `drop-tool=…`) would have cost, by itself.

    Raises UsageError for a change that does not exist or does nothing, and if there is no request of the number.
    """
    asked = [_asked(change) for change in changes]
    (made,) = requests_made(events, {request})
    case = _Case(events=events, made=made, held=_held(events, made))
    return [_supposed(case, key, value=value) for key, value in asked]


def _asked(change: str) -> tuple[str, str]:
    key, sign, value = change.partition("=")
    if key not in (keys := ("cwd", "model", "add-tool", "drop-tool")):
        near = get_close_matches(key, keys, n=1, cutoff=0.0)[0]
        raise UsageError(
            f'WHAT_IF_UNKNOWN: there is no change "{key}"; did you mean "{near}"? One of {", ".join(keys)}'
        )
    if not sign or not value:
        raise UsageError(f"WHAT_IF_INCOMPLETE: {key} needs a value: --what-if {key}=…")
    return key, value


def _held(events: Sequence[Stored], made: Made) -> Made | None:
    """The agent's request before; of a first one, the newest of another agent with the same head."""
    earlier = [stored.event for stored in events if stored.seq < made.seq and isinstance(stored.event, RequestStarted)]
    own = [one.request for one in earlier if one.agent == made.started.agent and one.request != made.started.request]
    alike = [one.request for one in earlier if one.manifest == made.started.manifest]
    number = next(iter([*own[-1:], *alike[-1:]]), None)
    return None if number is None else requests_made(events, {number})[0]


def _supposed(case: _Case, key: str, *, value: str) -> Supposition:
    if key == "model":
        losses = [_moved(case, value)]
        note = _move(case.made.manifest.model, value)
    else:
        change, note = _change(case, key, value=value)
        losses = [_loss(case, entry, change=change) for entry in _entries(case)]
    held = None if case.held is None else case.held.started.request
    return Supposition(change=f"{key}={value}", note=note, held_by=held, losses=tuple(losses))


def _move(before: str, after: str) -> str:
    is_same = before == after
    return "the model that it was sent to" if is_same else f"{after} in place of {before}; it has a cache of its own"


def _change(case: _Case, key: str, *, value: str) -> tuple[Change, str]:
    manifest, started = case.made.manifest, case.made.state.started
    if key == "cwd":
        folder = "" if started is None else started.repository
        texts = (manifest.system, manifest.tools, manifest.options)
        number = sum(text.count(folder) for text in texts) if folder else 0
        where = f"{number} times in" if number else "in none of"
        return _in_folder(folder, value), f"{folder or 'the folder'} stands {where} system text, tools and parameters"
    tools: dict[str, Json] = {tool["name"]: tool for tool in json.loads(manifest.tools or "[]")}
    if key == "drop-tool":
        if value not in tools:
            near = get_close_matches(value, sorted(tools), n=1, cutoff=0.0)
            meant = f'; did you mean "{near[0]}"?' if near else ""
            raise UsageError(f'WHAT_IF_NO_TOOL: the request has no tool "{value}"{meant}')
        return _with_tools({name: tool for name, tool in tools.items() if name != value}), f"without {value}"
    if value in tools:
        raise UsageError(f'WHAT_IF_NO_CHANGE: the request has the tool "{value}" already; add another one')
    known = _known_tool(value)
    return _with_tools(tools | {value: known or _made_up(value)}), f"with {value}" + (
        "" if known else ", a made-up tool"
    )


def _in_folder(before: str, after: str) -> Change:
    def change(manifest: ManifestRecorded) -> ManifestRecorded:
        if not before:
            return manifest
        system, tools, options = (
            text.replace(before, after) for text in (manifest.system, manifest.tools, manifest.options)
        )
        return replace(manifest, system=system, tools=tools, options=options)

    return change


def _with_tools(tools: Mapping[str, Json]) -> Change:
    definitions = canonical([tool for _, tool in sorted(tools.items())])
    return lambda manifest: replace(manifest, tools=definitions)


def _known_tool(name: str) -> Json:
    """As an agent of this xnagent has it."""
    known = (tool for role in ROLES for tool in json.loads(definitions_of(role)))
    return next((tool for tool in known if tool["name"] == name), None)


def _made_up(name: str) -> Json:
    if not TOOL_NAME.fullmatch(name):
        raise UsageError(f"WHAT_IF_BAD_TOOL: {name!r} is no name of a tool: letters, digits, _ and -, at most 64")
    return {"name": name, "description": "", "parameters": {"type": "object", "properties": {}}}


def _entries(case: _Case) -> Iterator[ModelEntry]:
    """The request's own model as it was known, then those of the catalogue that have a place."""
    own = entry_of(case.events, case.made)
    yield ModelEntry(name=case.made.manifest.model, wire=case.made.manifest.wire) if own is None else own
    catalog = catalog_of(Settings())
    for name, table in catalog.items():
        if table.base_url and name != case.made.manifest.model:
            yield model_entry(Settings(), case.role, name=name, catalog=catalog)


def _loss(case: _Case, entry: ModelEntry, *, change: Change) -> Loss:
    is_own = entry.name == case.made.manifest.model
    as_sent = case.made.manifest if is_own else _manifest(case, entry)
    kept, _ = _served(case, entry, before=as_sent, after=as_sent)
    rest, segment = _served(case, entry, before=as_sent, after=change(as_sent))
    lost = max(0, kept - rest)
    return Loss(
        model=entry.name,
        wire=as_sent.wire,
        is_own=is_own,
        segment=segment,
        served_tokens=kept,
        lost_tokens=lost,
        lost_usd=rewrite_usd(lost, entry.price, size_tokens=_size(case)),
    )


def _manifest(case: _Case, entry: ModelEntry) -> ManifestRecorded:
    """The same text and tools for another model."""
    recorded = case.made.manifest
    return make_manifest(recorded.role, entry, definitions=recorded.tools, system=recorded.system)


def _size(case: _Case) -> int:
    return 0 if case.held is None else tokens_of(case.events, case.held)


def _served(
    case: _Case, entry: ModelEntry, *, before: ManifestRecorded, after: ManifestRecorded
) -> tuple[int, str | None]:
    """What the cache serves of the request, and the first part of the held one that it does not begin with."""
    held, made = case.held, case.made
    if held is None:
        return 0, None
    old, new = (_rendered(one, manifest) for one, manifest in ((held, before), (made, after)))
    found = find_named(old, new, manifests=(before, after), order=entry.cache.order)
    whole = _size(case)
    if found is None:
        return predicted_tokens(entry.cache, whole) or 0, None
    name = (
        segment_name(found.index, agent=made.agent, generation=made.spine.generation) if found.index else found.segment
    )
    kept = 0 if entry.cache.has_whole_requests else whole - round(whole * found.lost_bytes / max(1, sum(map(len, old))))
    return predicted_tokens(entry.cache, kept) or 0, name


def _rendered(made: Made, manifest: ManifestRecorded) -> Sequence[bytes]:
    if manifest == made.manifest:
        return segments_of(made)
    return Encoder(wire_named(manifest.wire, model=manifest.model).renderer).encode(manifest, made.spine).segments


def _moved(case: _Case, name: str) -> Loss:
    """Another model has read nothing of it: everything is sent to it at its price."""
    own = next(_entries(case))
    kept, _ = _served(case, own, before=case.made.manifest, after=case.made.manifest)
    entry = own if name == own.name else _catalogued(case, name)
    lost = 0 if entry is own else kept
    return Loss(
        model=entry.name,
        wire=entry.wire,
        is_own=entry is own,
        segment="model" if lost else None,
        served_tokens=kept,
        lost_tokens=lost,
        lost_usd=_moved_usd(case, own, entry=entry, tokens=lost),
    )


def _catalogued(case: _Case, name: str) -> ModelEntry:
    catalog = catalog_of(Settings())
    if name not in catalog:
        near = get_close_matches(name, list(catalog), n=1, cutoff=0.0)[0]
        raise UsageError(
            f'WHAT_IF_NO_MODEL: the model "{name}" is not in the table of known ones; did you mean "{near}"?'
        )
    return model_entry(Settings(), case.role, name=name, catalog=catalog)


def _moved_usd(case: _Case, own: ModelEntry, *, entry: ModelEntry, tokens: int) -> float | None:
    if own.price is None or entry.price is None:
        return None
    size = _size(case)
    sent, read = short_write_usd(price_for(entry.price, size)), price_for(own.price, size).cached_usd
    return tokens * (sent - read) / PER_MILLION
