"""Amounts of money as whole cents."""

import re
from decimal import Decimal

AMOUNT = re.compile(r"-?\d+(\.\d{1,2})?")


def parse_cents(text: str) -> int:
    """`12.50` as 1250. Raises ValueError for text that is no amount."""
    if AMOUNT.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no amount")
    return int(Decimal(text) * 100)


def format_cents(cents: int) -> str:
    """1250 as `12.50`."""
    return f"{cents // 100}.{cents % 100:02d}"


def round_cents(amount: Decimal) -> int:
    """The nearest whole number of cents; halves are rounded up."""
    return int(amount * 100 + Decimal("0.5"))


def split(cents: int, parts: int) -> list[int]:
    """An amount in equal parts; what is left over goes to the first ones, a cent each."""
    raise NotImplementedError


def percent(part: int, whole: int) -> str:
    """A share with one decimal, such as `12.5 %`; `0.0 %` of nothing."""
    raise NotImplementedError
