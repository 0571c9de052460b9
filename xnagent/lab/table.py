"""The table of strategies, as the terminal and the page show it."""

from __future__ import annotations

from typing import Final

from xnagent.lab.tally import Tally

COLUMNS: Final = (
    "strategy",
    "steps",
    "extra",
    "rebases",
    "input",
    "cached",
    "written",
    "output",
    "cost",
    "of uncached",
    "reuse",
    "to floor",
)
NONE: Final = "-"


def cells(strategy: str, tally: Tally, *, floor: float) -> tuple[str, ...]:
    """A row; `floor` in dollars, 0 where nothing can be compared with it."""
    is_whole = not tally.unfinished
    return (
        strategy,
        f"{tally.steps:,}" if is_whole else f"{tally.steps:,} of {tally.steps + tally.unfinished:,}",
        f"{tally.extra_calls:,}",
        f"{tally.lineages:,}",
        f"{tally.input:,}",
        f"{tally.cached:,}",
        f"{tally.written:,}",
        f"{tally.output:,}",
        dollars(tally.usd),
        percent(tally.share),
        percent(tally.reuse),
        f"{tally.usd / floor:.2f}" if floor and is_whole else NONE,
    )


def dollars(amount: float) -> str:
    """With as many digits as small sums need."""
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def percent(share: float | None) -> str:
    """With one digit behind the point."""
    return NONE if share is None else f"{100 * share:.1f} %"
