"""What a provider's headers say about its limits, and how long to wait before it would refuse."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.models.quota import (
    LONGEST_WAIT_SECONDS,
    Allowance,
    Quota,
    Reading,
    learned,
    refilled,
    taken,
    wait_seconds,
)
from xnagent.models.quota_headers import read_quota

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
ONE = {"requests": 1.0, "tokens": 100.0}


def read(status: int = 200, **headers: str) -> Reading:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_quota(named, status=status, now=NOW, monotonic=1000.0)


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("6m0s", 360),
        ("59.7s", 59.7),
        ("12ms", 0.012),
        ("1h2m3s", 3723),
        ("1d", 86400),
        ("7", 7),
        *((odd, None) for odd in ("0", "-1", "", "soon", "m", "..s", "1e99")),
    ],
)
def test_openai_resets_are_durations(reset: str, seconds: float | None):
    found = read(
        X_RateLimit_Remaining_Requests="3", x_ratelimit_limit_requests="500", x_ratelimit_reset_requests=reset
    ).allowances["requests"]
    assert (found.remaining, found.limit) == (3, 500)
    assert found.reset_at == (None if seconds is None else pytest.approx(1000 + seconds))


def test_anthropic_resets_are_times_and_every_bucket_is_read():
    reading = read(
        anthropic_ratelimit_input_tokens_remaining="100",
        anthropic_ratelimit_input_tokens_limit="80000",
        anthropic_ratelimit_input_tokens_reset="2026-11-30T12:00:30Z",
        anthropic_ratelimit_requests_remaining="9",
        anthropic_ratelimit_requests_reset="2026-11-30T11:59:00Z",
    )
    assert reading.allowances["input_tokens"] == Allowance(remaining=100, limit=80000, reset_at=1030.0)
    assert reading.allowances["requests"] == Allowance(remaining=9)


def test_what_means_nothing_is_not_read():
    assert read(x_ratelimit_remaining_tokens="-1", x_ratelimit_limit_tokens="-1") == Reading()
    assert read(x_ratelimit_remaining_tokens="many", retry_after="5") == Reading()


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_refusal_with_retry_after_pauses_all(status: int):
    quota = learned(Quota(), read(status, retry_after="5"), now=1000.0)
    assert wait_seconds(quota, ONE, now=1000.0) == 5
    assert wait_seconds(quota, ONE, now=1005.0) == 0
    assert learned(quota, read(200), now=1001.0).not_before == 1005


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=12), max_size=6), st.integers(200, 599))
def test_no_header_can_break_anything(headers: dict[str, str], status: int):
    quota = learned(Quota(), read_quota(headers, status=status, now=NOW, monotonic=0.0), now=0.0)
    assert 0 <= wait_seconds(quota, ONE, now=0.0) <= LONGEST_WAIT_SECONDS


def test_nearly_nothing_left_waits_for_the_reset_and_then_counts_the_whole():
    quota = Quota(allowances={"requests": Allowance(remaining=2, limit=3, reset_at=10.0)})
    for _ in range(2):
        assert wait_seconds(quota, ONE, now=0.0) == 0
        quota = taken(quota, ONE)
    assert wait_seconds(quota, ONE, now=4.0) == 6
    quota = refilled(quota, now=10.0)
    assert quota.allowances["requests"] == Allowance(remaining=3, limit=3)
    assert refilled(Quota(allowances={"tokens": Allowance(remaining=0, reset_at=1.0)}), now=2.0) == Quota()


def test_processes_that_share_an_allowance_leave_each_other_room():
    quota = Quota(allowances={"tokens": Allowance(remaining=150, limit=1000, reset_at=10.0)})
    assert wait_seconds(quota, ONE, now=0.0) == 0
    assert wait_seconds(quota, ONE, now=0.0, sharers=2) == 10


def test_a_call_larger_than_the_whole_allowance_goes_when_that_is_whole():
    quota = Quota(allowances={"tokens": Allowance(remaining=50, limit=50, reset_at=10.0)})
    assert wait_seconds(quota, ONE, now=0.0, sharers=4) == 0
    assert wait_seconds(taken(quota, {"tokens": 1.0}), ONE, now=0.0) == 10


def test_a_reset_far_away_is_a_bucket_that_refills_all_the_time():
    quota = Quota(allowances={"requests": Allowance(remaining=0, limit=10_000, reset_at=86_400.0)})
    assert wait_seconds(quota, ONE, now=0.0) == pytest.approx(8.64)
    unknown = Quota(allowances={"requests": Allowance(remaining=0, reset_at=86_400.0)})
    assert wait_seconds(unknown, ONE, now=0.0) == LONGEST_WAIT_SECONDS


@given(
    st.integers(1, 20),
    st.floats(1, 50),
    st.lists(st.floats(0, 20), min_size=1, max_size=60),
    st.integers(1, 3),
)
def test_a_window_never_sees_more_calls_than_it_allows(limit: int, window: float, pauses: list[float], seed: int):
    """A provider with fixed windows, and calls that come at any time: none of them is refused."""
    now, begins, left, quota = 0.0, 0.0, limit, Quota()
    for pause in pauses:
        now += pause
        quota = refilled(quota, now=now)
        while (wait := wait_seconds(quota, {"requests": 1.0}, now=now)) > 0:
            now += wait
            quota = refilled(quota, now=now)
        quota = taken(quota, {"requests": 1.0})
        if now >= begins + window:
            begins, left = now, limit
        assert left > 0
        left -= 1
        told = Allowance(remaining=left, limit=limit, reset_at=begins + window)
        quota = learned(quota, Reading(allowances={"requests": told}), now=now)
