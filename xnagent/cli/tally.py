"""How far a batch is, in numbers and in one line. Shown as plain lines; `live.py` shows the same on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

from xnagent.batch.assignment import Record
from xnagent.cli.console import Console
from xnagent.inspect.plain import line, money

LINE_WIDTH = 300
MINUTE = 60.0
HOUR = 3_600.0


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts results as they come."""

    total: int
    done: int
    """Those with a result, of earlier runs too."""
    began: float
    """Seconds on the clock that `standing` is asked with."""
    here: int = 0
    """Results of this run."""
    failed: int = 0
    cost_usd: float | None = 0.0
    """None as soon as a price is not known."""

    def count(self, record: Record) -> None:
        """One more result."""
        self.done += 1
        self.here += 1
        self.failed += record["exit_code"] != 0
        cost = cast("dict[str, float | None]", record["usage"])["cost_usd"]
        self.cost_usd = None if cost is None or self.cost_usd is None else self.cost_usd + cost

    def standing(self, now: float) -> str:
        """Rate, money and time left."""
        seconds = max(now - self.began, 0.001)
        parts = [f"{self.done}/{self.total}", f"{self.failed} not completed" if self.failed else ""]
        if self.here:
            parts += [f"{self.here / seconds * MINUTE:,.1f} a minute", money(self.cost_usd), self._left(seconds)]
        return ", ".join(part for part in parts if part)

    def _left(self, seconds: float) -> str:
        left = self.total - self.done
        return f"{duration(left * seconds / self.here)} left" if left > 0 else ""


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 05 min`."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    return f"{seconds // HOUR:.0f} h {seconds % HOUR / MINUTE:02.0f} min"


class Display(Protocol):
    """Shows how a batch goes."""

    def show(self, tally: Tally, text: str) -> None:
        """Something happened: a line about it, and where the batch stands now."""

    def close(self) -> None:
        """Take away what is not to stay."""


class PlainDisplay:
    """A line for each result."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, tally: Tally, text: str) -> None:
        """The line."""
        if text:
            self._console.say(text)

    def close(self) -> None:
        """Nothing to take away."""


def told(record: Record, tally: Tally, *, now: float) -> str:
    """A result in one line, with where the batch stands."""
    error = cast("dict[str, str] | None", record["error"])
    usage = cast("dict[str, float | None]", record["usage"])
    why = f": {error['message']}" if error else ""
    cost = money(usage["cost_usd"])
    return line(f"[{tally.standing(now)}] {record['id']}: {record['outcome']}, {cost}{why}", LINE_WIDTH)
