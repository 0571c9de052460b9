"""The report: one line for each category."""

from tally.ledger import Entry


def totals(entries: list[Entry]) -> dict[str, int]:
    """Cents by category, in alphabetical order."""
    sums: dict[str, int] = {}
    for entry in entries:
        sums[entry.category] = sums.get(entry.category, 0) + entry.cents
    return dict(sorted(sums.items()))


def lines(entries: list[Entry]) -> list[str]:
    """Each category with what was spent on it."""
    sums = totals(entries)
    return [f"{category} {cents}" for category, cents in sums.items()]
