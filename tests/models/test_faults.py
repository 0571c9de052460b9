"""What refusals mean, how long to wait, and that no secret comes out."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.errors import FAULT_KINDS, RETRYABLE
from xnagent.models.faults import classify, classify_event, redact
from xnagent.models.waits import parse_retry_after

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def fault_of(status: int | None, body: object, headers: dict[str, str] | None = None) -> str:
    text = body if isinstance(body, str) else json.dumps(body)
    return classify(status, headers or {}, body=text, now=NOW).fault


NO_QUOTA = "You exceeded your current quota, please check your plan and billing details."
NO_MONTH = (
    "You've reached your monthly usage limit for this billing cycle. Your quota will be refreshed in the next cycle."
)


def error(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("1.5", 1.5),
        ("0", None),
        ("-1", None),
        ("Tue, 01 Jan 2030 00:00:30 GMT", 30),
        ("Tuesday, 01-Jan-30 00:00:30 GMT", 30),
        ("Tue, 01 Jan 2030 00:00:30 -0000", 30),
        ("Tue Jan  1 00:00:30 2030", 30),
        ("Tue, 01 Jan 2019 00:00:00 GMT", None),
        ("Tue, 99 Foo 2030 00:00:00 GMT", None),
        ("Tue, 01 Jan 2030 00:00:30 +9999", None),
        ("", None),
        ("abc", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("9" * 400, None),
        ("1_0", None),
        ("\u0661", None),
        ("120, 60", None),
    ],
)
def test_B022_retry_after(value: str, seconds: float | None):
    assert parse_retry_after({"Retry-After": value}, NOW) == seconds
    assert classify(429, {"retry-after": value}, body="", now=NOW).retry_after_seconds == seconds


def test_B022_absent_and_milliseconds():
    assert parse_retry_after({}, NOW) is None
    assert parse_retry_after({"retry-after-ms": "1500"}, NOW) == 1.5
    assert parse_retry_after({"Retry-After-Ms": "x", "Retry-After": "3"}, NOW) == 3


@given(st.text(max_size=40))
def test_B022_no_value_raises_or_gives_a_wait_that_is_not_positive(value: str):
    seconds = parse_retry_after({"Retry-After": value, "Retry-After-Ms": value}, NOW)
    assert seconds is None or 0 < seconds < float("inf")


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (
            429,
            error(
                "You exceeded your current quota, please check your plan and billing details.",
                type="insufficient_quota",
                code="insufficient_quota",
            ),
            "quota",
        ),
        (429, error(NO_MONTH), "quota"),
        (429, error(NO_QUOTA), "quota"),
        (402, "anything", "quota"),
        (402, "", "quota"),
        (
            400,
            {
                "type": "error",
                **error("Your credit balance is too low to access the API.", type="invalid_request_error"),
            },
            "quota",
        ),
        (403, error("Insufficient balance"), "quota"),
        (429, error("Rate limit reached for requests", type="requests", code="rate_limit_exceeded"), "rate_limited"),
        (429, error("Quota exceeded for requests per minute", status="RESOURCE_EXHAUSTED"), "rate_limited"),
        (429, "", "rate_limited"),
    ],
)
def test_B023_quota_is_not_rate(status: int, body: object, fault: str):
    assert fault_of(status, body) == fault


@pytest.mark.parametrize("status", [413, 429])
def test_a_request_larger_than_a_minutes_allowance_is_refused_for_good_with_the_remedy(status: int):
    told = (
        "Request too large for gpt-5 in organization org-1 on tokens per min (TPM): Limit 30000, Requested 48211. The "
        "input or output tokens must be reduced in order to run successfully."
    )
    body = json.dumps(error(told, type="tokens", code="rate_limit_exceeded"))
    refused = classify(status, {"retry-after": "5"}, body=body, now=NOW)
    assert refused.fault == "quota"
    assert refused.fault not in RETRYABLE
    assert "planner.model.window" in str(refused)
    usual = told.replace("Request too large", "Rate limit reached")
    usual_body = json.dumps(error(usual, type="tokens", code="rate_limit_exceeded"))
    assert classify(429, {}, body=usual_body, now=NOW).fault == "rate_limited"


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
def test_B024_worth_a_retry(status: int):
    body = json.dumps(
        {"type": "error", "error": {"type": "overloaded_error" if status == 529 else "x", "message": "Overloaded"}}
    )
    assert classify(status, {}, body=body, now=NOW).is_retryable
    assert classify(status, {}, body="<html>502</html>", now=NOW).is_retryable


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (400, "bad_request"),
        (401, "authentication"),
        (403, "authentication"),
        (404, "not_found"),
        (422, "bad_request"),
        (301, "not_found"),
    ],
)
def test_B024_not_worth_a_retry(status: int, fault: str):
    made = classify(status, {}, body="{}", now=NOW)
    assert (made.fault, made.is_retryable, made.status) == (fault, False, status)


ONE = (
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130532 tokens. "
    "Please reduce the length of the messages."
)
TWO = (
    "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context length is only "
    "131072 tokens, resulting in a maximum input length of 99072 tokens."
)
FOUR = "prompt is too long: 210001 tokens > 200000 maximum"
FIVE = (
    "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your prompt "
    "contains at least 262145 input tokens, for a total of at least 262145 tokens."
)
SIX = "The prompt is too long: 267657, model maximum context length: 262143"
SEVEN = "request (186072 tokens) exceeds the available context size (131072 tokens), try increasing it"
NINE = (
    "This endpoint's maximum context length is 262144 tokens. However, you requested about 284283 tokens "
    "(8963 of text input, 13176 of tool input, 262144 in the output)."
)
TEN = "max_tokens is too large: 200000. This model supports at most 16384 completion tokens"
ELEVEN = "This request would exceed your organization's rate limit of 40,000 input tokens per minute"
TWELVE = "messages.3.content.0.text: field required"
GEMINI = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
SUM = "input length and `max_tokens` exceed context limit: {} + 32000 > 200000, decrease input length"
OTHER_NAME = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (400, error(ONE, type="invalid_request_error", code="context_length_exceeded"), "context_overflow"),
        (400, error(ONE), "context_overflow"),
        (400, error(TWO, code="context_length_exceeded"), "context_overflow"),
        (400, error(TWO), "context_overflow"),
        (400, {"type": "error", **error(FOUR, type="invalid_request_error")}, "context_overflow"),
        (400, FIVE, "context_overflow"),
        (400, error(SIX, type="invalid_request_error"), "context_overflow"),
        (400, error(SEVEN, code=400, type="exceed_context_size_error"), "context_overflow"),
        (413, "<html>Request Entity Too Large</html>", "context_overflow"),
        (500, error("Context size has been exceeded.", code=500, type="server_error"), "context_overflow"),
        (400, error(GEMINI, status="INVALID_ARGUMENT"), "context_overflow"),
        (400, error("Your input exceeds the context window of this model."), "context_overflow"),
        (400, error(SUM.format(205000)), "context_overflow"),
        (400, NINE, "output_budget"),
        (400, TEN, "output_budget"),
        (400, error(SUM.format(175000)), "output_budget"),
        (
            400,
            error("max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens"),
            "output_budget",
        ),
        (400, error("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"), "output_budget"),
        (400, error("'max_tokens' must be less than or equal to 8192"), "output_budget"),
        (429, ELEVEN, "rate_limited"),
        (429, error("prompt is too long for the rate limit"), "rate_limited"),
        (400, TWELVE, "bad_request"),
        (400, error(OTHER_NAME), "bad_request"),
        (400, error("max_tokens must be an integer"), "bad_request"),
        (400, error("An assistant message with tool_calls must be followed by tool messages"), "bad_request"),
    ],
)
def test_B028_B031_T11_overflow_by_code_then_by_text(status: int, body: object, fault: str):
    assert fault_of(status, body) == fault


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (400, error("Content Exists Risk"), "content_refused"),
        (400, error("x", code="content_policy_violation"), "content_refused"),
        (400, error("API key not valid. Please pass a valid API key."), "authentication"),
        (401, error("Incorrect API key provided"), "authentication"),
        (400, error("The model `x` does not exist", code="model_not_found"), "not_found"),
        (500, error("x", type="overloaded_error"), "overloaded"),
        (400, [error("x", code=429, status="RESOURCE_EXHAUSTED")], "rate_limited"),
        (400, {"detail": [{"msg": "field required", "type": "missing"}]}, "bad_request"),
        (400, '{"error":', "bad_request"),
        (400, "[" * 100_000, "bad_request"),
        (400, "null", "bad_request"),
    ],
)
def test_other_refusals(status: int, body: object, fault: str):
    assert fault_of(status, body) == fault


def test_messages_are_one_short_clean_line_with_a_next_step():
    made = str(classify(401, {}, body=json.dumps(error("\x1b[31mbad\x00 key\n" + "x" * 9000)), now=NOW))
    assert (
        made == "authentication: the model's endpoint answered 401: [31mbad  key; check the API key and what it may use"
    )
    assert len(str(classify(400, {}, body="y" * 9000, now=NOW))) < 600
    assert "HTML, not JSON; check --base-url" in str(classify(404, {}, body="<!DOCTYPE html><p>x", now=NOW))
    assert "--base-url" in str(classify(404, {}, body="", now=NOW))


def test_B075_a_repeated_key_is_masked():
    body = json.dumps(error("Incorrect API key provided: sk-test-1, gw pw abc, Authorization: Bearer zzzz"))
    made = str(classify(401, {}, body=body, now=NOW, secrets=["sk-test-1", "abc", ""]))
    assert "sk-test-1" not in made
    assert "abc" not in made
    assert "zzzz" not in made
    assert redact("nothing here", [""]) == "nothing here"
    assert "sk-proj-abcdef" not in redact("key sk-proj-abcdef123", [])


KEYS = st.sampled_from(["error", "code", "message", "type", "status", "detail"])
BODIES = st.recursive(
    st.none() | st.text(max_size=9) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(body=BODIES, status=st.integers(300, 599))
def test_every_body_has_a_class(body: object, status: int):
    assert classify(status, {}, body=json.dumps(body), now=NOW).fault in FAULT_KINDS
    assert classify_event(body).fault in FAULT_KINDS
