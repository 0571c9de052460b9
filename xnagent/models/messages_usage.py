"""The usage numbers of the Messages wire: three disjoint inputs, and counts that grow while the answer does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from xnagent.core.tokens import Usage
from xnagent.models.chat_usage import token_count

_SHORT: Final = "ephemeral_5m_input_tokens"
_LONG: Final = "ephemeral_1h_input_tokens"
_INPUTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", _SHORT, _LONG)


class UsageMeter:
    """Takes the usage objects of one answer in order; later numbers replace earlier ones, null replaces none (B068)."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def take(self, usage: object) -> None:
        """Of `message_start`, `message_delta`, or a whole message."""
        if not isinstance(usage, dict):
            return
        self._take(usage, *_INPUTS, "output_tokens")
        self._take(_part(usage, "output_tokens_details"), "thinking_tokens")
        split = _part(usage, "cache_creation")
        self._take(split, _SHORT, _LONG)
        written = [count for count in map(token_count, split.values()) if count is not None]
        if written and "cache_creation_input_tokens" not in self._numbers:
            self._numbers["cache_creation_input_tokens"] = sum(written)

    def _take(self, usage: Mapping[str, Any], *names: str) -> None:
        for name in names:
            count = token_count(usage.get(name))
            # Input does not shrink: some gateways repeat its fields as 0 at the end.
            if count is not None and not (count == 0 and name in _INPUTS and self._numbers.get(name)):
                self._numbers[name] = count

    def read(self) -> tuple[Usage, str]:
        """The numbers, and what was odd about them; marked as estimated if there is no input or no output count."""
        get = self._numbers.get
        output, note = self._output()
        cached, written = get("cache_read_input_tokens"), get("cache_creation_input_tokens")
        total = (get("input_tokens") or 0) + (cached or 0) + (written or 0)
        if "input_tokens" not in self._numbers or not total:
            note = "the provider's usage has no input tokens" if self._numbers else "the provider sent no usage"
            return Usage(output_tokens=output, is_estimated=True), note
        usage = Usage(
            input_tokens=total,
            cached_tokens=cached,
            cache_write_tokens=written,
            cache_write_short_tokens=get(_SHORT),
            cache_write_long_tokens=get(_LONG),
            output_tokens=output,
            reasoning_tokens=get("thinking_tokens"),
            is_estimated=output is None,
        )
        return usage, note

    def _output(self) -> tuple[int | None, str]:
        output, thinking = self._numbers.get("output_tokens"), self._numbers.get("thinking_tokens") or 0
        if output is None:
            return None, "no output tokens"
        if thinking > output:
            return output + thinking, f"reasoning ({thinking}) exceeds the output ({output}); added"
        return output, ""


def _part(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = usage.get(name)
    return part if isinstance(part, dict) else {}
