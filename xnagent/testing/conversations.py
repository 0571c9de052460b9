"""All conversations with a scripted model: to which one a request belongs, and which rules are left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xnagent.testing.conversation import Conversation
from xnagent.testing.received import Received
from xnagent.testing.script import Role, Script, Section

ROLES: Final[tuple[Role, ...]] = ("planner", "worker")


class Conversations:
    """Conversations in the order in which they began."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._conversations: list[Conversation] = []

    def find(self, request: Received) -> Conversation:
        """The conversation that a request goes on with, or a new one."""
        known = [one for one in reversed(self._conversations) if one.key == request.conversation]
        for one in known:
            if one.last is not None and request.extends(one.last):
                return one
        if known and (request.has_reply or request.is_rebased or known[0].answered is None):
            return known[0]
        return self._begin(request, attempt=len(known) + 1)

    def _begin(self, request: Received, *, attempt: int) -> Conversation:
        role = request.role
        section = next((one for one in self._script.sections(role) if self._applies(one, request)), None)
        conversation = Conversation(
            key=request.conversation, role=role, first_user=request.first_user, attempt=attempt, section=section
        )
        self._conversations.append(conversation)
        return conversation

    def _applies(self, section: Section, request: Received) -> bool:
        if section.match not in request.first_user:
            return False
        peers = [one for one in self._conversations if one.role == request.role and section.match in one.first_user]
        return section.attempt is None or section.attempt == len(peers) + 1

    def leftovers(self) -> Iterator[str]:
        """Rules that were used less often than they should have been."""
        places = [(role, section) for role in ROLES for section in self._script.sections(role)]
        for role, section in places:
            used = [one.used for one in self._conversations if one.section is section]
            for number, rule in enumerate(section.rules):
                most = max((counter[number] for counter in used), default=0)
                if most < rule.times:
                    where = f"rule {number + 1} of {role} {section.match!r}"
                    yield f"{where} was used {most} of {rule.times} times (when {list(rule.when)})"
