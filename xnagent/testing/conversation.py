"""One conversation with a scripted model, and where it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from xnagent.testing.answer import Answer
from xnagent.testing.received import Received
from xnagent.testing.script import ReplySpec, Role, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An answer that was chosen and did not come through."""

    body: bytes
    spec: ReplySpec
    rule: int | None
    """Which rule it was, if it was one."""
    was_owed: bool
    """Whether it was the rest of one that was cut off."""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """One conversation."""

    key: str
    role: Role
    first_user: str
    attempt: int
    section: Section | None
    last: Received | None = None
    answered: Received | None = None
    answer: Answer | None = None
    """To the newest answered request: it is given again if that request comes again."""
    number: int = 0
    made: int = 0
    """Answers made, whole or not: their ids differ."""
    used: Counter[int] = field(default_factory=Counter)
    """How often each rule of the section was used."""
    rule: int | None = None
    """The rule used last."""
    is_owed: bool = False
    """Whether the answer chosen last was owed."""
    pending: Pending | None = None
    owed: ReplySpec | None = None
    """An answer that came through cut off: the next request gets it whole."""
    carried: str = ""
    """What was new in requests that no rule looked at."""

    def has_answered(self, request: Received) -> bool:
        """Whether this very request was the newest one that got a whole answer."""
        return self.answered is not None and self.answered.body == request.body

    def lose(self, request: Received, spec: ReplySpec) -> None:
        """The answer chosen now does not come through."""
        self.pending = Pending(body=request.body, spec=spec, rule=self.rule, was_owed=self.is_owed)

    def take_pending(self, request: Received) -> Pending | None:
        """The answer that this request should have had; another request in its place undoes that choice."""
        pending, self.pending = self.pending, None
        if pending is None or pending.body == request.body:
            return pending
        if pending.was_owed:
            self.owed = pending.spec
        elif pending.rule is not None:
            self.used[pending.rule] -= 1
        return None
