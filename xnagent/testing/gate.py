"""Refuses what the provider would refuse, and what breaks the rules of the house (I3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from xnagent.testing.answer import Answer
from xnagent.testing.check_breakpoints import check_breakpoints
from xnagent.testing.check_chat import check_chat, check_reasoning
from xnagent.testing.check_messages import check_messages
from xnagent.testing.check_responses import check_responses
from xnagent.testing.prompt import prompt_of, tokens_of
from xnagent.testing.providers import Provider
from xnagent.testing.received import Received, pairing_problems, reasoning_problems
from xnagent.testing.refusal import Refusal, overflow


@dataclass(slots=True, kw_only=True)
class Gate:
    """Knows which reasoning was given, and checks each request."""

    requires_reasoning: bool
    """Reasoning must come back on the chat wire whoever the provider is (M122)."""
    _calls: dict[str, str] = field(default_factory=dict)
    """Reasoning by the id of a call that was made with it."""
    _texts: dict[str, set[str]] = field(default_factory=dict)
    """Reasoning by the text of a turn without calls."""

    def refusal(self, request: Received, provider: Provider) -> Refusal | None:
        """The first thing that the provider finds, with all problems of the house told to `check()`."""
        found = next(self._refusals(request, provider), None)
        house = "; ".join(self._house_problems(request))
        if found is None:
            return Refusal(message=house) if house else self._overflow(request, provider)
        return replace(found, problem=f"{found.message} ({house})" if house else found.message)

    def remember(self, answer: Answer) -> None:
        """What must come back of an answer."""
        spec = answer.spec
        if not spec.reasoning or answer.quirks.intersection({"duplicate_ids", "empty_ids"}):
            return
        self._calls.update(dict.fromkeys(answer.ids, spec.reasoning))
        if not spec.calls:
            self._texts.setdefault(spec.text, set()).add(spec.reasoning)

    def _refusals(self, request: Received, provider: Provider) -> Iterator[Refusal]:
        match request.wire:
            case "messages":
                yield from check_messages(request.data, alternates=provider.alternates, reasoned=self._calls)
            case "responses":
                yield from check_responses(request.data, reasoned=self._calls)
                yield from _breakpoints(request, provider)
            case "chat" if provider.family != "generic":
                yield from check_chat(request.data, provider=provider)
                yield from _breakpoints(request, provider)
                if provider.needs_reasoning:
                    yield from check_reasoning(request.data, calls=self._calls, texts=self._texts)
            case _:
                return

    def _house_problems(self, request: Received) -> Iterator[str]:
        if not request.messages:
            yield "the request has no messages"
        yield from pairing_problems(request.messages)
        if self.requires_reasoning and request.wire == "chat":
            yield from reasoning_problems(request.messages, self._calls)

    def _overflow(self, request: Received, provider: Provider) -> Refusal | None:
        if not provider.window_tokens:
            return None
        data = request.data
        most = data.get("max_tokens") or data.get("max_completion_tokens") or data.get("max_output_tokens") or 0
        size = len(prompt_of(request, provider.cache.order).data)
        return overflow(provider, tokens_of(size, provider.cache.bytes_per_token), wire=request.wire, output=most)


def _breakpoints(request: Received, provider: Provider) -> Iterator[Refusal]:
    is_known = provider.cache.has_implicit_mark
    return check_breakpoints(request.data, wire=request.wire, is_known=is_known)
