"""The scripted model itself: conversations, lineages, choice of the answer. No network."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from xnagent.core.text import Json
from xnagent.testing.cache import Books, CacheRules, PrefixCache, report_usage
from xnagent.testing.received import Received, new_text, pairing_problems, reasoning_problems
from xnagent.testing.rendered import Answer, output_bytes
from xnagent.testing.script import Fault, ReplySpec, Role, Rule, Script, Section

ROLES: Final[tuple[Role, ...]] = ("planner", "worker")


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


@dataclass(slots=True, kw_only=True)
class _Conversation:
    """One conversation and where it is."""

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
    used: Counter[int] = field(default_factory=Counter)
    """How often each rule of the section was used."""

    def has_answered(self, request: Received) -> bool:
        """Whether this very request was the newest one that got a whole answer."""
        return self.answered is not None and self.answered.body == request.body


class Mind:
    """Takes requests in order and answers them. Not safe for threads: the server holds a lock."""

    def __init__(
        self, script: Script, *, brain: Brain | None, rules: CacheRules, strict: bool, require_reasoning: bool
    ) -> None:
        """With a brain the script is not looked at."""
        self.books = Books()
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        """`extensions`, `rebases`, `breaks`, `resends`."""
        self._script = script
        self._brain = brain
        self._rules = rules
        self._strict = strict
        self._require_reasoning = require_reasoning
        self._cache = PrefixCache(rules, time.monotonic)
        self._conversations: list[_Conversation] = []
        self._reasoning: dict[str, str] = {}

    def answer(self, request: Received) -> tuple[ReplySpec, Answer | None]:
        """What to do, and the whole answer if it is one; a refused request is a ReplySpec with a fault."""
        if problems := list(self._problems(request)):
            return self.refuse("; ".join(problems)), None
        conversation = self._conversation_of(request)
        self._check_lineage(request, conversation)
        conversation.last = request
        if conversation.answer is not None and conversation.has_answered(request):
            self.counts["resends"] += 1
            return conversation.answer.spec, conversation.answer
        spec = self._choose(request, conversation)
        if spec.fault is not None and spec.fault.cut_after is None:
            return spec, None
        return spec, self._reply(spec, request, conversation=conversation)

    def refuse(self, problem: str, *, status: int = 400) -> ReplySpec:
        """Record a problem; the failure that tells the client."""
        self.problems.append(problem)
        body: Json = {"error": {"message": problem, "type": "invalid_request_error"}}
        return ReplySpec(fault=Fault(status=status, body=body))

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

    def _problems(self, request: Received) -> Iterator[str]:
        if not request.messages:
            yield "the request has no messages"
        yield from pairing_problems(request.messages)
        if self._require_reasoning:
            yield from reasoning_problems(request.messages, self._reasoning)

    def _conversation_of(self, request: Received) -> _Conversation:
        known = [one for one in reversed(self._conversations) if one.key == request.conversation]
        for one in known:
            if one.last is not None and request.extends(one.last):
                return one
        if known and (request.has_reply or request.is_rebased or known[0].answered is None):
            return known[0]
        return self._begin(request, attempt=len(known) + 1)

    def _begin(self, request: Received, *, attempt: int) -> _Conversation:
        role = request.role
        section = next((one for one in self._script.sections(role) if self._applies(one, request)), None)
        conversation = _Conversation(
            key=request.conversation, role=role, first_user=request.first_user, attempt=attempt, section=section
        )
        self._conversations.append(conversation)
        return conversation

    def _applies(self, section: Section, request: Received) -> bool:
        if section.match not in request.first_user:
            return False
        peers = [one for one in self._conversations if one.role == request.role and section.match in one.first_user]
        return section.attempt is None or section.attempt == len(peers) + 1

    def _check_lineage(self, request: Received, conversation: _Conversation) -> None:
        last = conversation.last
        if last is None or last.body == request.body:
            return
        if request.extends(last):
            self.counts["extensions"] += 1
        elif request.is_rebased and request.keeps_head_of(last):
            self.counts["rebases"] += 1
        else:
            self.counts["breaks"] += 1
            if self._strict:
                self.problems.append(
                    f"prefix of {conversation.role} {conversation.key} broken: {_difference(last.body, request.body)}"
                )

    def _choose(self, request: Received, conversation: _Conversation) -> ReplySpec:
        fresh = new_text(request, conversation.answered)
        if self._brain is not None:
            return self._ask(self._brain, request, conversation=conversation, fresh=fresh)
        section = conversation.section
        for number, rule in enumerate(section.rules if section else ()):
            if _fits(rule, fresh, used=conversation.used[number]):
                conversation.used[number] += 1
                return rule.reply
        if section is not None and section.wait is not None:
            return ReplySpec(text=section.wait)
        return self.refuse(f"unexpected request of {conversation.role} {conversation.key}; new: {fresh[-400:]!r}")

    def _ask(self, brain: Brain, request: Received, *, conversation: _Conversation, fresh: str) -> ReplySpec:
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
            return self.refuse(f"the brain failed: {type(error).__name__}: {error}")

    def _reply(self, spec: ReplySpec, request: Received, *, conversation: _Conversation) -> Answer:
        conversation.number += 1
        prompt, cached = self._cache.take(request)
        completion = max(1, -(-output_bytes(spec) // self._rules.bytes_per_token))
        reasoning = len(spec.reasoning.encode()) // self._rules.bytes_per_token
        base = f"{conversation.key[:8]}_{conversation.attempt}_{conversation.number}"
        ids = tuple(f"call_{base}_{n}" if call.id is None else call.id for n, call in enumerate(spec.calls, 1))
        usage = report_usage(
            self._rules.dialect, prompt=prompt, cached=cached, completion=completion, reasoning=reasoning
        )
        if spec.usage is not None:
            usage = {"usage": dict(spec.usage)} if spec.usage else {}
        answer = Answer(spec=spec, ids=ids, model=str(request.data.get("model", "")), created=base, usage=usage)
        if spec.fault is None:
            conversation.answered, conversation.answer = request, answer
            self._reasoning.update(dict.fromkeys(ids if spec.reasoning else (), spec.reasoning))
            self.books.add(prompt, cached, output=completion)
        return answer


def _fits(rule: Rule, fresh: str, *, used: int) -> bool:
    return (rule.times == 0 or used < rule.times) and all(part in fresh for part in rule.when)


def _difference(old: bytes, new: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    window = slice(max(0, at - 40), at + 40)
    return f"at byte {at} of {len(old)}: {old[window]!r} became {new[window]!r}"
