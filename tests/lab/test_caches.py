"""The simulated caches: what each provider finds again, and that nothing is lost between rebases but block rounding."""

import pytest

from tests.lab.making import PLAIN, growing, step, terms, thread
from xnagent.core.caching import CacheRule
from xnagent.lab.caches import Cache, uncached, units_of
from xnagent.lab.requests import Request
from xnagent.lab.strategies import OURS, STRATEGIES
from xnagent.lab.tally import Meter
from xnagent.lab.work import work_of

DEEPSEEK = CacheRule(block_tokens=64, has_whole_requests=True)
OPENAI = CacheRule(block_tokens=128, minimum_tokens=1024, lifetime_seconds=300.0)
ANTHROPIC = CacheRule(lifetime_seconds=300.0, long_lifetime_seconds=3600.0, minimum_tokens=512)
CACHES = {
    "deepseek": terms("requests", price=PLAIN, rule=DEEPSEEK),
    "openai": terms("blocks", price=PLAIN, rule=OPENAI),
    "anthropic": terms("marks", rule=ANTHROPIC),
}


def request(total: int, *, common: int = 0, at: float | None = None, stable: int | None = None, reply: int = 0):
    end = total if stable is None else stable
    return Request(common=common, total=total, stable=end, fixed=1_000, reply=reply, at=at)


def found(name: str, *requests: Request) -> list[int]:
    cache = Cache(provider=CACHES[name].provider)
    return [cache.read(one).cached for one in requests]


def test_M34_deepseek_finds_whole_requests_with_their_replies_and_where_two_parted():
    assert found("deepseek", request(6_400, reply=640), request(9_000, common=7_040)) == [0, 7_040]
    parted = [request(6_400), request(9_600, common=5_000), request(9_700, common=5_500)]
    assert found("deepseek", *parted) == [0, 0, 4_992]


def test_M32_openai_finds_whole_blocks_of_anything_that_is_long_enough():
    assert found("openai", request(6_400), request(9_000, common=6_399)) == [0, 6_272]
    assert found("openai", request(6_400, reply=500), request(9_000, common=6_900)) == [0, 6_400]
    assert found("openai", request(1_100), request(1_200, common=1_000)) == [0, 0]


def test_anthropic_finds_what_ended_at_a_mark_to_the_token():
    assert found("anthropic", request(6_403), request(9_000, common=6_403)) == [0, 6_403]
    assert found("anthropic", request(6_403, stable=5_001), request(9_000, common=5_001)) == [0, 5_001]
    assert found("anthropic", request(6_403), request(9_000, common=4_000)) == [0, 1_000]


@pytest.mark.parametrize(("wait", "cached"), [(300.0, 6_400), (301.0, 0)])
@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_nothing_is_found_after_the_lifetime(name: str, wait: float, cached: int):
    assert found(name, request(6_400, at=0.0), request(9_000, common=6_400, at=wait)) == [0, cached]


def test_a_thread_that_waits_long_is_written_for_the_longer_lifetime_and_found_after_it():
    cache = Cache(provider=CACHES["anthropic"].provider)
    waits = [request(10_000 + n, common=10_000 + n - 1 if n else 0, at=600.0 * n) for n in range(12)]
    readings = [cache.read(one) for one in waits]
    assert (readings[1].is_cold, readings[1].cached) == (True, 0)
    assert (readings[-1].is_long, readings[-1].cached) == (True, waits[-2].total)


def test_without_a_cache_nothing_is_found_and_nothing_costs_less():
    assert units_of("no-cache", ANTHROPIC) == ("none", CacheRule())
    bare = terms("none", price=uncached(PLAIN))
    tally = Meter(bare.provider).play(STRATEGIES["append"](work_of(growing(9)), bare), steps=9)
    assert (tally.cached, tally.written, tally.share) == (0, 0, 1.0)


@pytest.mark.parametrize("name", CACHES)
def test_between_rebases_all_but_block_rounding_is_read_from_the_cache(name: str):
    """Issue 6: at least 99.5 %, and each loss has its name."""
    work = work_of(growing(150, head=30_000))
    tally = Meter(CACHES[name].provider).play(STRATEGIES[OURS](work, CACHES[name]), steps=150)
    assert tally.lineages >= 3
    assert tally.reuse is not None
    assert tally.reuse >= 0.995
    assert tally.standing == tally.reused + tally.lost_rounding
    assert (tally.lost_changed, tally.lost_lifetime) == (0, 0)
    block = CACHES[name].provider.rule.block_tokens or 1
    assert tally.lost_rounding <= tally.steps * (block - 1)


@pytest.mark.parametrize("name", CACHES)
def test_a_snapshot_that_is_replaced_loses_what_an_appended_one_keeps(name: str):
    work = work_of(growing(40))
    replaced, appended = (
        Meter(CACHES[name].provider).play(STRATEGIES[way](work, CACHES[name]), steps=40)
        for way in ("snapshot-replace", "append-snapshot")
    )
    assert replaced.lost_changed > 0
    assert appended.lost_changed == 0
    assert replaced.reuse is not None
    assert appended.reuse is not None
    assert replaced.reuse < appended.reuse


def test_a_pause_is_named_as_the_loss_that_it_is():
    late = thread(step(user=100, at=0.0), step(3_000, at=10.0), step(3_000, at=1_000.0))
    tally = Meter(CACHES["openai"].provider).play(STRATEGIES["append"](work_of(late), CACHES["openai"]), steps=3)
    assert tally.lost_lifetime == 5_000 + 100 + 200 + 3_000
