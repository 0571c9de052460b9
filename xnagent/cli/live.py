"""A batch on a terminal: a bar below the lines. Needs rich, and is imported only where somebody sees it."""

from __future__ import annotations

import sys
import time

from rich.console import Console as Terminal
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from xnagent.cli.tally import Tally
from xnagent.inspect.plain import visible


class LiveDisplay:
    """Implements `tally.Display`."""

    def __init__(self) -> None:
        terminal = Terminal(file=sys.stderr, highlight=False)
        columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self._progress = Progress(
            *columns, console=terminal, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._bar = self._progress.add_task("", total=None)
        self._progress.start()

    def show(self, tally: Tally, text: str) -> None:
        """The line above the bar."""
        if text:
            self._progress.console.print(visible(text), markup=False, soft_wrap=True)
        standing = tally.standing(time.monotonic())
        self._progress.update(self._bar, total=tally.total, completed=tally.done, description=standing)

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()
