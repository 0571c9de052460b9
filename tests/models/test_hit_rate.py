"""The gate on cache hits: eight sessions on each provider, of which the newest requests must come from its cache."""

import pytest

from tests.models.speaking import call, manifest, result, said, sealed, user
from xnagent.core.items import Item
from xnagent.core.text import canonical
from xnagent.models.wires import encode
from xnagent.testing.cache import PrefixCache
from xnagent.testing.providers import PROVIDERS
from xnagent.testing.received import Received

BAR = 0.9
NEWEST = 3
MOST_LOW_CASES = 1
CASES: dict[str, tuple[int, ...]] = {
    "dialogue": (0,) * 12,
    "long dialogue": (0,) * 30,
    "one call a step": (1,) * 12,
    "parallel calls": (3,) * 8,
    "many parallel calls": (25, 25, 25, 25),
    "calls and news": (1, 0, 1, 0, 1, 0, 1, 0),
    "wide, then narrow": (12, 8, 4, 2, 1, 1, 1),
    "narrow, then wide": (1, 1, 1, 2, 4, 4, 4),
}
"""Calls of each step."""
WIRE = {"openai": "responses", "openai-5.6": "responses", "anthropic": "messages"}
SYSTEM = "A rule. " * 1_500
"""About as long as the real one with its tools."""
TEXT = "some words of a result " * 6


def requests(wire: str, widths: tuple[int, ...]) -> list[list[Item]]:
    items: list[Item] = [user("Objective. " * 600), user("<state> " * 200)]
    made = [list(items)]
    for step, width in enumerate(widths):
        ids = [f"s{step}_{n}" for n in range(width)]
        items += [sealed(wire), said("I go on."), *map(call, ids), *(result(one, TEXT) for one in ids)]
        items += [] if ids else [user("<delta> news")]
        made.append(list(items))
    return made


def rate(provider: str, widths: tuple[int, ...]) -> float:
    """Of the newest requests' input, what came from the cache."""
    wire = WIRE.get(provider, "chat")
    options = canonical({"cache_breakpoint": True}) if provider == "openai-5.6" else "{}"
    cache = PrefixCache(PROVIDERS[provider].cache, lambda: 0.0)
    chosen = manifest(wire, options=options, system=SYSTEM)
    read = [cache.read(Received(encode(chosen, items), wire)) for items in requests(wire, widths)][-NEWEST:]
    return sum(one.cached for one in read) / sum(one.prompt for one in read)


@pytest.mark.parametrize("provider", ["generic", "deepseek", "openai", "openai-5.6", "anthropic", "llama.cpp"])
def test_M36_the_newest_requests_come_from_the_cache(provider: str):
    rates = {name: rate(provider, widths) for name, widths in CASES.items()}
    low = {name: found for name, found in rates.items() if found < BAR}
    assert len(low) <= MOST_LOW_CASES, rates
