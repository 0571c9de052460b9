"""Reads a ledger: one entry per line."""

from dataclasses import dataclass
from datetime import date

from tally.money import parse_cents


class LedgerError(ValueError):
    """A line that cannot be read; the message begins with `line N:`."""


@dataclass(frozen=True)
class Entry:
    """One expense."""

    day: date
    category: str
    cents: int


def parse_line(line: str) -> Entry:
    """One entry. Raises ValueError for anything else."""
    day, category, amount = line.split()
    return Entry(day=date.fromisoformat(day), category=category, cents=parse_cents(amount))


def parse_ledger(text: str) -> list[Entry]:
    """All entries of a ledger, in its order."""
    return [parse_line(line) for line in text.splitlines()]


def of_month(entries: list[Entry], month: str) -> list[Entry]:
    """The entries of one month, such as `2026-03`."""
    raise NotImplementedError
