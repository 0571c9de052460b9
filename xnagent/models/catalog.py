"""What is known of a model, and the model object that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from xnagent.core.caching import CacheRule
from xnagent.core.lifetime import Lifetime
from xnagent.core.pricing import Price
from xnagent.core.text import Json
from xnagent.core.values import dataclass
from xnagent.errors import UsageError
from xnagent.models.gate import Gates
from xnagent.models.transport import HttpTransport, Timeouts
from xnagent.models.warming import BYTES_PER_TOKEN, LIFETIME_SECONDS, Warmth
from xnagent.models.wire_model import WireModel
from xnagent.models.wires import BY_NAME, wire_named
from xnagent.ports import Clock, Model

WIRES: Final = tuple(BY_NAME)
"""The wires that this version speaks."""
ASSUMED_WINDOW_TOKENS: Final = 128_000
ASSUMED_OUTPUT_TOKENS: Final = 8_192
CACHE_OF_WIRE: Final[Mapping[str, CacheRule]] = {
    "messages": CacheRule(lifetime_seconds=300.0, long_lifetime_seconds=3_600.0, order="tools-system")
}
"""What a wire itself says of the caches behind it, and a row need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model: a row of `configs/models.toml`, or the user's own."""

    name: str
    """What the endpoint calls it."""
    wire: str = "chat"
    base_url: str = ""
    api_key_env: str = ""
    """The environment variable that holds the key; empty: none is needed."""
    window_tokens: int = ASSUMED_WINDOW_TOKENS
    max_output_tokens: int = ASSUMED_OUTPUT_TOKENS
    price: Price | None = None
    """None: unknown; its cost is reported as null."""
    send_reasoning: bool = False
    """The endpoint wants `reasoning_content` back."""
    cache: CacheRule = field(default_factory=CacheRule)
    """What is known of its cache."""
    lifetime: Lifetime = "5m"
    """How long what its requests leave there is to live, where the wire lets them say it."""
    source: str = ""
    """Where the numbers come from."""
    date: str = ""
    """When they were looked up, `YYYY-MM-DD`."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Further parameters of its requests."""


def create_model(
    entry: ModelEntry,
    key: str | None,
    *,
    timeouts: Timeouts | None = None,
    gates: Gates | None = None,
    clock: Clock | None = None,
) -> Model:
    """The model object, behind its gate, which waits by the clock.

    Raises UsageError if the entry's wire or address cannot be used.
    """
    wire = wire_named(entry.wire, model=entry.name)
    if not entry.base_url:
        raise UsageError(f"BASE_URL_MISSING: model {entry.name!r} has no address; give --base-url")
    place = {"endpoint": entry.base_url, "key": entry.api_key_env, "model": entry.name}
    gate = None if gates is None else gates.to(**place, warmth=_warmth(entry), clock=clock)
    return WireModel(HttpTransport(entry.base_url, key, timeouts=timeouts), wire, gate=gate)


def _warmth(entry: ModelEntry) -> Warmth | None:
    """None where nothing is known of a cache that serves a head to others: then nobody waits for it to be warm."""
    is_cheaper = entry.price is not None and entry.price.cached_usd < entry.price.input_usd
    if not is_cheaper or entry.cache.has_whole_requests:
        return None
    return Warmth(
        lifetime_seconds=entry.cache.lifetime_seconds or LIFETIME_SECONDS,
        minimum_bytes=(entry.cache.minimum_tokens or 0) * BYTES_PER_TOKEN,
        lag_seconds=entry.cache.lag_seconds or 0.0,
    )
