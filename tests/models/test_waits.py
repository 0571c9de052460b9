"""B022: how long a provider asks to wait, in every form that is sent."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.retry import RetryPolicy, Tried, next_wait_seconds
from xnagent.models.faults import classify, classify_event
from xnagent.models.waits import parse_retry_after, wished_seconds

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


def wished(headers: dict[str, str], body: object = "", status: int | None = 429) -> float | None:
    text = body if isinstance(body, str) else json.dumps(body)
    return wished_seconds(headers, status=status, body=text, now=NOW)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30s", 30),
        ("1m30s", 90),
        ("250ms", 0.25),
        ("2 minutes", 120),
        ("+7", 7),
        ("-0.5", None),
        ("2030-01-01T00:00:30Z", 30),
        ("2030-01-01T01:00:30+01:00", 30),
        ("2029-12-31T23:59:59Z", None),
        (str(EPOCH + 30), 30),
        (str((EPOCH + 30) * 1000), 30),
        (str(EPOCH - 30), None),
        ("0s", None),
        ("7 apples", None),
        ("s", None),
        ("1e3", None),
        ("0x10", None),
        ("7;8", None),
        ("Infinity", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - NOW).total_seconds()),
    ],
)
def test_B022_more_forms_of_retry_after(value: str, seconds: float | None):
    assert parse_retry_after({"Retry-After": value}, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, 0.02),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        (
            {
                "x-ratelimit-remaining-requests": "12",
                "x-ratelimit-reset-requests": "1h0m0s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "1.5s",
            },
            1.5,
        ),
        ({"x-ratelimit-remaining-requests": "12", "x-ratelimit-reset-requests": "1h0m0s"}, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "40",
                "anthropic-ratelimit-requests-reset": "2030-01-01T01:00:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2030-01-01T00:00:17Z",
            },
            17,
        ),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str((EPOCH + 60) * 1000)}, 60),
        ({"RateLimit-Reset": "5"}, 5),
        ({"x-ratelimit-reset": "soon"}, None),
        ({"Retry-After": "3", "x-ratelimit-reset": "50"}, 3),
        ({"Retry-After": "abc", "x-ratelimit-reset": "50"}, 50),
        ({"retry-after-ms": "20", "Retry-After": "3", "x-ratelimit-reset": "50"}, 0.02),
        ({"x-reset": "50", "ratelimit": "x", "x-ratelimit-limit": "50"}, None),
    ],
)
def test_B022_the_moment_at_which_a_used_up_limit_is_full_again(headers: dict[str, str], seconds: float | None):
    assert wished(headers) == pytest.approx(seconds)
    only_told = parse_retry_after(headers, NOW)
    assert wished(headers, status=503) == only_told


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ([{"error": {"code": 429, "details": [{"@type": "x/RetryInfo", "retryDelay": "34s"}]}}], 34),
        ({"error": {"message": "Quota exceeded. Please retry in 34.074824224s."}}, 34.074824224),
        ({"error": {"message": "Limit 3, Used 3. Please try again in 20s. Visit"}}, 20),
        ({"error": {"message": "Please try again in 6m0s."}}, 360),
        ({"error": {"message": "Please try again in 898ms."}}, 0.898),
        ({"error": {"message": "Too busy, retry after 2 minutes"}}, 120),
        ({"error": {"message": "Please try again in 1 month"}}, None),
        ({"error": {"message": "retry after 5 attempts"}}, None),
        ({"error": {"message": "Please try again later"}}, None),
        ({"error": {"details": [{"retryDelay": "...s"}]}}, None),
        ({"error": {"details": [{"retryDelay": "-3s"}]}}, None),
    ],
)
def test_B022_what_the_body_says(body: object, seconds: float | None):
    assert wished({}, body) == wished({}, body, None) == pytest.approx(seconds)
    assert wished({"Retry-After": "7"}, body) == 7
    assert classify_event(body).retry_after_seconds == pytest.approx(seconds)


def test_B025_the_message_says_how_long():
    made = classify(429, {"Retry-After": "171"}, body='{"error":{"message":"slow down"}}', now=NOW)
    assert str(made) == "rate_limited: the model's endpoint answered 429: slow down; it asks to wait 171 s"


NAMES = st.sampled_from(
    [
        "Retry-After",
        "retry-after-ms",
        "x-ratelimit-reset",
        "x-ratelimit-reset-requests",
        "anthropic-ratelimit-tokens-reset",
        "x-ratelimit-remaining",
    ]
)
VALUES = st.one_of(
    st.text(max_size=20),
    st.integers(-(10**30), 10**30).map(str),
    st.floats().map(str),
    st.timedeltas(timedelta(-9999), timedelta(9999)).map(lambda wait: format_datetime(NOW + wait, usegmt=True)),
    st.datetimes().map(str),
    st.lists(st.sampled_from(["1", "2.5", "ms", "s", "m", "h", " ", "0"]), max_size=9).map("".join),
)


@given(headers=st.dictionaries(NAMES, VALUES), body=VALUES, status=st.sampled_from([None, 429, 503]))
def test_B022_no_form_raises_gives_no_wait_or_one_without_bound(headers: dict[str, str], body: str, status: int | None):
    told = wished(headers, {"error": {"message": f"try again in {body}", "retryDelay": body}}, status)
    assert told is None or 0 < told < float("inf")
    error = classify(status, headers, body="{}", now=NOW)
    policy = RetryPolicy()
    wait = next_wait_seconds(policy, error, tried=Tried(attempts=1, waited_seconds=0.0, key="k"))
    assert wait is None or 0 < wait <= policy.max_total_seconds
