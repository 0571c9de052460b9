"""The cache of each provider against examples worked out by hand."""

import json
from dataclasses import replace

import pytest

from xnagent.testing.cache import CacheReading, PrefixCache
from xnagent.testing.prompt import tokens_of
from xnagent.testing.providers import PROVIDERS
from xnagent.testing.received import Received
from xnagent.testing.script import ReplySpec, ScriptedCall

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def received(wire: str, body: dict) -> Received:
    return Received(json.dumps(body).encode(), wire)


def cache_of(name: str) -> tuple[PrefixCache, Seconds]:
    clock = Seconds()
    return PrefixCache(PROVIDERS[name].cache, clock), clock


def chat(*texts: str, **more: object) -> Received:
    return received("chat", {"model": "m", **more, "messages": [{"role": "user", "content": text} for text in texts]})


A, B, C, D = ("a" * 4096, "b" * 4096, "c" * 4096, "d" * 4096)
OVERHEAD = len('{"role":"user","content":""}')
BLOCK = 4096 + OVERHEAD
"""Bytes of one message; a token is four."""


def test_M34_deepseek_the_third_request_hits_what_two_had_in_common():
    cache, _ = cache_of("deepseek")
    assert cache.take(chat(A, B)) == (2 * BLOCK // 4, 0)
    assert cache.take(chat(A, C))[1] == 0
    assert cache.take(chat(A, D))[1] == (BLOCK + OVERHEAD - 2) // 256 * 64 == 1024
    assert cache.take(chat(A, B, "x"))[1] == 2 * BLOCK // 256 * 64 == 2048


def test_M34_deepseek_a_unit_ends_where_an_answer_ends():
    cache, _ = cache_of("deepseek")
    spec = ReplySpec(
        reasoning="r" * 2000, text="t" * 2000, calls=(ScriptedCall(name="bash", arguments={"a": 1}, id="c"),)
    )
    first = chat(A)
    cache.read(first)
    function = {"name": "bash", "arguments": '{"a":1}'}
    said = {"role": "assistant", "content": spec.text, "reasoning_content": spec.reasoning}
    said["tool_calls"] = [{"id": "mine", "type": "function", "function": function}]
    turns = [{"role": "user", "content": A}, said, {"role": "tool", "tool_call_id": "mine", "content": B}]
    before = received("chat", {"model": "m", "messages": turns})
    without, _ = cache_of("deepseek")
    without.read(first)
    assert without.take(before)[1] == BLOCK // 256 * 64
    cache.add_output(first, spec)
    end = BLOCK + len(json.dumps(said, separators=(",", ":")))
    assert cache.take(before)[1] == end // 256 * 64 > 2000
    changed = {**said, "reasoning_content": "other"}
    other, _ = cache_of("deepseek")
    other.read(first)
    other.add_output(first, spec)
    assert other.take(received("chat", {"model": "m", "messages": [turns[0], changed]}))[1] == BLOCK // 256 * 64


def test_M34_deepseek_long_texts_have_units_of_their_own():
    cache, _ = cache_of("deepseek")
    long = "x" * 4 * 20_000
    assert cache.take(chat(long + "1"))[1] == 0
    assert cache.take(chat(long + "2"))[1] == 16_384


def test_openai_needs_1024_tokens_and_counts_by_128_for_ten_minutes():
    cache, clock = cache_of("openai")
    small = "s" * (1023 * 4 - OVERHEAD)
    assert cache.take(chat(small)) == (1023, 0)
    assert cache.take(chat(small)) == (1023, 0)
    assert cache.take(chat(A, "x"))[1] == 0
    assert cache.take(chat(A, "x", "y"))[1] == (BLOCK + OVERHEAD + 1) // 512 * 128 == 1024
    assert cache.take(chat("a" * 4096 + "b" * 600))[1] == 1024
    clock.now = 599
    assert cache.take(chat(A, "z"))[1] == 1024
    clock.now = 1190
    assert cache.take(chat(A, "z"))[1] == 1024
    clock.now = 1800
    assert cache.take(chat(A, "z"))[1] == 0


def test_openai_keys_do_not_share():
    cache, _ = cache_of("openai")
    cache.read(chat(A, prompt_cache_key="k1"))
    assert cache.take(chat(A, B, prompt_cache_key="k2"))[1] == 0
    assert cache.take(chat(A, B, prompt_cache_key="k1"))[1] == 1024


def parts(*texts: str, marks: tuple[int, ...] = (), **more: object) -> Received:
    """One message; some of its parts have a mark."""
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    content = [{"type": "text", "text": text, **(mark if n in marks else {})} for n, text in enumerate(texts)]
    return received("chat", {"model": "m", **more, "messages": [{"role": "user", "content": content}]})


HEAD, PART = len('{"role":"user"}'), 4096 + len('{"type":"text","text":""}')


def test_openai_5_6_hits_end_at_breakpoints_and_are_not_rounded():
    cache, clock = cache_of("openai-5.6")
    total = tokens_of(HEAD + 2 * PART, 4)
    assert cache.read(parts(A, B)) == CacheReading(prompt=total, written_short=total)
    grown = cache.read(parts(A, B, C))
    assert (grown.cached, grown.written) == (total, grown.prompt - total)
    assert cache.read(parts(A, D)).cached == 0
    marked = cache.read(parts(A, C, marks=(0,)))
    assert marked.cached == 0
    assert cache.read(parts(A, "x", marks=(0,))).cached == tokens_of(HEAD + PART, 4)
    clock.now = 1801
    assert cache.read(parts(A, "y", marks=(0,))).cached == 0


def test_openai_5_6_explicit_mode_and_the_longer_lifetime():
    cache, _ = cache_of("openai-5.6")
    none = cache.read(parts(A, B, prompt_cache_options={"mode": "explicit"}))
    assert (none.cached, none.written) == (0, 0)
    long = {"mode": "explicit", "ttl": "12h"}
    assert cache.read(parts(A, B, marks=(0,), prompt_cache_options=long)).written_long == tokens_of(HEAD + PART, 4)


def blocks(*texts: str, marks: dict[int, dict] | None = None, system: str = "", **more: object) -> Received:
    """The Messages wire: one user message, a block for each text."""
    marks = marks or {}
    content = [{"type": "text", "text": text, **marks.get(n, {})} for n, text in enumerate(texts)]
    head = {"system": [{"type": "text", "text": system, **MARK}]} if system else {}
    return received("messages", {"model": "m", **head, **more, "messages": [{"role": "user", "content": content}]})


def size(*texts: str) -> int:
    """Tokens up to the end of the last text: each block with its role, and the settings before the first."""
    around = len('["user",{"type":"text","text":""}]')
    return tokens_of(len("[null,null]") + sum(around + len(text) for text in texts), 4)


def test_anthropic_reads_at_marks_writes_at_marks_and_leaves_the_rest():
    cache, _ = cache_of("anthropic")
    first = cache.read(blocks(A, B, "x", marks={1: MARK}))
    assert first == CacheReading(prompt=size(A, B, "x"), written_short=size(A, B))
    second = cache.read(blocks(A, B, C, "y", marks={2: MARK}))
    assert (second.cached, second.written_short) == (size(A, B), size(A, B, C) - size(A, B))
    assert cache.read(blocks(A, C, marks={1: MARK})).cached == 0
    assert cache.read(blocks(A, B, C)) == CacheReading(prompt=size(A, B, C))


@pytest.mark.parametrize(("added", "is_hit"), [(19, True), (20, False)])
def test_anthropic_a_mark_sees_twenty_blocks_itself_included(added: int, is_hit: bool):
    cache, _ = cache_of("anthropic")
    cache.read(blocks(A, B, marks={1: MARK}))
    later = [A, B, *(f"result {n}" for n in range(added))]
    assert cache.read(blocks(*later, marks={len(later) - 1: MARK})).cached == (size(A, B) if is_hit else 0)


def test_anthropic_a_mark_between_bridges_twenty_five_parallel_results():
    cache, _ = cache_of("anthropic")
    cache.read(blocks(A, B, marks={1: MARK}))
    later = [A, B, *(f"result {n}" for n in range(25))]
    assert cache.read(blocks(*later, marks={15: MARK, 26: MARK})).cached == size(A, B)


def test_anthropic_below_the_minimum_nothing_happens_silently():
    cache, _ = cache_of("anthropic")
    short = "s" * 3000
    for _ in range(2):
        assert cache.read(blocks(short, marks={0: MARK})) == CacheReading(prompt=size(short))


def test_anthropic_five_minutes_from_the_newest_read_or_an_hour():
    cache, clock = cache_of("anthropic")
    cache.read(blocks(A, B, marks={1: MARK}))
    for now, cached in ((299, size(A, B)), (598, size(A, B)), (899, 0)):
        clock.now = now
        assert cache.read(blocks(A, B, marks={1: MARK})).cached == cached
    cache, clock = cache_of("anthropic")
    mixed = cache.read(blocks(A, B, marks={0: HOUR, 1: MARK}))
    assert (mixed.written_long, mixed.written_short) == (size(A), size(A, B) - size(A))
    clock.now = 3599
    late = cache.read(blocks(A, B, marks={0: HOUR, 1: MARK}))
    assert (late.cached, late.written_long, late.written_short) == (size(A), 0, size(A, B) - size(A))


def test_anthropic_tools_drop_all_and_thinking_drops_messages():
    cache, _ = cache_of("anthropic")
    tool = {"name": "bash", "input_schema": {"type": "object"}}
    ask = {"marks": {0: MARK}, "system": A}
    full = cache.read(blocks(B, tools=[tool], **ask))
    assert cache.read(blocks(B, tools=[tool], **ask)).cached == full.prompt
    thinking = cache.read(blocks(B, tools=[tool], thinking={"type": "adaptive"}, **ask))
    assert 0 < thinking.cached < full.prompt
    assert cache.read(blocks(B, tools=[{**tool, "name": "zsh"}], **ask)).cached == 0


def test_anthropic_automatic_mark():
    cache, _ = cache_of("anthropic")
    cache.read(blocks(A, B, **MARK))
    assert cache.read(blocks(A, B, C, **MARK)).cached == size(A, B)


def test_llama_cpp_goes_on_from_the_slot_with_its_answer():
    cache, _ = cache_of("llama.cpp")
    first, spec = chat(A), ReplySpec(text="t" * 400)
    cache.read(first)
    cache.add_output(first, spec)
    assert cache.take(first)[1] == BLOCK // 4 - 1
    cache.add_output(first, spec)
    said = {"role": "assistant", "content": "t" * 400}
    turns = [{"role": "user", "content": A}, said, {"role": "user", "content": B}]
    end = BLOCK + len(json.dumps(said, separators=(",", ":")))
    assert cache.take(received("chat", {"model": "m", "messages": turns}))[1] == end // 4


def test_llama_cpp_fewer_slots_than_agents_thrash_and_pinning_helps():
    texts = [letter * 4096 for letter in "abcde"]
    cache, _ = cache_of("llama.cpp")
    for _ in range(2):
        assert [cache.take(chat(text))[1] > 500 for text in texts] == [False] * 5
    pinned, _ = cache_of("llama.cpp")
    for text in texts[:3]:
        pinned.read(chat(text, id_slot=0))
    assert pinned.take(chat("c" * 4096, id_slot=0))[1] > 1000
    assert pinned.take(chat("c" * 4096, id_slot=1))[1] == 0
    assert pinned.take(chat("c" * 4096, id_slot=99))[1] > 1000


@pytest.mark.parametrize("name", ["openai", "anthropic", "deepseek"])
def test_what_was_just_written_is_seen_after_the_delay(name: str):
    clock = Seconds()
    cache = PrefixCache(replace(PROVIDERS[name].cache, visible_after_seconds=5), clock)
    ask = blocks(A, B, marks={1: MARK})
    cache.read(ask)
    assert cache.read(ask).cached == 0
    clock.now = 5
    assert cache.read(ask).cached > 1000
