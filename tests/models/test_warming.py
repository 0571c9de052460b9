"""When the others follow the call that goes first for a cold head."""

from collections.abc import Iterator

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.models.warming import MOST_LAG_SECONDS, Head, Heads, Served, Warmth, pause_seconds
from xnagent.testing.doubles import FakeClock

CONTENT = b"x" * 8_000


def heads(clock: FakeClock, **fields: float) -> Heads:
    return Heads(Warmth(**fields), seconds=clock.monotonic, sleep=clock.sleep)


def followed(lag: float) -> Iterator[float]:
    """When, after the first token, each of 16 followers leaves that has seen no other served."""
    head, now = Head(size_bytes=9), 0.0
    for _ in range(16):
        while pause := pause_seconds(head, now, lag_seconds=lag):
            now += pause
        head.followers += 1
        yield now


def test_without_a_known_lag_all_leave_at_the_first_token():
    assert set(followed(0.0)) == {0.0}


def test_with_one_they_leave_in_waves_that_double():
    assert list(followed(1.0)) == [1.0] * 2 + [2.0] * 4 + [3.0] * 8 + [4.0] * 2


@given(st.floats(min_value=0, max_value=100))
def test_nobody_waits_longer_than_the_bound(lag: float):
    assert max(followed(lag)) <= MOST_LAG_SECONDS + 0.01


async def warm(known: Heads) -> Head:
    head = await known.led(CONTENT)
    assert head is not None
    known.begun(head)
    return head


def told(clock: FakeClock, cached: int | None, written: int | None = None) -> Served:
    return Served(sent_at=clock.monotonic(), cached_tokens=cached, written_tokens=written)


async def test_a_follower_that_was_not_served_tells_that_visibility_takes_longer():
    clock = FakeClock()
    known = heads(clock)
    head = await warm(known)
    known.answered(head, told(clock, 0))
    assert known.lag_seconds == 0.25
    clock.advance(1)
    known.answered(head, told(clock, 10))
    assert known.lag_seconds == 2.0
    clock.advance(0.5)
    known.answered(head, told(clock, 1_900))
    assert (known.lag_seconds, head.seen.is_set()) == (1.5, True)


async def test_one_that_was_served_lets_all_others_go():
    known = Heads(Warmth(lag_seconds=6.0), seconds=anyio.current_time, sleep=anyio.sleep)
    head = await warm(known)
    left: list[int] = []

    async def follow(number: int) -> None:
        await known.led(CONTENT)
        left.append(number)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(follow, number)
        await anyio.wait_all_tasks_blocked()
        assert left == []
        served = Served(sent_at=anyio.current_time(), cached_tokens=2_000, written_tokens=None)
        known.answered(head, served)
    assert sorted(left) == list(range(8))


@pytest.mark.parametrize(
    ("cached", "written", "lag"),
    [
        (None, None, 0.0),
        (0, 0, 0.0),
        (2_000, 0, 0.0),
        (0, 2_000, 0.25),
    ],
    ids=["nothing reported", "nothing written: too short", "served", "written again"],
)
async def test_what_usage_says_of_the_lag(cached: int | None, written: int | None, lag: float):
    clock = FakeClock()
    known = heads(clock)
    head = await warm(known)
    known.answered(head, told(clock, cached, written))
    assert known.lag_seconds == lag


async def test_where_nobody_is_ever_served_nobody_waits_any_more():
    clock = FakeClock()
    known = heads(clock)
    head = await warm(known)
    for _ in range(4):
        clock.advance(MOST_LAG_SECONDS)
        known.answered(head, told(clock, 0))
    assert await known.led(CONTENT) is None


async def test_a_later_call_of_a_history_waits_for_nobody():
    clock = FakeClock()
    known = heads(clock)
    assert await known.led(CONTENT) is not None
    with anyio.fail_after(5):
        assert await known.led(CONTENT, is_first=False) is not None
