"""The clock's time as prices ask for it."""

from __future__ import annotations

from datetime import UTC, datetime

from xnagent.core.pricing import Moment


def moment_of(at: str) -> Moment:
    """Weekday and minute of an ISO 8601 time, in UTC."""
    when = datetime.fromisoformat(at).astimezone(UTC)
    return Moment(weekday=when.weekday(), minute=when.hour * 60 + when.minute)
