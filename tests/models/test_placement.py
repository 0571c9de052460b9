"""Cache breakpoints: never more than four, and the entry of the request before is always found."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.speaking import call, growths, manifest, marker_count, result, said, sealed, user, without_markers
from xnagent.core.items import Item
from xnagent.core.prefix import find_break
from xnagent.core.spine import Spine
from xnagent.core.text import canonical
from xnagent.errors import UsageError
from xnagent.models.encoder import Encoder
from xnagent.models.messages import MessagesRenderer, encode
from xnagent.models.placement import LOOK_BACK_BLOCKS, MOST_BREAKPOINTS, Block, Markers, place, with_marks
from xnagent.testing.check_marks import check_marks

CHOSEN = manifest("messages")


@dataclass
class Cache:
    """The rule of the provider: written at breakpoints, found at one or at most 19 blocks before it."""

    entries: set[tuple[str, ...]] = field(default_factory=set)

    def ask(self, body: bytes) -> tuple[int, int]:
        """Blocks served from the cache, and blocks in all."""
        request = json.loads(body)
        blocks = [*request["tools"], *request["system"]]
        blocks += [{"role": m["role"], **block} for m in request["messages"] for block in m["content"]]
        marked = [n + 1 for n, block in enumerate(blocks) if block.pop("cache_control", None)]
        assert len(marked) <= MOST_BREAKPOINTS
        prefix = tuple(json.dumps(block) for block in blocks)
        found = (
            size
            for end in marked
            for size in range(end, max(0, end - LOOK_BACK_BLOCKS), -1)
            if prefix[:size] in self.entries
        )
        served = max(found, default=0)
        self.entries.update(prefix[:end] for end in marked)
        return served, len(blocks)


def rounds(*widths: int, thinks: bool = False) -> list[list[Item]]:
    """Each request of a session whose steps make so many parallel calls."""
    items: list[Item] = [user("Objective."), user("<state>")]
    requests = [list(items)]
    for step, width in enumerate(widths):
        ids = [f"s{step}_{n}" for n in range(width)]
        items += [*([sealed("messages")] if thinks else []), said("Now.")]
        items += [*map(call, ids), *map(result, ids), *([] if ids else [user("<delta>")])]
        requests.append(list(items))
    return requests


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("widths", [(1, 1, 1), (25,), (1, 25, 1), (25, 25, 40), (0, 0, 3), (9, 10, 11, 19, 20, 21)])
def test_the_look_back_never_misses_the_request_before(widths: tuple[int, ...], thinks: bool):
    cache, before = Cache(), 0
    for items in rounds(*widths, thinks=thinks):
        served, size = cache.ask(encode(CHOSEN, items))
        assert served == before
        before = size


def test_a_rebase_finds_system_tools_and_objective():
    cache = Cache()
    for items in rounds(25, 3):
        cache.ask(encode(CHOSEN, items))
    served, _ = cache.ask(encode(CHOSEN, [user("Objective."), user("<checkpoint>")]))
    assert served == len(json.loads(CHOSEN.tools)) + 2


def test_another_worker_finds_system_and_tools():
    cache = Cache()
    cache.ask(encode(CHOSEN, [user("Brief one.")]))
    assert cache.ask(encode(CHOSEN, [user("Brief two.")]))[0] == len(json.loads(CHOSEN.tools)) + 1


@given(history=growths())
def test_B010_never_more_than_four_markers_and_each_on_a_block_that_may_have_one(history: list[Spine]):
    cache = Cache()
    for grown in history:
        body = encode(CHOSEN, grown.items)
        assert 1 <= marker_count(body) <= MOST_BREAKPOINTS
        cache.ask(body)
        for block in (block for message in json.loads(body)["messages"] for block in message["content"]):
            is_empty = block["type"] == "tool_result" and not block.get("content", "").strip()
            if block["type"] in {"thinking", "redacted_thinking"} or is_empty:
                assert "cache_control" not in block
            assert block["type"] != "text" or block["text"].strip()


def test_B010_three_parallel_results_and_all_rules_at_once():
    ids = ["a", "b", "c"]
    items = [user("Go."), *map(call, ids), *map(result, ids), user("On."), said("x"), user("Last.")]
    body = encode(CHOSEN, items)
    blocks = [block for message in json.loads(body)["messages"] for block in message["content"]]
    marked = [block.get("text") for block in blocks if "cache_control" in block]
    assert marked == ["Go.", "On.", "Last."]
    assert marker_count(body) == 4


def test_B011_the_marker_lands_on_the_last_block_that_is_not_empty():
    items = [user("Go."), call("t1"), result("t1"), user("")]
    last = json.loads(encode(CHOSEN, items))["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["tool_result"]
    assert "cache_control" in last[0]
    none = json.loads(encode(CHOSEN, [user("Go."), call("t1"), result("t1", " \n")]))["messages"]
    assert none[2]["content"] == [{"type": "tool_result", "tool_use_id": "t1"}]
    assert "cache_control" in none[1]["content"][0]


def test_B011_never_on_thinking():
    items = [user("Go."), sealed("messages"), said("x"), user(" ")]
    message = json.loads(encode(CHOSEN, items))["messages"]
    assert [list(block) for block in message[1]["content"]] == [["type", "thinking", "signature"], ["type", "text"]]
    assert message[2]["content"][0]["text"] == "(empty)"


@pytest.mark.parametrize("lifetime", ["1h", "5m", None])
def test_the_lifetime_is_an_option(lifetime: str | None):
    chosen = manifest("messages", options=canonical({"cache_ttl": lifetime}))
    body = encode(chosen, [user("Go.")])
    control = {"type": "ephemeral", "ttl": "1h"} if lifetime == "1h" else {"type": "ephemeral"}
    request = json.loads(body)
    assert request["system"][-1]["cache_control"] == control
    assert request["messages"][-1]["content"][-1]["cache_control"] == control
    assert "cache_ttl" not in request


def test_caches_can_be_left_to_the_endpoint():
    chosen = manifest("messages", options=canonical({"cache_ttl": "none"}))
    assert marker_count(encode(chosen, [user("Go.")])) == 0


@pytest.mark.parametrize("lifetime", ["2h", 5, True, ["1h"]])
def test_an_unknown_lifetime_is_refused(lifetime: object):
    with pytest.raises(UsageError, match=r"OPTION_INVALID.*5m, 1h, none"):
        encode(manifest("messages", options=canonical({"cache_ttl": lifetime})), [])


def test_without_a_system_text_the_last_tool_has_the_marker():
    request = json.loads(encode(manifest("messages", system=" "), [user("Go.")]))
    assert "system" not in request
    assert ["cache_control" in tool for tool in request["tools"]] == [False, True]


@st.composite
def block_lists(draw: st.DrawFn) -> list[Block]:
    flags = draw(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.booleans()), max_size=30))
    return [Block(speaker=speaker, mark_at=n if can else None) for n, (speaker, can) in enumerate(flags)]


@given(blocks=block_lists())
def test_places_are_few_ascending_and_markable(blocks: Sequence[Block]):
    places = place(blocks)
    assert len(places) < MOST_BREAKPOINTS
    assert list(places) == sorted(set(places))
    assert {*places} <= {block.mark_at for block in blocks}


def test_marks_are_put_in_at_their_places():
    markers = Markers(short=b"-", long=b"=")
    assert with_marks(b"abcd", (0, 2, 4), markers=markers) == b"-ab-cd-"
    assert with_marks(b"abcd", (0, 2, 4), markers=markers, long_until=3) == b"=ab=cd-"
    assert with_marks(b"abcd", (), markers=markers) == b"abcd"


def lifetimes(body: bytes) -> list[str]:
    """Of each marker, in the order of the request."""
    return [found.decode() or "5m" for found in re.findall(rb'"type":"ephemeral"(?:,"ttl":")?(1h)?"?\}', body)]


ROUNDS = [user("Go."), user("<state>"), said("a"), user("On."), said("b"), user("Last.")]


@pytest.mark.parametrize(
    ("long_items", "expected"),
    [
        (0, ["5m", "5m", "5m", "5m"]),
        (1, ["1h", "1h", "5m", "5m"]),
        (3, ["1h", "1h", "5m", "5m"]),
        (4, ["1h", "1h", "1h", "5m"]),
        (6, ["1h", "1h", "1h", "1h"]),
        (99, ["1h", "1h", "1h", "1h"]),
    ],
)
def test_markers_ask_for_an_hour_up_to_where_the_log_says(long_items: int, expected: list[str]):
    body = encode(CHOSEN, ROUNDS, long_items=long_items)
    assert lifetimes(body) == expected
    assert without_markers(body) == without_markers(encode(CHOSEN, ROUNDS))


@given(history=growths(), choices=st.lists(st.integers(0, 40), min_size=20, max_size=20))
def test_I1_a_lifetime_changes_nothing_but_markers_and_an_hour_never_stands_behind_five_minutes(
    history: list[Spine], choices: list[int]
):
    encoder, before = Encoder(MessagesRenderer()), None
    for grown, long_items in zip(history, choices, strict=False):
        body = encoder.encode(CHOSEN, replace(grown, long_items=long_items))
        assert body.content == encode(CHOSEN, grown.items, long_items=long_items)
        assert body.sha256 == sha256(body.content).hexdigest()
        assert without_markers(body.content) == without_markers(encode(CHOSEN, grown.items))
        assert list(check_marks(json.loads(body.content))) == []
        assert lifetimes(body.content) == sorted(lifetimes(body.content))
        if before is not None and before[0] == grown.lineage:
            assert find_break(before[1], body.segments) is None
        before = (grown.lineage, body.segments)
