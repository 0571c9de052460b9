"""Which answer a request gets: by the script, or by a brain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xnagent.testing.conversation import Conversation
from xnagent.testing.received import Received, new_text
from xnagent.testing.script import ReplySpec, Role, Rule


class UnexpectedRequestError(Exception):
    """Nothing answers this request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """What a brain decides on."""

    role: Role
    messages: list[dict[str, Any]]
    new_text: str
    """What the user and the tools say that is new since the last answered request."""
    first_user: str
    tools: tuple[str, ...]
    number: int
    """Which request of the conversation it is: 1, 2, 3…"""
    conversation: str
    attempt: int
    """Which conversation with this beginning it is: 1, 2, 3…"""


Brain = Callable[[RequestView], ReplySpec]
"""Answers in place of a script."""


class Chooser:
    """Chooses; each rule as often as it may be used."""

    def __init__(self, brain: Brain | None) -> None:
        """With a brain the script is not looked at."""
        self._brain = brain

    def choose(self, request: Received, conversation: Conversation) -> ReplySpec:
        """The answer. Raises UnexpectedRequestError."""
        if (pending := conversation.take_pending(request)) is not None:
            conversation.rule, conversation.is_owed = pending.rule, pending.was_owed
            return pending.spec
        fresh = conversation.carried + new_text(request, conversation.answered)
        conversation.is_owed = conversation.owed is not None
        if conversation.owed is not None:
            spec, conversation.owed, conversation.carried = conversation.owed, None, fresh + "\n"
            return spec
        conversation.carried = ""
        if self._brain is not None:
            return self._ask(self._brain, request, conversation=conversation, fresh=fresh)
        return self._follow(request, conversation, fresh=fresh)

    def _follow(self, request: Received, conversation: Conversation, *, fresh: str) -> ReplySpec:
        section = conversation.section
        for number, rule in enumerate(section.rules if section else ()):
            if _fits(rule, fresh, used=conversation.used[number]):
                conversation.used[number] += 1
                conversation.rule = number
                return rule.reply
        conversation.rule = None
        if section is not None and section.wait is not None:
            return ReplySpec(text=section.wait)
        raise UnexpectedRequestError(
            f"unexpected request of {conversation.role} {conversation.key}; new: {fresh[-400:]!r}"
        )

    def _ask(self, brain: Brain, request: Received, *, conversation: Conversation, fresh: str) -> ReplySpec:
        view = RequestView(
            role=conversation.role,
            messages=request.messages,
            new_text=fresh,
            first_user=request.first_user,
            tools=request.tools,
            number=conversation.number + 1,
            conversation=conversation.key,
            attempt=conversation.attempt,
        )
        try:
            return brain(view)
        except (AssertionError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise UnexpectedRequestError(f"the brain failed: {type(error).__name__}: {error}") from error


def _fits(rule: Rule, fresh: str, *, used: int) -> bool:
    return (rule.times == 0 or used < rule.times) and all(part in fresh for part in rule.when)
