"""What a provider's refusal means: status, headers and body to one of the fault kinds. Pure.

Codes and types are looked at before texts; texts only where they are precise, so that a parameter's name in a message
(`max_tokens`) decides nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final

from xnagent.core.text import clean, first_line
from xnagent.core.values import dataclass
from xnagent.errors import FaultKind, ModelError
from xnagent.models.waits import wished_seconds

CLIP_CHARACTERS: Final = 500
SHORTEST_SECRET: Final = 3

_PER_DAY: Final = "quota_per_day"
"""Stands for a quota of Gemini that is full again tomorrow."""
_SPECIFIC_CODES: Final[Mapping[FaultKind, frozenset[str]]] = {
    "context_overflow": frozenset(
        {
            "context_length_exceeded",
            "exceed_context_size_error",
            "context_window_exceeded",
            "model_context_window_exceeded",
            "contextwindowexceedederror",
            "prompt_too_long",
            "input_too_long",
            "request_too_large",
            "1261",
        }
    ),
    "quota": frozenset(
        {
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
            "insufficient_balance",
            "insufficient_credits",
            "credits_exhausted",
            "exceeded_current_quota_error",
            "usage_limit_reached",
            "payment_required",
            "arrearage",
            "allocationquota.freetieronly",
            _PER_DAY,
            "1113",
            "1304",
            "1308",
            "1309",
            "1310",
        }
    ),
    "rate_limited": frozenset(
        {
            "rate_limit_exceeded",
            "rate_limit_error",
            "rate_limit_reached_error",
            "rate_limited",
            "too_many_requests",
            "resource_exhausted",
            "1302",
            "1303",
        }
    ),
    "overloaded": frozenset(
        {
            "overloaded_error",
            "overloaded",
            "server_overloaded",
            "engine_overloaded_error",
            "engine_overloaded",
            "model_overloaded",
            "insufficient_system_resource",
            "unavailable",
            "service_unavailable",
            "slow_down",
            "1305",
            "1312",
        }
    ),
    "authentication": frozenset(
        {
            "authentication_error",
            "invalid_api_key",
            "invalid_authentication_error",
            "permission_error",
            "permission_denied",
            "unauthorized",
            "unauthenticated",
            "forbidden",
        }
    ),
    "not_found": frozenset({"model_not_found", "not_found_error", "not_found", "deployment_not_found", "1211"}),
    "content_refused": frozenset(
        {
            "content_policy_violation",
            "content_filter",
            "responsibleaipolicyviolation",
            "data_inspection_failed",
            "datainspectionfailed",
            "1301",
            "bio_policy",
            "misalignment_policy_violation",
        }
    ),
}
"""Codes and types, in small letters; the numbers are Z.AI's."""
_INVALID_CODES: Final = frozenset(
    {"invalid_request_error", "bad_request", "bad_request_error", "invalid_argument", "invalid_prompt"}
)

