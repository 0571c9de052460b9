"""The command line: `python3 -m tally FILE [--month YYYY-MM]`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tally.ledger import parse_ledger
from tally.report import lines


def main(arguments: Sequence[str]) -> int:
    """Print the report; 2 if the file cannot be read."""
    parser = argparse.ArgumentParser(prog="tally", description="Add up expenses.")
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    entries = parse_ledger(options.file.read_text(encoding="utf-8"))
    for line in lines(entries):
        print(line)
    return 0
