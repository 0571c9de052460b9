"""Makes answers with their ids and usage, and keeps the books of the provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from xnagent.testing.answer import Answer, output_bytes
from xnagent.testing.cache import Books, PrefixCache
from xnagent.testing.conversation import Conversation
from xnagent.testing.prompt import tokens_of
from xnagent.testing.providers import Provider
from xnagent.testing.reading import Wire
from xnagent.testing.received import Received
from xnagent.testing.script import ReplySpec
from xnagent.testing.usage import Usage

_PREFIXES: Final = {"chat": "call", "responses": "call", "messages": "toolu"}
_DUPLICATE: Final = "call_0"


class Ledger:
    """One cache for each wire; two totals."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self.books = Books()
        """Of all whole answers."""
        self.reported = Books()
        """Of those whose usage was sent."""
        self._clock = clock
        self._caches: dict[Wire, PrefixCache] = {}

    def make(self, spec: ReplySpec, request: Received, *, conversation: Conversation, provider: Provider) -> Answer:
        """An answer to a request that the cache sees now."""
        if _thinks_not(request):
            spec = replace(spec, reasoning="")
        cache = self._caches.setdefault(request.wire, PrefixCache(provider.cache, self._clock))
        per_token = provider.cache.bytes_per_token
        reasoning = len(spec.reasoning.encode("utf-8", "surrogatepass")) // per_token
        conversation.made += 1
        base = f"{conversation.key[:8]}_{conversation.attempt}_{conversation.made}"
        usage = Usage(
            dialect=provider.cache.dialect,
            reading=cache.read(request),
            output=max(1, tokens_of(output_bytes(spec), per_token)),
            reasoning=reasoning,
            is_marked=provider.cache.has_implicit_mark,
            override={} if "no_usage" in spec.quirks else spec.usage,
            is_null="null_usage" in spec.quirks,
        )
        return Answer(
            spec=spec,
            ids=_ids(spec, f"{_PREFIXES[request.wire]}_{base}"),
            model=str(request.data.get("model", "")),
            created=base,
            usage=usage,
            wire=request.wire,
            is_encrypted="reasoning.encrypted_content" in (request.data.get("include") or ()),
            tells_progress=request.data.get("return_progress") is True,
        )

    def count(self, answer: Answer) -> None:
        """Enter a whole answer."""
        usage = answer.usage
        is_told = usage.is_sent and not (usage.is_null and answer.wire != "messages")
        for books in (self.books, self.reported) if is_told else (self.books,):
            books.add(usage.reading, output=usage.output, reasoning=usage.reasoning)

    def keep_output(self, request: Received, spec: ReplySpec) -> None:
        """The cache sees what the model wrote."""
        self._caches[request.wire].add_output(request, spec)


def _thinks_not(request: Received) -> bool:
    thinking = request.data.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "disabled"


def _ids(spec: ReplySpec, base: str) -> tuple[str, ...]:
    if "duplicate_ids" in spec.quirks:
        return (_DUPLICATE,) * len(spec.calls)
    if "empty_ids" in spec.quirks:
        return ("",) * len(spec.calls)
    return tuple(f"{base}_{n}" if call.id is None else call.id for n, call in enumerate(spec.calls, 1))
