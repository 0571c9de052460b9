"""How long a provider asks to wait, in the headers and bodies that they send. Pure.

Sources: RFC 9110 (`Retry-After`), OpenAI (`retry-after-ms`, `x-ratelimit-reset-*` as durations, "try again in 1.2s"),
Anthropic (`anthropic-ratelimit-*-reset` as RFC 3339), OpenRouter (`x-ratelimit-reset` as epoch milliseconds), Gemini
(`retryDelay` in the body).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_UNIT: Final = r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)"
_PART: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?)\s*{_UNIT}(?![a-z])\s*", re.IGNORECASE)
_DURATION: Final = re.compile(rf"(?:[0-9]+(?:\.[0-9]+)?\s*{_UNIT}\s*)+", re.IGNORECASE)
_SECONDS_OF: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_IN_BODY: Final = re.compile(
    r"\"retryDelay\"\s*:\s*\"([0-9.]{1,20}s)\""
    rf"|(?:try again|retry)\s+(?:in|after)\s+((?:[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?\s?{_UNIT}(?![a-z])\s?){{1,4}})",
    re.IGNORECASE,
)
_RESET: Final = re.compile(r"(?:[a-z]+-)?ratelimit-(?:[a-z-]+-)?reset(?:-[a-z-]+)?")
_RATE_LIMITED: Final = 429
_EPOCH_SECONDS: Final = 1e9
"""A number from here on is a moment, not a duration."""
_EPOCH_MILLISECONDS: Final = 1e11


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that `Retry-After` asks for; None if it does not say, or says nothing usable or not positive.

    Understands `retry-after-ms`, seconds with or without a fraction, durations with units, and dates measured against
    `now` (with a time zone).
    """
    lowered = _lowered(headers)
    milliseconds = lowered.get("retry-after-ms", "")
    if _NUMBER.fullmatch(milliseconds) and (wait := _positive(float(milliseconds))) is not None:
        return wait / 1000
    return seconds_until(lowered.get("retry-after", ""), now)


def wished_seconds(headers: Mapping[str, str], *, status: int | None, body: str, now: datetime) -> float | None:
    """Seconds that a refusal asks to wait, wherever it says so; None: nowhere.

    `Retry-After` counts before the body, the body before the moments at which used-up limits are full again.
    """
    told = parse_retry_after(headers, now)
    if told is None and (found := _IN_BODY.search(body)):
        told = seconds_until((found[1] or found[2]).strip(), now)
    if told is None and status == _RATE_LIMITED:
        told = max(_resets(_lowered(headers), now), default=None)
    return told


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value.strip() for name, value in headers.items()}


def _resets(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    """When each limit that is used up, or does not say what is left of it, is full again."""
    for name, value in headers.items():
        left = headers.get(name.replace("reset", "remaining"), "0")
        if _RESET.fullmatch(name) and not (_NUMBER.fullmatch(left) and float(left) > 0):
            wait = seconds_until(value, now)
            yield from () if wait is None else (wait,)


def seconds_until(value: str, now: datetime) -> float | None:
    """Seconds that a number, a duration, a date or a moment since 1970 is ahead; None for all that is not."""
    if _NUMBER.fullmatch(value):
        number = float(value)
        if number >= _EPOCH_SECONDS:
            number = number / (1000 if number >= _EPOCH_MILLISECONDS else 1) - now.timestamp()
        return _positive(number)
    if _DURATION.fullmatch(value):
        return _positive(sum(float(count) * _SECONDS_OF[_key(unit)] for count, unit in _PART.findall(value)))
    return _until(value, now)


def _key(unit: str) -> str:
    lowered = unit.lower()
    return "ms" if lowered.startswith(("ms", "milli")) else lowered[0]


def _positive(number: float) -> float | None:
    return number if 0 < number < math.inf else None


def _until(value: str, now: datetime) -> float | None:
    moment = _moment(value)
    return None if moment is None else _positive((moment - now).total_seconds())


def _moment(value: str) -> datetime | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None
