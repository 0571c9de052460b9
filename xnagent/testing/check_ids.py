"""What OpenAI refuses about ids of calls."""

from __future__ import annotations

from collections.abc import Iterator

from xnagent.testing.refusal import Refusal


def openai_id(where: str, call_id: object, *, most_letters: int) -> Iterator[Refusal]:
    """Missing, empty or too long."""
    if not isinstance(call_id, str):
        yield Refusal(message=f"Missing required parameter: '{where}'.", code="missing_required_parameter", param=where)
    elif not call_id:
        yield Refusal(
            message=f"Invalid '{where}': empty string. "
            "Expected a string with minimum length 1, but got an empty string instead.",
            code="empty_string",
            param=where,
        )
    elif len(call_id) > most_letters:
        yield Refusal(
            message=f"Invalid '{where}': string too long. Expected a string with maximum length {most_letters}, "
            f"but got a string with length {len(call_id)} instead.",
            code="string_above_max_length",
            param=where,
        )
