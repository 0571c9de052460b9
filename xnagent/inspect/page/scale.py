"""Scales of pictures: time without its long gaps, and round numbers for axes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

GAP_SECONDS: Final = 120.0
GAP_SHARE: Final = 0.2
CUT_SHARE: Final = 0.03
"""Of the width: what is left of a gap."""
TICKS: Final = 8
NEAR: Final = 0.07
"""Of the width: ticks that are closer are left out."""
ROUND_SECONDS: Final = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    21600,
    43200,
    86400,
)
MINUTE: Final = 60
HOUR: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeScale:
    """Seconds of a session to places from 0 to 1."""

    knots: Sequence[tuple[float, float]]
    """Seconds and place, both rising; straight in between."""
    cuts: Sequence[tuple[float, float]] = ()
    """Begin and end of each gap in which nothing happened, in seconds."""

    @property
    def length(self) -> float:
        """The last second."""
        return self.knots[-1][0]

    def place(self, seconds: float) -> float:
        """Where it is."""
        after = min(max(bisect_right(self.knots, (seconds, 2.0)), 1), len(self.knots) - 1)
        (left, low), (right, high) = self.knots[after - 1], self.knots[after]
        share = 0.0 if right <= left else (seconds - left) / (right - left)
        return min(low + (high - low) * min(max(share, 0.0), 1.0), 1.0)

    def ticks(self) -> list[float]:
        """Round seconds that are far enough apart to be written."""
        busy = self.length - sum(end - begin for begin, end in self.cuts)
        step = next((each for each in ROUND_SECONDS if busy / each <= TICKS), busy / TICKS)
        chosen: list[float] = []
        for begin, end in pairwise([0.0, *(at for cut in self.cuts for at in cut), self.length]):
            if (begin, end) in self.cuts:
                continue
            for number in range(int(begin / step), int(end / step) + 1):
                self._choose(number * step, begin, chosen=chosen)
        return chosen

    def _choose(self, seconds: float, begin: float, *, chosen: list[float]) -> None:
        is_near = bool(chosen) and self.place(seconds) - self.place(chosen[-1]) < NEAR
        if seconds >= begin and not is_near:
            chosen.append(seconds)


def time_scale(seconds: Iterable[float]) -> TimeScale:
    """A scale for events at these seconds, on which long gaps are short."""
    times = sorted({0.0, *seconds})
    length = times[-1]
    least = max(GAP_SECONDS, GAP_SHARE * length)
    cuts = [(left, right) for left, right in pairwise(times) if right - left > least]
    busy = length - sum(right - left for left, right in cuts)
    room = 1.0 - CUT_SHARE * len(cuts)
    knots, passed, place = [(0.0, 0.0)], 0.0, 0.0
    for left, right in cuts:
        place += room * (left - passed) / busy if busy else 0.0
        knots.append((left, place))
        place += CUT_SHARE
        knots.append((right, place))
        passed = right
    return TimeScale(knots=[*knots, (max(length, 1e-3), 1.0)], cuts=cuts)


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < MINUTE:
        return f"{seconds:g} s" if seconds == round(seconds, 1) else f"{seconds:.1f} s"
    if seconds < HOUR:
        minutes, rest = divmod(round(seconds), MINUTE)
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, rest = divmod(round(seconds / MINUTE), MINUTE)
    return f"{hours} h {rest:02d} min" if rest else f"{hours} h"


def round_up(number: float) -> float:
    """The next number that is 1, 2, 4, 5 or 10 times a power of ten; 1 for nothing."""
    if number <= 0:
        return 1.0
    unit = 10.0 ** (len(str(int(number))) - 1) if number >= 1 else 1.0
    return next(each * unit for each in (1, 2, 4, 5, 8, 10) if each * unit >= number)
