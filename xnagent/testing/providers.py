"""The providers that a scripted server can be: their cache, their usage fields, what they refuse and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from xnagent.testing.cache import CacheRules
from xnagent.testing.reading import Wire

Family = Literal["generic", "openai", "deepseek", "anthropic", "llama.cpp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider."""

    family: Family
    """Whose checks and words apply on the chat wire; the other two wires have those of their makers."""
    cache: CacheRules
    needs_reasoning: bool = False
    """Whether the reasoning of turns must come back where the wire's own rules do not already say so."""
    alternates: bool = False
    """Whether two neighbouring messages of one role are refused, as strict chat templates and old gateways do."""
    window_tokens: int = 0
    """Longer prompts are refused; 0: none is."""


_OPENAI_CACHE: Final = CacheRules(block_tokens=128, minimum_tokens=1024, lifetime_seconds=600.0)
_MARKED_CACHE: Final = CacheRules(minimum_tokens=1024, units="breakpoints", look_back_blocks=0, has_implicit_mark=True)
_ANTHROPIC_CACHE: Final = CacheRules(minimum_tokens=1024, units="breakpoints", dialect="anthropic")
_DEEPSEEK_CACHE: Final = CacheRules(
    units="requests", order="system-tools-messages", dialect="deepseek", interval_tokens=8192
)
"""The interval is not published: this one is assumed."""
_LLAMA_CACHE: Final = CacheRules(block_tokens=1, units="slots", order="system-tools-messages", dialect="llama.cpp")

PROVIDERS: Final[Mapping[str, Provider]] = {
    "generic": Provider(family="generic", cache=CacheRules()),
    "openai": Provider(family="openai", cache=_OPENAI_CACHE),
    "openai-5.6": Provider(family="openai", cache=_MARKED_CACHE),
    "deepseek": Provider(family="deepseek", cache=_DEEPSEEK_CACHE, needs_reasoning=True),
    "anthropic": Provider(family="anthropic", cache=_ANTHROPIC_CACHE),
    "anthropic-strict": Provider(family="anthropic", cache=_ANTHROPIC_CACHE, alternates=True),
    "llama.cpp": Provider(family="llama.cpp", cache=_LLAMA_CACHE),
}
"""By the name for `--wire-dialect`; `anthropic` merges neighbours of one role, `anthropic-strict` refuses them."""

_OF_WIRE: Final[Mapping[Wire, str]] = {"chat": "generic", "responses": "openai", "messages": "anthropic"}


def choose_provider(wire: Wire, given: Provider | str | None, *, cache: CacheRules | None) -> Provider:
    """The provider given, else the one whose wire it is; with other cache rules if given. KeyError: unknown."""
    provider = given if isinstance(given, Provider) else PROVIDERS[given or _OF_WIRE[wire]]
    return provider if cache is None else replace(provider, cache=cache)
