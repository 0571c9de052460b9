"""Events about the trees of runs, and what a log keeps so that a workspace can be made again at another machine."""

from __future__ import annotations

from typing import Literal, TypeAlias

from xnagent.core.ids import RunId, Ticket
from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How the base commit is made again where it was made by xnagent: from a folder, or from uncommitted work."""

    parent: str | None
    """The user's own commit; None: a first commit."""
    seconds: str
    """Its date, since 1970."""
    patch: Ticket
    """Against the parent, or against nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTreeSaved:
    """A run's tree as it was after a step, as a patch."""

    run: RunId
    step: int
    commit: str
    """Of the whole tree; its parent is the run's base."""
    since: str
    """The commit that the patch is against: the run's base, or the save before."""
    patch: Ticket | None = None
    """None: nothing differs from `since`."""
    type: Literal["run_tree_saved"] = "run_tree_saved"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTreeRestored:
    """A run's tree was gone and is made again from its base and what was saved since."""

    run: RunId
    commit: str
    """The tree: the last save, or the run's base."""
    lost: tuple[int, ...] = ()
    """Steps whose effect on the tree may be missing."""
    type: Literal["run_tree_restored"] = "run_tree_restored"


TreeEvent: TypeAlias = RunTreeSaved | RunTreeRestored
