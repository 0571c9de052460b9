"""A real headless Chromium for tests, and what a page did in it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xnagent.inspect.plain import count, money, share

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SHOTS = "XNAGENT_SCREENSHOTS"
"""The folder where screenshots are kept; without it they go with the test's own folder."""


def chromium() -> str | None:
    """The browser's program; None: there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass
class Visit:
    """One page that was opened, and everything that it said or asked for."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def all_text(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    @property
    def paint_milliseconds(self) -> float | None:
        """When it was first painted; None: not yet."""
        return self.page.evaluate("performance.getEntriesByType('paint').map(one => one.startTime)[0] ?? null")


@contextmanager
def visited(browser: Any, address: str, *, width: int = 1440, scheme: str = "light") -> Iterator[Visit]:
    """The address, opened in a window of its own."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    try:
        visit = Visit(page=context.new_page())
        visit.page.on("console", lambda message: visit.said.append(f"{message.type}: {message.text}"))
        visit.page.on("pageerror", lambda error: visit.said.append(f"error: {error}"))
        visit.page.on("request", lambda request: visit.asked.append(request.url))
        visit.page.goto(address)
        yield visit
    finally:
        context.close()


def shots_folder(default: Path) -> Path:
    """Where screenshots go; it is there."""
    folder = Path(os.environ.get(SHOTS) or default)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def xnagent(*arguments: str, folder: Path) -> None:
    """A command to its end, with everything that it keeps in the folder."""
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"], "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "xnagent", *arguments],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )


def cards(told: dict[str, Any]) -> list[str]:
    """The numbers at the top of a page, from what inspect says."""
    usage, overview = told["final"]["usage"], told["overview"]
    return [
        f"{count(overview['tasks']['completed'])}/{count(overview['tasks']['total'])}",
        count(overview["runs"]["total"]),
        count(usage["requests"]),
        count(usage["input_tokens"]),
        share(usage["cached_tokens"], usage["input_tokens"]),
        money(overview["cost_usd"]),
        count(overview["spine"]["tokens"]),
        count(overview["spine"]["deltas"]),
    ]
