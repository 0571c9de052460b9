"""How long to wait, and when not to wait at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.retry import RetryPolicy, Tried, next_wait_seconds
from xnagent.errors import FAULT_KINDS, RETRYABLE, ModelError


def limited(seconds: float | None) -> ModelError:
    return ModelError("429", fault="rate_limited", retry_after_seconds=seconds, status=429)


def tried(attempts: int = 1, waited: float = 0.0, key: str = "s-1/1") -> Tried:
    return Tried(attempts=attempts, waited_seconds=waited, key=key)


def test_B025_a_the_provider_gets_the_wait_it_asked_for():
    wait = next_wait_seconds(RetryPolicy(max_total_seconds=600), limited(171), tried=tried())
    assert 171 <= wait <= 171 * 1.1


def test_B025_b_a_wait_that_does_not_fit_is_not_begun():
    assert next_wait_seconds(RetryPolicy(max_total_seconds=60), limited(171), tried=tried()) is None
    assert next_wait_seconds(RetryPolicy(max_total_seconds=600), limited(171), tried=tried(waited=430)) is None


@pytest.mark.parametrize("asked", [None, 0, -1, float("nan")])
def test_B022_a_useless_wish_means_our_own_backoff(asked):
    assert next_wait_seconds(RetryPolicy(), limited(asked), tried=tried()) == next_wait_seconds(
        RetryPolicy(), limited(None), tried=tried()
    )


@pytest.mark.parametrize("asked", [float("inf"), 1e12])
def test_B022_no_sleep_without_bound(asked):
    assert next_wait_seconds(RetryPolicy(), limited(asked), tried=tried()) is None


@given(st.integers(1, 40), st.text(max_size=5), st.sampled_from([None, 0.5, 7.0, 30.0, 90.0]))
def test_B025_jitter_and_caps_hold(attempts: int, key: str, asked):
    policy = RetryPolicy(max_attempts=50, max_total_seconds=1e9)
    wait = next_wait_seconds(policy, limited(asked), tried=tried(attempts, key=key))
    backoff = min(2 ** (attempts - 1), 60)
    if asked is None:
        assert backoff * 0.5 <= wait < backoff
    else:
        assert asked <= wait <= max(asked * 1.1, asked)
    assert wait == next_wait_seconds(policy, limited(asked), tried=tried(attempts, key=key))


def test_B025_requests_that_failed_together_do_not_come_back_together():
    waits = {next_wait_seconds(RetryPolicy(), limited(None), tried=tried(key=f"s/{n}")) for n in range(50)}
    assert len(waits) == 50


@pytest.mark.parametrize("limit", [1, 2, 6])
def test_B025_the_server_sees_as_many_requests_as_attempts_are_allowed(limit: int):
    policy = RetryPolicy(max_attempts=limit)
    requests = 1
    while next_wait_seconds(policy, limited(None), tried=tried(requests)) is not None:
        requests += 1
    assert requests == limit


@pytest.mark.parametrize("fault", FAULT_KINDS)
def test_B023_B024_only_what_may_pass_is_tried_again(fault):
    error = ModelError("x", fault=fault, status=500)
    wait = next_wait_seconds(RetryPolicy(), error, tried=tried())
    assert (wait is not None) is (fault in RETRYABLE) is error.is_retryable
    assert error.exit_code == (8 if fault in RETRYABLE else 9)


def test_B025_many_attempts_do_not_overflow():
    policy = RetryPolicy(max_attempts=5_000, max_total_seconds=1e9)
    assert 30 <= next_wait_seconds(policy, limited(None), tried=tried(2_000)) < 60
