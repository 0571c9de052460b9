"""What becomes of trees: the values that workspaces give back."""

from __future__ import annotations

from xnagent.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """A commit as what it adds to another: enough to make it again elsewhere, with the same id."""

    parent: str | None
    """None: it is the first."""
    seconds: str
    """Its date, since 1970."""
    patch: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Where a session begins."""

    commit: str
    is_shadow: bool
    snapshot: Patched | None = None
    """How to make it again, if it is no commit of the user's and not too large to be kept."""
    notes: tuple[str, ...] = ()
    """What a person should know, such as paths that were left out."""
    withheld: tuple[str, ...] = ()
    """Of that, what the Planner should know too: files that hold secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a run changed, as it crossed out of its workspace."""

    commit: str
    """A commit whose parent is the run's base."""
    patch: bytes
    """`git diff --binary`."""
    changed_files: tuple[str, ...]
    problems: tuple[str, ...] = ()
    """Why it must not be merged: escaping links, nested repositories."""
    ignored: tuple[str, ...] = ()
    """Some of what is in the tree and not in the commit, because git ignores it; folders end with a slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A three-way merge that worked; not yet on the integration branch."""

    commit: str
    has_moved: bool
    """The integration head was not the run's base any more, so checks must run again on this tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A three-way merge that needs somebody."""

    paths: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What became of the result."""

    is_applied: bool
    branch: str | None
    """The branch in the user's repository that holds the result; None for a folder without one."""
    changed_files: tuple[str, ...]
    patch: bytes
    detail: str = ""
    """Why it was not applied, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSave:
    """A run's tree as it is now."""

    commit: str
    """Its parent is the run's base."""
    since: str
    """What the patch is against: an earlier save, or the run's base."""
    patch: bytes
    """Empty: nothing differs."""
