"""What the values of options must be: each function reads one, or says what is wrong with it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

MOST_PORT: Final = 65_535


def place(text: str) -> str:
    """A folder by its whole path: workers may stand elsewhere."""
    return str(Path(text).expanduser().absolute())


def amount(text: str) -> float:
    """A number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 1")
    return number


def port(text: str) -> int:
    """A TCP port; 0 stands for any that is free."""
    number = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= number <= MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; one is from 0 to {MOST_PORT}")
    return number


def count(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return number