_OUTPUT_BUDGET: Final = re.compile(
    r"max_(?:completion_|output_|new_)?tokens\W.{0,60}?(?:too (?:large|high|big)|\d[\d,]* > \d|must be (?:less|at most)"
    r"|valid range|exceeds? the maximum|cannot (?:be greater|exceed))"
    r"|supports at most [\d,]+ (?:completion|output) tokens|range of max_tokens should be",
    re.IGNORECASE | re.DOTALL,
)
_WITH_OUTPUT_SHARE: Final = re.compile(
    r"maximum context length is ([\d,]+).*?requested (?:about )?([\d,]+) tokens"
    r".*?([\d,]+) in the (?:output|completion)",
    re.IGNORECASE | re.DOTALL,
)
_SUM: Final = re.compile(r"context (?:limit|window|length)\D{0,20}([\d,]+) \+ ([\d,]+) > ([\d,]+)", re.IGNORECASE)
_OVERFLOW: Final = re.compile(
    r"maximum context length|context[ _](?:length|window|size|limit)[^.]{0,60}(?:exceed|only|too|small|overflow)"
    r"|(?:exceed|larger|longer|greater|more)\w*[^.]{0,60}context[ _](?:length|window|size|limit)"
    r"|(?:prompt|input|request|conversation) (?:is )?too (?:long|large)\b|maximum prompt length"
    r"|input token count[^.]{0,40}exceeds|reduce the length of the (?:messages|prompt|input)"
    r"|input length[^.]{0,40}exceeds|exceed(?:s|ed)? (?:the )?(?:model|max(?:imum)?) (?:token limit|length)"
    r"|maximum model length|range of input length should be|too many tokens|max_tokens must be at least 1, got -"
    r"|context_length_exceeded|contextwindowexceeded",
    re.IGNORECASE,
)
_QUOTA: Final = re.compile(
    r"credit balance|insufficient[ _](?:balance|credits?|quota|funds)|exceeded your current quota"
    r"|(?:weekly|monthly) (?:\w+ )?(?:limit|quota)|billing (?:cycle|details|period|hard limit)|out of credits"
    r"|(?:spend|spending) limit|payment required|usage limit|free tier[^.]{0,40}exhausted|good standing"
    r"|requires more credits|余额不足",
    re.IGNORECASE,
)
_ABOVE_TIER: Final = re.compile(r"request too large\b[^.]{0,200}(?:tokens per min|\bTPM\b)", re.IGNORECASE)
"""One request is more than a whole minute's allowance: no pause makes it smaller, whatever its code says."""
_RATE: Final = re.compile(r"rate[ _-]?limit|throttl|too many requests|concurrency limit", re.IGNORECASE)
_OVERLOAD: Final = re.compile(r"overloaded|at capacity|server is busy|system resource", re.IGNORECASE)
_KEY: Final = re.compile(
    r"(?:invalid|incorrect|expired|missing) api[ _-]?key|api[ _-]?key (?:is )?(?:not valid|invalid|expired)",
    re.IGNORECASE,
)
_CONTENT: Final = re.compile(
    r"content (?:management )?policy|content filter|content exists risk|inappropriate content|flagged|high risk"
    r"|usage policy|safety reasons",
    re.IGNORECASE,
)
_HTML: Final = re.compile(r"\s*(?:<!doctype html|<html|<head|<body|<\?xml)", re.IGNORECASE)
_TOKEN: Final = re.compile(r"(?i)(\bbearer\s+)[^\s\"',]+|\bsk-[A-Za-z0-9_*-]{6,}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_HINTS: Final[Mapping[FaultKind, str]] = {
    "authentication": "check the API key and what it may use",
    "quota": "waiting does not help: add credit or choose another model",
    "not_found": "check the model's name and --base-url (it usually ends with /v1)",
    "output_budget": "lower max_output_tokens of the model",
    "content_refused": "the provider refused the content",
}
_TIER_HINT: Final = (
    "one request is more than this account may send in a minute, so waiting does not help: set a smaller window "
    "(planner.model.window, worker.model.window), raise the account's limit, or choose another model"
)
_TEXTS: Final[tuple[tuple[FaultKind, re.Pattern[str], frozenset[int | None]], ...]] = (
    ("quota", _QUOTA, frozenset({None, 400, 402, 403, 422, 429})),
    ("rate_limited", _RATE, frozenset({None})),
    ("overloaded", _OVERLOAD, frozenset({None})),
    ("authentication", _KEY, frozenset({None, 400})),
    ("content_refused", _CONTENT, frozenset({None, 400, 403, 422})),
)
"""Texts that decide, and with which statuses; None is an error inside a stream."""
_NEVER_A_SIZE: Final[frozenset[int | None]] = frozenset({401, 403, 404, 429})
_HTTP_BAD_REQUEST: Final = 400
_HTTP_SERVER_ERROR: Final = 500
_HTTP_LAST: Final = 599
_DEEPEST_ERROR: Final = 8
_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)
_BY_STATUS: Final[Mapping[int, FaultKind]] = {
    401: "authentication",
    402: "quota",
    403: "authentication",
    404: "not_found",
    405: "not_found",
    408: "timeout",
    409: "server",
    413: "context_overflow",
    425: "server",
    429: "rate_limited",
    501: "bad_request",
    503: "overloaded",
    529: "overloaded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Complaint:
    """What an error object says."""

    message: str
    codes: frozenset[str] = field(default_factory=frozenset)
    status: int | None = None


def classify(
    status: int | None, headers: Mapping[str, str], *, body: str, now: datetime, secrets: Iterable[str] = ()
) -> ModelError:
    """The error that a refused request means; `status` is None for one that came inside a stream.

    `now` (with a time zone) is what dates in the headers are measured against.
    """
    complaint = _read(body)
    fault = _fault(status, complaint)
    wait = wished_seconds(headers, status=status, body=body, now=now)
    text = _describe(status, complaint, fault=fault) + ("" if wait is None else f"; it asks to wait {wait:.10g} s")
    return ModelError(redact(text, secrets), fault=fault, retry_after_seconds=wait, status=status)


def classify_event(event: object, *, secrets: Iterable[str] = ()) -> ModelError:
    """The error that an error object inside a 200 answer means."""
    return classify(None, {}, body=json.dumps(event), now=_ANY_TIME, secrets=secrets)


def _fault(status: int | None, complaint: _Complaint) -> FaultKind:
    if _ABOVE_TIER.search(complaint.message):
        return "quota"
    for kind, codes in _SPECIFIC_CODES.items():
        if codes & complaint.codes:
            return kind
    effective = complaint.status if status is None else status
    return _fault_of_text(effective, complaint.message) or _fault_of_status(effective, complaint.codes)


def _fault_of_text(status: int | None, text: str) -> FaultKind | None:
    for kind, pattern, statuses in _TEXTS:
        if status in statuses and pattern.search(text):
            return kind
    return None if status in _NEVER_A_SIZE else _size_fault(text)


def _size_fault(text: str) -> FaultKind | None:
    if found := _WITH_OUTPUT_SHARE.search(text):
        limit, total, output = (int(number.replace(",", "")) for number in found.groups())
        return "output_budget" if total - output <= limit else "context_overflow"
    if found := _SUM.search(text):
        prompt, _, limit = (int(number.replace(",", "")) for number in found.groups())
        return "output_budget" if prompt <= limit else "context_overflow"
    if _OUTPUT_BUDGET.search(text):
        return "output_budget"
    return "context_overflow" if _OVERFLOW.search(text) else None


def _fault_of_status(status: int | None, codes: frozenset[str]) -> FaultKind:
    if status is None:
        return "bad_request" if codes & _INVALID_CODES else "server"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= _HTTP_SERVER_ERROR:
        return "server"
    return "bad_request" if status >= _HTTP_BAD_REQUEST else "not_found"


def _read(body: str) -> _Complaint:
    document = _parsed(body)
    if document is None:
        return _Complaint(message=body)
    nodes = list(_error_nodes(document))
    message = next(filter(None, map(_message, nodes)), body)
    codes = frozenset(code for node in nodes for code in _codes(node))
    return _Complaint(message=message, codes=codes, status=next(filter(None, map(_numeric_code, nodes)), None))


def _parsed(body: str) -> object:
    try:
        return json.loads(body.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None


def _error_nodes(document: object, depth: int = 0) -> Iterator[Any]:
    """The error objects, innermost first: `error` may be nested, a string, or in a list or in `response`."""
    if depth > _DEEPEST_ERROR:
        return
    if isinstance(document, list):
        for entry in document[:3]:
            yield from _error_nodes(entry, depth + 1)
    elif isinstance(document, dict):
        for key in ("error", "response", "detail", "errors"):
            if document.get(key):
                yield from _error_nodes(document[key], depth + 1)
        yield from _relayed(document.get("metadata"), depth)
        yield document
        for key in ("details", "violations"):
            yield from _error_nodes(document[key], depth + 1) if isinstance(document.get(key), list) else ()
    elif isinstance(document, str):
        yield document


def _relayed(metadata: object, depth: int) -> Iterator[Any]:
    """What stands behind a gateway's "Provider returned error": the text, or JSON in a text, of the provider itself."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str) and raw.strip():
        document = _parsed(raw)
        yield from _error_nodes(document if isinstance(document, dict | list) else raw, depth + 1)


def _message(node: object) -> str:
    if not isinstance(node, dict):
        return node if isinstance(node, str) else ""
    found = node.get("message") or node.get("msg")
    return found if isinstance(found, str) else ""


def _codes(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        values = (node.get(key) for key in ("code", "type", "status"))
        yield from (value.strip().lower() for value in values if isinstance(value, str))
        if "PerDay" in str(node.get("quotaId", "")):
            yield _PER_DAY


def _numeric_code(node: object) -> int | None:
    if not isinstance(node, dict):
        return None
    for key in ("code", "status"):
        value = node.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int) and _HTTP_BAD_REQUEST <= value <= _HTTP_LAST:
            return value
    return None


def _describe(status: int | None, complaint: _Complaint, *, fault: FaultKind) -> str:
    where = "the model's stream reported an error" if status is None else f"the model's endpoint answered {status}"
    if _HTML.match(complaint.message):
        what, hint = "it is HTML, not JSON", "check --base-url"
    else:
        hint = _TIER_HINT if _ABOVE_TIER.search(complaint.message) else _HINTS.get(fault, "")
        what = short(complaint.message) or "no text"
    return f"{fault}: {where}: {what}" + (f"; {hint}" if hint else "")


def is_html(text: str) -> bool:
    """Whether an answer is a web page: a proxy's or a wrong address's."""
    return _HTML.match(text) is not None


def short(text: str) -> str:
    """The first line of what a provider wrote, clipped, without control characters."""
    return _CONTROL.sub(" ", first_line(clean(text), CLIP_CHARACTERS)).strip()


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, and without what looks like one."""
    for secret in sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, "[key]")
    return _TOKEN.sub(lambda found: f"{found.group(1) or ''}[key]", text)
