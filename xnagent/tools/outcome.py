"""Failures as answers: a code, a fact and the next step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread

from xnagent.core.text import clean
from xnagent.ports import Call, Outcome, Workspace

T = TypeVar("T")


class RefusedError(Exception):
    """A call cannot be done; `code` is in capitals, `fact` says what is so and what to do next."""

    def __init__(self, code: str, fact: str) -> None:
        super().__init__(fact)
        self.code = code
        self.fact = fact

    def outcome(self, tool: str) -> Outcome:
        """The refusal as the model reads it."""
        return failure(self.code, self.fact, tool=tool)


def failure(code: str, fact: str, *, tool: str) -> Outcome:
    """An outcome that says why a call came to nothing."""
    text = clean(f"{code}: {fact}").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return Outcome(text=text, code=code, label=f"{tool}: {code}")


def workspace_of(call: Call) -> Workspace:
    """The call's workspace; raises RefusedError where there is none."""
    if call.workspace is None:
        raise RefusedError("NO_WORKSPACE", "there is no folder to work in here; only artifact tickets can be read.")
    return call.workspace


async def attempt(tool: str, work: Callable[[], T]) -> T | Outcome:
    """Do blocking work in a thread; a refusal or an error of the system becomes an outcome."""
    try:
        return await to_thread.run_sync(functools.partial(work))
    except RefusedError as refusal:
        return refusal.outcome(tool)
    except OSError as error:
        return failure("FAILED", f"the system refused: {error.strerror or error}.", tool=tool)
