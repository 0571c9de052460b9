"""Headers about rate limits, in each provider's dialect, as one reading. Pure.

- `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` (OpenAI and those who follow it): resets are durations such as
  `6m0s`, `59.7s`, `12ms`, or plain seconds; -1 stands for unknown.
- `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`: resets are RFC 3339 times.
- `retry-after` on a refusal: a pause for all calls, not only for the one that was refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from xnagent.models.quota import Allowance, Reading
from xnagent.models.waits import parse_retry_after, seconds_until

REFUSALS: Final = frozenset({429, 503, 529})
LARGEST: Final = 1e15
_COUNTED: Final = ("requests", "tokens", "input-tokens", "output-tokens")


def read_quota(headers: Mapping[str, str], *, status: int, now: datetime, monotonic: float) -> Reading:
    """What the headers say; an empty reading if they say nothing. `now` has a time zone and is what dates mean."""
    lowered = {name.lower(): value.strip() for name, value in headers.items()}
    counted = _COUNTED if any("ratelimit" in name for name in lowered) else ()
    allowances = {
        name.replace("-", "_"): allowance
        for name in counted
        if (allowance := _allowance(lowered, name, now=now, monotonic=monotonic)) is not None
    }
    pause = parse_retry_after(lowered, now) if status in REFUSALS else None
    return Reading(allowances=allowances, pause_seconds=pause)


def _allowance(headers: Mapping[str, str], name: str, *, now: datetime, monotonic: float) -> Allowance | None:
    for remaining, limit, reset in _dialects(headers, name):
        left = _number(remaining)
        if left is None:
            continue
        after = seconds_until(reset, now)
        return Allowance(remaining=left, limit=_number(limit), reset_at=None if after is None else monotonic + after)
    return None


def _dialects(headers: Mapping[str, str], name: str) -> Iterator[tuple[str, str, str]]:
    yield _parts(headers, "x-ratelimit-{part}-" + name)
    yield _parts(headers, "anthropic-ratelimit-" + name + "-{part}")


def _parts(headers: Mapping[str, str], pattern: str) -> tuple[str, str, str]:
    """Remaining, limit and reset as they stand; empty where there is none."""
    found = [headers.get(pattern.format(part=part), "") for part in ("remaining", "limit", "reset")]
    return found[0], found[1], found[2]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= LARGEST else None
