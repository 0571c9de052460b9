"""File systems of a test's own: small, full, read-only. Where they can't be mounted the test is skipped."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, size: str) -> Iterator[None]:
    """A small file system of its own."""
    place.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"mount is not permitted here: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def make_read_only(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """An empty folder that nobody can write to."""
    with mounted(place, "1m"):
        make_read_only(place)
        yield
