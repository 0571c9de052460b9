"""Usage in the fields of each provider and wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xnagent.core.text import Json
from xnagent.testing.cache import CacheReading, Dialect

Fields = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an answer used, as it is to be reported."""

    dialect: Dialect
    reading: CacheReading
    output: int
    """Tokens that the model wrote, with its reasoning."""
    reasoning: int
    is_marked: bool = False
    """Whether writes are reported on the OpenAI wires (since 5.6)."""
    override: Mapping[str, Json] | None = None
    """Reported in place of all that; empty: nothing is."""
    is_null: bool = False
    """The field is there, and null; on the Messages wire only what the last event repeats."""

    @property
    def is_sent(self) -> bool:
        """Whether anything is reported."""
        return self.dialect != "none" if self.override is None else bool(self.override)

    def chat(self) -> dict[str, Json]:
        """The fields at the top of the last chunk: `usage`, and (llama.cpp) `timings` beside it."""
        if (given := self._given()) is not None:
            return given
        reading = self.reading
        totals: Fields = {
            "prompt_tokens": reading.prompt,
            "completion_tokens": self.output,
            "total_tokens": reading.prompt + self.output,
        }
        details: Fields = {"completion_tokens_details": {"reasoning_tokens": self.reasoning}}
        match self.dialect:
            case "llama.cpp":
                timings: Json = {
                    "cache_n": reading.cached,
                    "prompt_n": reading.prompt - reading.cached,
                    "predicted_n": self.output,
                }
                return {"usage": {**totals, "prompt_tokens_details": self._read()}, "timings": timings}
            case "deepseek":
                hit: Fields = {
                    "prompt_cache_hit_tokens": reading.cached,
                    "prompt_cache_miss_tokens": reading.prompt - reading.cached,
                }
                return {"usage": {**totals, **hit, **details}}
            case _:
                return {"usage": {**totals, "prompt_tokens_details": self._read(), **details}}

    def responses(self) -> dict[str, Json]:
        """The field of the closing event."""
        if (given := self._given()) is not None:
            return given
        reading = self.reading
        fields: Fields = {
            "input_tokens": reading.prompt,
            "input_tokens_details": {"cache_write_tokens": 0, **self._read(), **self._lifetimes()},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": reading.prompt + self.output,
        }
        return {"usage": fields}

    def messages(self, *, is_start: bool) -> dict[str, Json]:
        """The field of `message_start`, or of the last `message_delta` and of a whole answer."""
        if not self.is_sent:
            return {}
        if self.override is not None:
            return {"usage": {**self.override, **({"output_tokens": 1} if is_start else {})}}
        reading = self.reading
        fields: Fields = {
            "input_tokens": reading.prompt - reading.cached - reading.written,
            "cache_creation_input_tokens": reading.written,
            "cache_read_input_tokens": reading.cached,
            "output_tokens": 1 if is_start else self.output,
        }
        if is_start:
            split: Json = {
                "ephemeral_5m_input_tokens": reading.written_short,
                "ephemeral_1h_input_tokens": reading.written_long,
            }
            return {"usage": {**fields, "cache_creation": split, "service_tier": "standard"}}
        if self.is_null:
            fields |= dict.fromkeys(("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))
        return {"usage": {**fields, "output_tokens_details": {"thinking_tokens": self.reasoning}}}

    def _given(self) -> dict[str, Json] | None:
        if not self.is_sent:
            return {}
        if self.override is not None:
            return {"usage": dict(self.override)}
        return {"usage": None} if self.is_null else None

    def _read(self) -> Fields:
        written: Fields = {"cache_write_tokens": self.reading.written} if self.is_marked else {}
        return {"cached_tokens": self.reading.cached, **written}

    def _lifetimes(self) -> Fields:
        if not self.is_marked:
            return {}
        short, long = self.reading.written_short, self.reading.written_long
        return {"cache_write_tokens_details": {"ttl_30m_tokens": short, "ttl_12h_tokens": long}}
