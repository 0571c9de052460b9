"""What the user's hooks came to, and the event that records it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from xnagent.core.values import dataclass

HookPoint = Literal[
    "session_start",
    "session_end",
    "before_run",
    "after_run",
    "before_tool",
    "after_tool",
    "before_merge",
    "after_merge",
]
HookVerdict = Literal["passed", "denied", "failed"]
"""`failed`: it did not do its work, and that does not count."""
HookKey: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRan:
    """A command of the user came to its end. It is not run again for the same thing."""

    on: HookPoint
    command: str
    match: str = ""
    """The rule that says which calls it is for; empty: all."""
    agent: str = ""
    """Whose call or run it was about; empty for the session."""
    call_id: str = ""
    tool: str = ""
    commit: str = ""
    """The merge that it was about."""
    epoch: int = 0
    """The process that the session began or ended in."""
    exit_code: int | None = None
    """None: it did not end by itself, or could not be started."""
    verdict: HookVerdict = "passed"
    detail: str = ""
    """The end of what it wrote to stderr, else to stdout; why it did not end by itself."""
    duration_seconds: float = 0.0
    type: Literal["hook_ran"] = "hook_ran"

    @property
    def key(self) -> HookKey:
        """The same for every time that this hook would be run for the same thing."""
        return (self.on, self.agent, self.call_id, self.commit, str(self.epoch), self.command, self.match)
