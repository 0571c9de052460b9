"""What is predicted of a cache is what the simulated providers report, for any history that only grows."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.speaking import call, manifest, result, said, sealed, user
from xnagent.core.caching import CacheRule, predicted_tokens
from xnagent.core.items import Item
from xnagent.core.pricing import Price, cost_usd
from xnagent.core.text import canonical
from xnagent.core.tokens import Usage
from xnagent.models.wires import encode
from xnagent.testing.cache import CacheReading, CacheRules, PrefixCache
from xnagent.testing.providers import PROVIDERS
from xnagent.testing.received import Received

TEXTS = st.text("abc é😀\n", min_size=1, max_size=300).map(lambda text: f"<{text}>")
VLLM = CacheRules(block_tokens=16)
EXACT = {
    "generic chat": ("chat", PROVIDERS["generic"].cache, CacheRule(block_tokens=64)),
    "vllm": ("chat", VLLM, CacheRule(block_tokens=16)),
    "openai chat": ("chat", PROVIDERS["openai"].cache, CacheRule(block_tokens=128, minimum_tokens=1_024)),
    "openai responses": ("responses", PROVIDERS["openai"].cache, CacheRule(block_tokens=128, minimum_tokens=1_024)),
    "openai 5.6 chat": ("chat", PROVIDERS["openai-5.6"].cache, CacheRule(minimum_tokens=1_024)),
    "openai 5.6 responses": ("responses", PROVIDERS["openai-5.6"].cache, CacheRule(minimum_tokens=1_024)),
    "anthropic": ("messages", PROVIDERS["anthropic"].cache, CacheRule(minimum_tokens=1_024)),
}
WITH_REPLIES = {
    "deepseek": ("chat", PROVIDERS["deepseek"].cache, CacheRule(block_tokens=64)),
    "llama.cpp": ("chat", PROVIDERS["llama.cpp"].cache, CacheRule()),
}


@st.composite
def histories(draw: st.DrawFn, wire: str) -> list[list[Item]]:
    """The items of each request of a session that goes well."""
    items: list[Item] = [user("w" * draw(st.integers(1, 2_000))), user(draw(TEXTS))]
    requests = [list(items)]
    for step in range(draw(st.integers(1, 5))):
        ids = [f"s{step}_{n}" for n in range(draw(st.integers(0, 25)))]
        items += [*([sealed(wire)] if draw(st.booleans()) else []), said(draw(TEXTS)), *map(call, ids)]
        items += [result(one, draw(TEXTS)) for one in ids]
        items += [user(draw(TEXTS))] if not ids or draw(st.booleans()) else []
        requests.append(list(items))
    return requests


def readings(wire: str, rules: CacheRules, *, requests: list[list[Item]]) -> Iterator[CacheReading]:
    """As the provider reports them; a token is a byte, so that no token is half in a block."""
    chosen = manifest(wire, options=canonical({"cache_breakpoint": True}) if wire == "chat" else "{}")
    cache = PrefixCache(replace(rules, bytes_per_token=1), lambda: 0.0)
    for items in requests:
        yield cache.read(Received(encode(chosen, items), wire))


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=25)
@given(data=st.data())
def test_M35_M33_the_prediction_is_what_the_provider_reports(name: str, data: st.DataObject):
    wire, rules, rule = EXACT[name]
    held: int | None = None
    for reading in readings(wire, rules, requests=data.draw(histories(wire))):
        assert reading.cached == (predicted_tokens(rule, held) or 0)
        held = reading.prompt


@pytest.mark.parametrize("name", WITH_REPLIES)
@settings(max_examples=25)
@given(data=st.data())
def test_M34_M35_providers_that_keep_more_serve_at_least_the_prediction(name: str, data: st.DataObject):
    wire, rules, rule = WITH_REPLIES[name]
    held: int | None = None
    for reading in readings(wire, rules, requests=data.draw(histories(wire))):
        predicted = predicted_tokens(rule, held)
        assert predicted is None or predicted <= reading.cached <= reading.prompt
        held = reading.prompt


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("pause", "cheaper"), [(10.0, "5m"), (301.0, "1h"), (3_600.0, "1h"), (3_601.0, "5m")])
def test_M33_an_hour_before_a_wait_pays_if_the_wait_is_longer_than_five_minutes_and_no_longer_than_an_hour(
    pause: float, cheaper: str
):
    price = Price(input_usd=4, cached_usd=0.4, cache_write_usd=5, cache_write_long_usd=8, output_usd=20)
    start: list[Item] = [user("w" * 40_000), user("<state>")]
    waiting = [*start, said("Go."), call("c1"), result("c1")]
    after = [*waiting, said("I wait."), user("<delta>")]
    dollars = {}
    for name, long_items in (("5m", 0), ("1h", len(waiting))):
        clock = Seconds()
        cache = PrefixCache(PROVIDERS["anthropic"].cache, clock)
        dollars[name] = 0.0
        for items, long, later in ((start, 0, 5.0), (waiting, long_items, pause), (after, long_items, 0.0)):
            read = cache.read(Received(encode(manifest("messages"), items, long_items=long), "messages"))
            usage = Usage(
                input_tokens=read.prompt,
                cached_tokens=read.cached,
                cache_write_tokens=read.written,
                cache_write_long_tokens=read.written_long,
                output_tokens=0,
            )
            dollars[name] += cost_usd(usage, price) or 0.0
            clock.now += later
    assert min(dollars, key=dollars.__getitem__) == cheaper
