"""The scripted model itself: conversations, lineages, choice of the answer. No network."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from xnagent.testing.answer import Answer
from xnagent.testing.cache import CacheRules
from xnagent.testing.chaos import Chaos, Trouble
from xnagent.testing.choice import Brain, Chooser, UnexpectedRequestError
from xnagent.testing.conversation import Conversation
from xnagent.testing.conversations import Conversations
from xnagent.testing.gate import Gate
from xnagent.testing.ledger import Ledger
from xnagent.testing.providers import Provider, choose_provider
from xnagent.testing.received import Received, is_aside
from xnagent.testing.refusal import Refusal, error_body
from xnagent.testing.script import Fault, ReplySpec, Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a scripted model behaves, beside what it says."""

    brain: Brain | None = None
    """Answers in place of the script."""
    provider: Provider | str | None = None
    """None: the one whose wire it is; the chat wire then knows only the rules of the house."""
    cache: CacheRules | None = None
    """In place of the provider's."""
    strict: bool = True
    """A request that neither extends its predecessor nor is a declared rebase is a problem."""
    require_reasoning: bool = False
    chaos: Chaos | None = None


class Mind:
    """Takes requests in order and answers them. Not safe for threads: the server holds a lock."""

    def __init__(self, script: Script, setup: Setup, *, clock: Callable[[], float]) -> None:
        """`clock` gives seconds to the cache."""
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        """`extensions`, `rebases`, `breaks`, `resends`, `faults`, `quirks`, `overflows`."""
        self.ledger = Ledger(clock)
        self._setup = setup
        self._gate = Gate(requires_reasoning=setup.require_reasoning)
        self.conversations = Conversations(script)
        self._chooser = Chooser(setup.brain)
        self._attempts: Counter[bytes] = Counter()

    def answer(self, request: Received) -> tuple[ReplySpec, Answer | None]:
        """What to do, and the answer if (a part of) one is sent; a refused request is a ReplySpec with a fault."""
        provider = self._provider(request)
        if refusal := self._gate.refusal(request, provider):
            return self._refused(request, refusal), None
        conversation = self.conversations.find(request)
        self._check_lineage(request, conversation)
        if not is_aside(request):
            conversation.last = request
        trouble = self._trouble(request, provider)
        if trouble.fault is not None and not trouble.fault.needs_answer:
            return ReplySpec(fault=trouble.fault), None
        try:
            return self._answer(request, conversation, trouble=trouble)
        except UnexpectedRequestError as error:
            return self.refuse(str(error), request), None

    def refuse(self, problem: str, request: Received) -> ReplySpec:
        """Record a problem; the failure that tells the client."""
        return self._refused(request, Refusal(message=problem))

    def _refused(self, request: Received, refusal: Refusal) -> ReplySpec:
        if refusal.is_overflow:
            self.counts["overflows"] += 1
        else:
            self.problems.append(refusal.problem or refusal.message)
        body = error_body(refusal, wire=request.wire, family=self._provider(request).family)
        return ReplySpec(fault=Fault(status=refusal.status, body=body))

    def _provider(self, request: Received) -> Provider:
        return choose_provider(request.wire, self._setup.provider, cache=self._setup.cache)

    def _trouble(self, request: Received, provider: Provider) -> Trouble:
        digest = hashlib.sha256(request.body).digest()
        self._attempts[digest] += 1
        chaos = self._setup.chaos
        if chaos is None:
            return Trouble()
        trouble = chaos.draw(request.body, attempt=self._attempts[digest], wire=request.wire, family=provider.family)
        self.counts["faults"] += trouble.fault is not None
        self.counts["quirks"] += bool(trouble.quirks)
        return trouble

    def _answer(
        self, request: Received, conversation: Conversation, *, trouble: Trouble
    ) -> tuple[ReplySpec, Answer | None]:
        if conversation.answer is not None and conversation.has_answered(request):
            self.counts["resends"] += 1
            return _again(conversation.answer, trouble)
        spec = self._chooser.choose(request, conversation)
        if spec.fault is not None and not spec.fault.needs_answer:
            return spec, None
        if spec.fault is None and trouble.fault is not None:
            conversation.lose(request, spec)
            spec = replace(spec, fault=trouble.fault)
            return spec, self._make(spec, request, conversation=conversation)
        return self._settle(spec, request, conversation=conversation, trouble=trouble)

    def _settle(
        self, spec: ReplySpec, request: Received, *, conversation: Conversation, trouble: Trouble
    ) -> tuple[ReplySpec, Answer | None]:
        if spec.fault is not None:
            conversation.number += 1
            return spec, self._make(spec, request, conversation=conversation)
        spec = replace(spec, quirks=(*spec.quirks, *trouble.quirks))
        sent = _truncated(spec)
        if sent is not spec:
            conversation.owed = replace(spec, quirks=())
        else:
            conversation.number += 1
        answer = self._make(sent, request, conversation=conversation)
        self.ledger.count(answer)
        clean = replace(answer, spec=replace(sent, quirks=()))
        self.ledger.keep_output(request, clean.spec)
        self._gate.remember(answer)
        conversation.answered, conversation.answer = request, clean
        return sent, answer

    def _make(self, spec: ReplySpec, request: Received, *, conversation: Conversation) -> Answer:
        return self.ledger.make(spec, request, conversation=conversation, provider=self._provider(request))

    def _check_lineage(self, request: Received, conversation: Conversation) -> None:
        last = conversation.last
        if last is None or last.body == request.body:
            return
        if request.extends(last):
            self.counts["extensions"] += 1
        elif request.is_rebased and request.keeps_head_of(last):
            self.counts["rebases"] += 1
        else:
            self.counts["breaks"] += 1
            if self._setup.strict:
                where = _difference(last.prefix.joined(), request.prefix.joined())
                self.problems.append(f"prefix of {conversation.role} {conversation.key} broken: {where}")


def _difference(old: bytes, new: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    window = slice(max(0, at - 40), at + 40)
    return f"at byte {at} of {len(old)}: {old[window]!r} became {new[window]!r}"


def _again(answer: Answer, trouble: Trouble) -> tuple[ReplySpec, Answer]:
    """The same answer once more, with the trouble of this attempt."""
    spec = replace(answer.spec, fault=trouble.fault, quirks=tuple({*trouble.quirks} - {"truncated_arguments"}))
    return spec, replace(answer, spec=spec)


def _truncated(spec: ReplySpec) -> ReplySpec:
    """What is sent of an answer whose arguments are cut off: one call that cannot be read, if there is one."""
    if "truncated_arguments" not in spec.quirks or not spec.calls:
        return spec
    call = spec.calls[0]
    return replace(spec, calls=(replace(call, arguments=call.text[: max(1, len(call.text) // 2)]),))
