"""What the log says about trees: the state that a workspace is made again from."""

from __future__ import annotations

from xnagent.core.ids import RunId, TaskId, Ticket
from xnagent.core.tree_events import RunTreeRestored
from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLog:
    """The tree of one run."""

    patches: tuple[Ticket, ...] = ()
    """Applied to the run's base one after another they give `commit`."""
    commit: str | None = None
    """The newest save; None: nothing was saved."""
    unsaved: tuple[int, ...] = ()
    """Steps since then with calls that may have changed the tree."""
    times_restored: int = 0
    """A folder that was left before the newest time is not the tree any more."""
    restored: RunTreeRestored | None = None
    """What the Worker has not been told yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A run's patch that is on the integration branch: all that its commit is made from."""

    run: RunId
    base: str
    patch: Ticket
    message: str
    commit: str


def merge_message(task: TaskId, title: str, *, run: RunId) -> str:
    """Of the commit that brings a run's patch to the integration branch."""
    return f"{task}: {title}\n\nxnagent run {run}"
