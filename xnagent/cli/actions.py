"""What GitHub Actions is told where a command runs there: by files that the runner names, and by commands on stderr."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from xnagent.cli.console import Console, write_all
from xnagent.core.text import clean
from xnagent.export import github

SUMMARY: Final = "GITHUB_STEP_SUMMARY"
OUTPUT: Final = "GITHUB_OUTPUT"
TOKEN_BYTES: Final = 16


@dataclass(slots=True, kw_only=True)
class Actions:
    """The runner of a step. Whatever goes wrong with it is one warning: it never changes how a session ends."""

    environ: Mapping[str, str]
    console: Console
    note: str | None = None
    """What is shown beside the step, once commands are obeyed again."""

    def summarize(self, text: str) -> None:
        """Append Markdown to the step's summary."""
        self._append(SUMMARY, text)

    def output(self, values: Mapping[str, str]) -> None:
        """Set the step's outputs."""
        self._append(OUTPUT, github.output_text(values, f"xnagent-{secrets.token_hex(TOKEN_BYTES)}"))

    def _append(self, name: str, text: str) -> None:
        path = self.environ.get(name, "")
        if not path:
            return
        try:
            _append_to(path, self.console.mask.data(clean(text).encode()))
        except (OSError, ValueError) as error:
            self.console.warn(f"xnagent: GITHUB_FAILED: {name}: {getattr(error, 'strerror', None) or error}")


def _append_to(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no ordinary file")
        write_all(descriptor, content)
    finally:
        os.close(descriptor)


@contextmanager
def within_actions(environ: Mapping[str, str], console: Console) -> Iterator[Actions | None]:
    """Inside, nothing that is printed is a command to the runner: a session's words may be anybody's.

    Gives None where no runner is.
    """
    if environ.get("GITHUB_ACTIONS") != "true":
        yield None
        return
    actions = Actions(environ=environ, console=console)
    token = secrets.token_hex(TOKEN_BYTES)
    console.warn(github.command("stop-commands", token))
    try:
        yield actions
    finally:
        console.warn(github.command(token))
        if actions.note is not None:
            console.warn(actions.note)
