"""The clock's time as prices ask for it."""

import pytest

from xnagent.agents.moment import moment_of
from xnagent.core.pricing import Moment


@pytest.mark.parametrize(
    ("at", "weekday", "minute"),
    [
        ("2026-11-30T00:59:59.999Z", 0, 59),
        ("2026-11-28T23:59:00.000Z", 5, 1_439),
        ("2026-11-30T11:30:00+05:00", 0, 390),
        ("2026-11-30T01:00:00+02:00", 6, 1_380),
    ],
)
def test_C11_a_time_is_a_minute_of_a_weekday_in_utc(at: str, weekday: int, minute: int):
    assert moment_of(at) == Moment(weekday=weekday, minute=minute)
