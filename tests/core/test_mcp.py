"""Tools of MCP servers as models see them: names, schemas that every provider takes, and when they are deferred."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnagent.core.mcp import META_TOKENS, Listing, Offer, definition_tokens, difference, frozen
from xnagent.core.mcp_schema import MOST_CHARACTERS, sound_schema
from xnagent.ports import ToolSpec
from xnagent.tools.schema import ArgumentProblem, parse_arguments, shape

WINDOW = 64_000
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
KEYWORDS = ["type", "properties", "required", "items", "enum", "anyOf", "$ref", "$defs", "description", "default"]
KEYWORDS += ["additionalProperties", "title", "x-secret", "object", "string", "a"]
KEYS = st.sampled_from(KEYWORDS)
ANY_JSON = st.recursive(
    LEAVES | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def offer(tool: str, schema=None, description: str = "Does it.") -> Offer:
    return Offer(tool=tool, description=description, parameters=schema or {"type": "object", "properties": {}})


def freeze(*offers: Offer, window: int = WINDOW, wanted=None, gated=()):
    listing = Listing(server="s", protocol="2025-11-25", offers=offers)
    return frozen([listing], wanted={"s": wanted} if wanted is not None else {}, window_tokens=window, gated=gated)


def large(count: int, size: int = 1_000) -> list[Offer]:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}
    return [offer(f"t{n}", schema, "word " * (size // 5)) for n in range(count)]


@given(st.lists(st.text(min_size=1, max_size=90), min_size=1, max_size=12, unique=True), st.randoms())
def test_names_are_unique_short_plain_and_the_same_in_any_order(tools: list[str], shuffle: random.Random):
    made = freeze(*map(offer, tools))
    names = [tool.name for tool in made.listed]
    assert len(set(names)) == len(names) == len(tools)
    assert all(re.fullmatch(r"mcp__s__[A-Za-z0-9_-]*", name) and len(name) <= 64 for name in names)
    shuffle.shuffle(tools)
    assert freeze(*map(offer, tools)) == made


def test_a_plain_name_stays_whoever_is_like_it():
    made = {tool.tool: tool.name for tool in freeze(*map(offer, ["a b", "a_b", "a.b", "a" * 70])).listed}
    assert made["a_b"] == "mcp__s__a_b"
    assert made["a b"].startswith("mcp__s__a_b_")
    assert made["a b"] != made["a.b"]
    assert made["a" * 70].startswith("mcp__s__aaaa")


@settings(max_examples=80)
@given(ANY_JSON)
def test_any_schema_becomes_one_that_providers_and_our_checker_take(raw):
    text = sound_schema(raw)
    if text is None:
        return
    schema = json.loads(text)
    assert schema["type"] == "object"
    assert isinstance(schema["properties"], dict)
    assert len(text) <= MOST_CHARACTERS
    assert sound_schema(schema) == text, "what is sound stays as it is"
    spec = ToolSpec(name="t", description="", parameters=schema)
    assert isinstance(shape(spec), str)
    for arguments in ("{}", '{"a": 1, "type": "x", "items": [1]}'):
        parsed = parse_arguments(arguments, spec)
        assert isinstance(parsed, ArgumentProblem | dict)


def test_a_schema_keeps_what_says_something_and_loses_what_no_provider_takes():
    raw = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "T",
        "type": "object",
        "anyOf": [{"required": ["a"]}],
        "properties": {
            "a": {"title": "A", "type": ["string", "null"], "minLength": 1},
            "title": {"type": "string", "description": "d" * 900},
            "deep": {"$ref": "#/$defs/D"},
            "far": {"$ref": "http://elsewhere/x.json"},
        },
        "$defs": {"D": {"type": "integer", "enum": [1, 2]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    schema = json.loads(sound_schema(raw) or "")
    assert set(schema) == {"type", "properties", "$defs", "required", "additionalProperties"}
    assert schema["properties"]["a"] == {"type": ["string", "null"], "minLength": 1}
    assert len(schema["properties"]["title"]["description"]) == 400
    assert schema["properties"]["far"] == {}
    assert schema["$defs"]["D"]["enum"] == [1, 2]


def test_tools_that_no_provider_takes_are_skipped_with_a_reason_and_only_what_is_wanted_is_there():
    bad = {"type": "object", "properties": {"not a name!": {}}}
    huge = {"type": "object", "properties": {f"p{n}": {"enum": ["x" * 90]} for n in range(300)}}
    made = freeze(
        offer("ok"), offer("bad", bad), offer("huge", huge), offer("other"), wanted=["ok", "bad", "huge", "none"]
    )
    assert [tool.tool for tool in made.listed] == ["ok"]
    assert [line.partition(":")[0] for line in made.servers[0].skipped] == ["none", "bad", "huge"]


def test_descriptions_are_labelled_capped_and_hide_nothing():
    (tool,) = freeze(offer("a", None, "Say\u202e this.\u200b\x1b[31m " + "x" * 5_000)).listed
    assert tool.description.startswith("[described by MCP server s] Say this.[31m xxx")
    assert len(tool.description) < 1_100


@pytest.mark.parametrize(
    ("offers", "window", "is_deferred"),
    [
        (large(4, 8_000), 4_000, False),
        (large(5, 10), 4_000, False),
        (large(60), 64_000, True),
        (large(60), 2_000_000, False),
        (large(5, 1_000), 16_000, False),
    ],
    ids=["four", "five cheap ones", "sixty large ones", "a large window", "a small window, dearer by the detour"],
)
def test_m111_only_enough_tools_that_cost_more_than_the_detour_are_deferred(offers, window: int, is_deferred: bool):
    made = freeze(*offers, window=window)
    assert bool(made.deferred) == is_deferred
    assert made.pool_tokens == sum(map(definition_tokens, made.listed))
    if is_deferred:
        assert len(made.deferred) == len(offers)
        assert made.inline_tokens > made.detour_tokens > META_TOKENS


def test_m112_a_tool_that_a_rule_names_is_never_deferred():
    made = freeze(*large(60), gated=["mcp__s__t7"])
    assert len(made.deferred) == 59
    assert "mcp__s__t7" not in made.deferred


def test_what_changed_is_told_of_what_is_used():
    known = freeze(offer("a"), offer("b"), offer("c"))
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    now = Listing(server="s", offers=(offer("a"), offer("b", schema), offer("new")))
    assert difference(known, now) == "c gone; b with another schema"
    assert difference(known, Listing(server="s", offers=(offer("c"), offer("b"), offer("a")))) == ""
