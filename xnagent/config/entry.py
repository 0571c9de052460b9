"""Which model answers a role: the settings, completed from the table of known models and by assumptions."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from xnagent.config import ModelSettings, ModelTable, PriceFields, PriceTable, Settings
from xnagent.config.load import with_settings
from xnagent.config.places import shipped
from xnagent.config.sources import from_file
from xnagent.core.caching import CacheRule
from xnagent.core.lifetime import Lifetime
from xnagent.core.pricing import OffPeak, Price, Tier
from xnagent.core.text import Json
from xnagent.errors import UsageError
from xnagent.models.catalog import ASSUMED_OUTPUT_TOKENS, ASSUMED_WINDOW_TOKENS, CACHE_OF_WIRE, ModelEntry
from xnagent.models.parameters import BREAKPOINT_OPTION, LIFETIME_OPTION
from xnagent.models.slots import PINNED_WIRES, SLOTS_OPTION

Role = Literal["planner", "worker"]
Catalog: TypeAlias = Mapping[str, ModelTable]
"""Known models by name."""

ASSUMED_WIRE: Final = "chat"


@cache
def shipped_catalog() -> Catalog:
    """The models that xnagent knows (`configs/models.toml`). Raises UsageError naming file, model and key."""
    path = shipped("models.toml")
    return with_settings(Settings(), from_file(path) if path.is_file() else ()).models


def catalog_of(settings: Settings) -> Catalog:
    """The shipped table with the user's additions; a user's table replaces what it names and keeps the rest."""
    known = dict(shipped_catalog())
    for name, table in settings.models.items():
        given = {field: getattr(table, field) for field in table.model_fields_set}
        known[name] = known.get(name, ModelTable()).model_copy(update=given)
    return known


def model_entry(
    settings: Settings, role: Role, *, name: str | None = None, catalog: Catalog | None = None
) -> ModelEntry:
    """The model of a role; `name` is another one that takes its place (a delegated run may ask for it).

    Worker settings fall back to the Planner's, then to the table's, then to assumptions. Raises UsageError (exit code
    2) when no model is named or nobody says where it is.
    """
    chosen = _chosen(settings, role)
    name = name or chosen.name
    if name is None:
        raise UsageError("MODEL_MISSING: no model is configured; pass --model NAME (`xnagent models` lists known ones)")
    table = (catalog_of(settings) if catalog is None else catalog).get(name, ModelTable())
    if not (chosen.base_url or table.base_url):
        raise UsageError(
            f'MODEL_UNKNOWN: the model "{name}" is not in the table of known ones; say where it is with --base-url URL '
            f"and, if it needs a key, --api-key-env VAR"
        )
    return replace(_entry(name, chosen, table=table), lifetime=_lifetime(settings, role, table=table))


def model_chain(
    settings: Settings, role: Role, *, name: str | None = None, catalog: Catalog | None = None
) -> tuple[ModelEntry, ...]:
    """The model of a role, as `model_entry` gives it, and those that may take its place, in the user's order.

    A fallback that the table places somewhere is as its row says: all that the role's settings say is about its first
    model. One that nobody places is served as the first one is.
    """
    catalog = catalog_of(settings) if catalog is None else catalog
    first = model_entry(settings, role, name=name, catalog=catalog)
    chosen = _chosen(settings, role)
    others = model_names(settings, role, name=first.name)[1:]
    tables = {other: catalog.get(other, ModelTable()) for other in others}
    heirs = {other: _fallback(other, chosen, table=table) for other, table in tables.items()}
    lifetimes = {other: _lifetime(settings, role, table=table) for other, table in tables.items()}
    return (first, *(replace(heir, lifetime=lifetimes[other]) for other, heir in heirs.items()))


def model_names(settings: Settings, role: Role, *, name: str | None = None) -> tuple[str, ...]:
    """The names in the order of `model_chain`, whatever the table says of them."""
    chosen = _chosen(settings, role)
    return tuple(dict.fromkeys((name or chosen.name or "", *(chosen.fallback or ()))))


def _fallback(name: str, chosen: ModelSettings, *, table: ModelTable) -> ModelEntry:
    if table.base_url:
        return _entry(name, ModelSettings(), table=table)
    if not chosen.base_url:
        raise UsageError(
            f'MODEL_UNKNOWN: the fallback "{name}" is not in the table of known models; say where it is in a settings '
            f'file: [models."{name}"] with base_url, wire and api_key_env'
        )
    return _entry(name, chosen, table=table)


def _entry(name: str, chosen: ModelSettings, *, table: ModelTable) -> ModelEntry:
    wire = chosen.wire or table.wire or ASSUMED_WIRE
    drawn: dict[str, Json] = {} if chosen.temperature is None else {"temperature": chosen.temperature}
    return ModelEntry(
        name=name,
        wire=wire,
        base_url=chosen.base_url or table.base_url or "",
        api_key_env=chosen.api_key_env or ("" if _is_own_loopback(chosen, table) else table.api_key_env or ""),
        window_tokens=chosen.window or table.window_tokens or ASSUMED_WINDOW_TOKENS,
        max_output_tokens=chosen.max_output_tokens or table.max_output_tokens or ASSUMED_OUTPUT_TOKENS,
        price=None if table.price is None else _whole_price(table.price),
        cache=_cache(table, wire=wire),
        send_reasoning=table.send_reasoning is not False,
        source=table.source or "",
        date=table.date or "",
        options={
            **_breakpoints(table, wire=wire),
            **_sent_options(table),
            **drawn,
            **_pinning(name, table, wire=wire),
        },
    )


def _pinning(name: str, table: ModelTable, *, wire: str) -> Mapping[str, Json]:
    if table.slots is None:
        return {}
    if wire not in PINNED_WIRES:
        raise UsageError(
            f'CONFIG_INVALID: models."{name}".slots: llama.cpp takes a slot on the wires {" and ".join(PINNED_WIRES)} '
            f"alone, not on {wire}; remove it, or set another wire"
        )
    return {SLOTS_OPTION: table.slots}


def _chosen(settings: Settings, role: Role) -> ModelSettings:
    planner = settings.planner.model
    if role == "planner":
        return planner
    return planner.model_copy(update=settings.worker.model.model_dump(exclude_none=True))


def _is_own_loopback(chosen: ModelSettings, table: ModelTable) -> bool:
    """Whether the user points a known model at this machine: a key meant for the provider does not go there unasked."""
    return chosen.base_url is not None and chosen.base_url != table.base_url and is_loopback(chosen.base_url)


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _whole_price(table: PriceTable) -> Price:
    tiers = tuple(Tier(above_tokens=tier.above_tokens, price=_price(tier)) for tier in table.tiers)
    return replace(_price(table), tiers=tiers, off_peak=_off_peak(table))


def _off_peak(table: PriceTable) -> OffPeak | None:
    if table.off_peak_share is None:
        return None
    peaks = tuple(_minutes(span) for span in table.peak_utc)
    return OffPeak(share=table.off_peak_share, peaks=peaks, has_weekends=table.peak_days == "daily")


def _minutes(span: str) -> tuple[int, int]:
    begin, end = (int(text[:2]) * 60 + int(text[3:]) for text in span.split("-"))
    return begin, end


def _price(table: PriceFields) -> Price:
    return Price(
        input_usd=table.input_usd,
        cached_usd=table.input_usd if table.cached_usd is None else table.cached_usd,
        output_usd=table.output_usd,
        cache_write_usd=table.cache_write_usd,
        cache_write_long_usd=table.cache_write_long_usd,
    )


def _cache(table: ModelTable, *, wire: str) -> CacheRule:
    known = CACHE_OF_WIRE.get(wire, CacheRule())
    return CacheRule(
        lifetime_seconds=table.cache_lifetime_seconds or known.lifetime_seconds,
        long_lifetime_seconds=table.cache_long_lifetime_seconds or known.long_lifetime_seconds,
        minimum_tokens=table.cache_minimum_tokens or known.minimum_tokens,
        block_tokens=table.cache_block_tokens or known.block_tokens,
        lag_seconds=table.cache_lag_seconds,
        has_whole_requests=bool(table.cache_whole_requests),
        order=table.render_order or known.order,
    )


def _lifetime(settings: Settings, role: Role, *, table: ModelTable) -> Lifetime:
    """The role's own setting: what the Planner waits for is its Workers, which wait for nobody."""
    asked = (settings.planner if role == "planner" else settings.worker).model.cache_ttl
    if asked is not None:
        return asked
    option = (table.options or {}).get(LIFETIME_OPTION)
    if option in {"5m", "1h"}:
        return "1h" if option == "1h" else "5m"
    return "auto" if role == "planner" else "5m"


def _breakpoints(table: ModelTable, *, wire: str) -> dict[str, Json]:
    return {BREAKPOINT_OPTION: True} if table.cache_breakpoints and wire != "messages" else {}


def _sent_options(table: ModelTable) -> dict[str, Json]:
    """The table's options; a lifetime among them is no part of the manifest: each request decides (`_lifetime`)."""
    options: dict[str, Json] = {**(table.options or {})}
    if options.get(LIFETIME_OPTION) in {"5m", "1h"}:
        del options[LIFETIME_OPTION]
    return options
