"""The simulated cache: what is read again, and what is not."""

import json

import pytest

from xnagent.testing.cache import CacheRules, PrefixCache
from xnagent.testing.prompt import prompt_bytes
from xnagent.testing.received import Received


def request(*texts: str, system: str = "s", tools: tuple[str, ...] = ()) -> Received:
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    messages = [{"role": "system", "content": system}, *({"role": "user", "content": text} for text in texts)]
    return Received(json.dumps({"tools": offered, "messages": messages}, separators=(",", ":")).encode())


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def cache(clock: Seconds | None = None, **rules: object) -> PrefixCache:
    return PrefixCache(CacheRules(**{"block_tokens": 4, **rules}), clock or Seconds())


A, B, C, D = ("a" * 800, "b" * 800, "c" * 800, "d" * 800)


def test_M35_on_the_append_path_the_whole_previous_request_is_read():
    simulated = cache(block_tokens=1)
    previous = simulated.take(request(A))
    assert previous[1] == 0
    for texts in ([A, B], [A, B, C], [A, B, C, D]):
        tokens, cached = simulated.take(request(*texts))
        assert previous[0] - 1 <= cached <= previous[0]
        previous = (tokens, cached)


def test_hits_end_at_the_first_difference_and_at_block_borders():
    simulated = cache(block_tokens=64)
    simulated.take(request(A, B))
    tokens, cached = simulated.take(request(A, C))
    assert cached % 64 == 0
    assert 800 // 4 - 64 < cached < tokens
    assert simulated.take(request(A, B, system="other"))[1] == 0


def test_M34_C10_units_are_whole_requests_until_two_have_parted():
    simulated = cache(units="requests")
    assert simulated.take(request(A, B))[1] == 0
    assert simulated.take(request(A, C))[1] == 0
    assert simulated.take(request(A, D))[1] >= 200
    assert simulated.take(request(A, B, "x"))[1] >= 400


def test_a_write_is_visible_after_a_while():
    clock = Seconds()
    simulated = cache(clock, visible_after_seconds=5)
    simulated.take(request(A))
    assert simulated.take(request(A))[1] == 0
    clock.now = 6
    assert simulated.take(request(A))[1] > 0


def test_short_hits_count_as_none():
    simulated = cache(minimum_tokens=1024)
    simulated.take(request(A))
    assert simulated.take(request(A, B))[1] == 0
    simulated.take(request(*[A] * 9))
    assert simulated.take(request(*[A] * 9, B))[1] >= 1024


@pytest.mark.parametrize(("order", "is_first"), [("tools-system-messages", True), ("system-tools-messages", False)])
def test_the_order_of_the_prompt(order: str, is_first: bool):
    prompt = prompt_bytes(request(A, system="SYSTEM", tools=("bash",)), order)
    assert (prompt.index(b"bash") < prompt.index(b"SYSTEM")) == is_first
    assert prompt.index(b"SYSTEM") < prompt.index(b"aaa")
    assert prompt.index(b"bash") < prompt.index(b"aaa")
