"""The official SDKs' types as oracles: every request that is built, and every stream that tests use, must fit them."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic import TypeAdapter

from tests.models.speaking import (
    WIRES,
    call,
    growths,
    manifest,
    said,
    sealed,
    stream_of,
    terminal,
)
from xnagent.core.spine import Spine
from xnagent.core.text import canonical
from xnagent.models.wires import encode

openai_chat = pytest.importorskip("openai.types.chat", reason="a development dependency; it is not installed")
openai_responses = pytest.importorskip("openai.types.responses", reason="a development dependency; it is not installed")
anthropic = pytest.importorskip("anthropic.types", reason="a development dependency; it is not installed")
chat_params = pytest.importorskip("openai.types.chat.completion_create_params")
responses_params = pytest.importorskip("openai.types.responses.response_create_params")
anthropic_params = pytest.importorskip("anthropic.types.message_create_params")

OPTIONS = {
    "chat": {"reasoning_effort": "low", "max_tokens_name": "max_completion_tokens", "cache_breakpoint": True},
    "responses": {"reasoning": {"effort": "low"}, "cache_breakpoint": True, "prompt_cache_options": {"ttl": "12h"}},
    "messages": {"thinking": {"type": "adaptive"}, "cache_ttl": "1h", "output_config": {"effort": "low"}},
}
NOT_OPENAIS: set[str] = {"reasoning_content"}
"""What DeepSeek's dialect adds."""


@cache
def request_type(wire: str) -> TypeAdapter[Any]:
    return TypeAdapter(
        {
            "chat": chat_params.CompletionCreateParamsStreaming,
            "responses": responses_params.ResponseCreateParamsStreaming,
            "messages": anthropic_params.MessageCreateParamsStreaming,
        }[wire]
    )


@cache
def event_type(wire: str) -> TypeAdapter[Any]:
    return TypeAdapter(
        {
            "chat": openai_chat.ChatCompletionChunk,
            "responses": openai_responses.ResponseStreamEvent,
            "messages": anthropic.RawMessageStreamEvent,
        }[wire]
    )


def consumed(value: Any) -> Any:
    """The value with all its iterables read: pydantic checks them only then."""
    if isinstance(value, dict):
        return {key: consumed(part) for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [consumed(part) for part in value]
    return value


def check(wire: str, body: bytes) -> None:
    """A field that the type does not know is dropped, so the two would differ."""
    sent = json.loads(body)
    known = consumed(request_type(wire).validate_python(sent))
    if wire == "chat":
        for message in sent["messages"]:
            for name in NOT_OPENAIS:
                message.pop(name, None)
    assert known == sent


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=15)  # the SDKs' unions are slow to check
@given(history=growths())
def test_every_request_fits_the_official_type(wire: str, history: list[Spine]):
    check(wire, encode(manifest(wire), history[-1].items))


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=15)
@given(history=growths())
def test_requests_with_options_fit_the_official_type(wire: str, history: list[Spine]):
    chosen = manifest(wire, options=canonical(OPTIONS[wire]))
    check(wire, encode(chosen, history[-1].items))


@pytest.mark.parametrize("wire", WIRES)
def test_the_check_sees_a_field_that_is_not_known(wire: str):
    body = encode(manifest(wire, options=canonical({"no_such_field": 1})), [])
    with pytest.raises(AssertionError):
        check(wire, body)


@pytest.mark.parametrize("wire", WIRES)
def test_streams_of_tests_fit_the_official_type(wire: str):
    items = [sealed(wire), said("I look."), call("c1", '{"a": 1}'), call("c2")]
    for data in stream_of(wire, items):
        if data == "[DONE]":
            continue
        event = event_type(wire).validate_python(json.loads(data))
        assert event.to_dict() if hasattr(event, "to_dict") else event


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_terminal_events_of_responses_fit_the_official_type(status: str):
    event = json.loads(terminal(status)) | {"sequence_number": 1}
    assert event_type("responses").validate_python(event).type == f"response.{status}"
