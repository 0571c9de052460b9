"""B067 to B070: usage in every shape, said on each wire as its maker says it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.speaking import WIRES, block_events, message_events, terminal
from xnagent.core.pricing import Price, cost_usd
from xnagent.core.tokens import Usage
from xnagent.models.decoding import fold
from xnagent.models.wires import BY_NAME
from xnagent.ports import Reply

PRICE = Price(input_usd=3.0, output_usd=15.0, cached_usd=0.3, cache_write_usd=3.75)
TEXT = block_events(0, '{"type":"text","text":""}', {"type": "text_delta", "text": "Hey"})


def usage_of(wire: str, usage: object) -> Reply:
    """An answer with a usage object, where that wire has it."""
    if wire == "chat":
        choice = {"index": 0, "delta": {"content": "Hey"}, "finish_reason": "stop"}
        stream = [json.dumps({"choices": [choice]}), json.dumps({"choices": [], "usage": usage}), "[DONE]"]
    elif wire == "responses":
        stream = [terminal("completed", '[{"type":"message","content":[{"text":"Hey"}]}]', usage=usage)]
    else:
        start = {"type": "message_start", "message": {"type": "message", "content": [], "usage": usage}}
        end = message_events(TEXT, stop="end_turn", last=usage)[1:]
        stream = [json.dumps(start), *end]
    return fold(BY_NAME[wire].new_decoder(), stream)


def said(wire: str, *, fresh: int, cached: int, written: int, output: int, reasoning: int) -> dict[str, Any]:
    """The same numbers in the words of each wire."""
    if wire == "messages":
        return {
            "input_tokens": fresh,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
            "output_tokens": output,
            "output_tokens_details": {"thinking_tokens": reasoning},
        }
    prompt, completion = ("prompt", "completion") if wire == "chat" else ("input", "output")
    total = fresh + cached + written
    return {
        f"{prompt}_tokens": total,
        f"{prompt}_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        f"{completion}_tokens": output,
        f"{completion}_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total + output,
    }


COUNTS = st.integers(0, 10**6)


@given(fresh=st.integers(1, 10**6), cached=COUNTS, written=COUNTS, output=COUNTS, share=st.floats(0, 1))
def test_B067_B070_the_same_numbers_and_the_same_price_on_every_wire(
    fresh: int, cached: int, written: int, output: int, share: float
):
    numbers = {"fresh": fresh, "cached": cached, "written": written, "output": output}
    reasoning = int(output * share)
    expected = Usage(
        input_tokens=fresh + cached + written,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
    replies = [usage_of(wire, said(wire, **numbers, reasoning=reasoning)) for wire in WIRES]
    assert [reply.usage for reply in replies] == [expected] * 3
    assert not any(reply.note for reply in replies)
    priced = cost_usd(expected, PRICE)
    assert priced == pytest.approx((fresh * 3 + cached * 0.3 + written * 3.75 + output * 15) / 1e6)


def test_B067_the_examples():
    first = usage_of("messages", said("messages", fresh=7, cached=9000, written=1000, output=200, reasoning=0)).usage
    assert (first.input_tokens, cost_usd(first, PRICE)) == (10_007, pytest.approx(0.009471))
    detail = {"prompt_tokens": 20_000, "completion_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 16_000}}
    second = usage_of("chat", detail).usage
    assert (second.input_tokens, second.cached_tokens) == (20_000, 16_000)
    assert cost_usd(second, Price(input_usd=0.5, cached_usd=0.05, output_usd=3.0)) == pytest.approx(0.0058)


def test_B068_a_later_event_replaces_and_null_takes_nothing_back():
    first = {"input_tokens": 25, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 0, "output_tokens": 1}
    later = [{"output_tokens": 8}, {"input_tokens": None, "output_tokens": 15, "cache_read_input_tokens": 100}]
    events = message_events(TEXT, stop="end_turn", usage=first, last=later[0])
    events[-1:-1] = [json.dumps({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": later[1]})]
    usage = fold(BY_NAME["messages"].new_decoder(), events).usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (125, 100, 15)


def test_B068_usage_on_every_chunk_is_cumulative():
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
    grown = [{"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n} for n in (1, 5, 9)]
    chunks = [json.dumps({"choices": [choice], "usage": usage}) for usage in grown]
    end = json.dumps({"choices": [{**choice, "finish_reason": "stop"}], "usage": None})
    assert fold(BY_NAME["chat"].new_decoder(), [*chunks, end, "[DONE]"]).usage == Usage(
        input_tokens=10, output_tokens=9
    )


NO_INPUT = [None, {}, [], "x", 7, {"total_tokens": 900}, {"prompt_tokens": 0, "input_tokens": 0, "total_tokens": 12}]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("usage", NO_INPUT)
def test_B069_what_tells_no_input_is_unknown_and_never_0(wire: str, usage: object):
    read = usage_of(wire, usage).usage
    assert (read.input_tokens, read.is_estimated) == (None, True)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**40),
    st.floats(),
    st.sampled_from(["12", "", "many", [], {}, [3], {"cached_tokens": 3}]),
)
NAMES = st.sampled_from(
    sorted(
        {
            *said("chat", fresh=1, cached=1, written=1, output=1, reasoning=1),
            *said("responses", fresh=1, cached=1, written=1, output=1, reasoning=1),
            *said("messages", fresh=1, cached=1, written=1, output=1, reasoning=1),
            "prompt_cache_hit_tokens",
            "prompt_cache_miss_tokens",
            "cached_tokens",
            "reasoning_tokens",
            "cache_creation",
            "thinking_tokens",
            "cache_write_tokens_details",
        }
    )
)
DETAILS = st.dictionaries(NAMES, ODD, max_size=4)


@given(wire=st.sampled_from(WIRES), usage=st.dictionaries(NAMES, ODD | DETAILS, max_size=8))
def test_B067_B069_B070_odd_numbers_give_a_usage_that_can_be_counted(wire: str, usage: dict[str, Any]):
    read = usage_of(wire, usage).usage
    parts = (read.input_tokens, read.cached_tokens, read.cache_write_tokens, read.output_tokens, read.reasoning_tokens)
    assert all(part is None or (isinstance(part, int) and 0 <= part < 1 << 43) for part in parts)
    assert read.is_estimated or read.input_tokens
    if read.input_tokens is not None and not read.is_estimated:
        assert (read.cached_tokens or 0) <= read.input_tokens
        assert (read.reasoning_tokens or 0) <= (read.output_tokens or 0)
    cost = cost_usd(read, PRICE)
    assert cost is None or cost >= 0
