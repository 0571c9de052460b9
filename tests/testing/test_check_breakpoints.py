"""Explicit breakpoints of OpenAI: what is refused, and what they are good for."""

import json
from itertools import pairwise

import pytest

from tests.models.speaking import call, manifest, read_request, result, said, user
from xnagent.core.text import canonical
from xnagent.models.wires import encode
from xnagent.testing.cache import PrefixCache
from xnagent.testing.check_breakpoints import check_breakpoints
from xnagent.testing.providers import PROVIDERS
from xnagent.testing.received import Received

WIRES = ("chat", "responses")
MARKED = canonical({"cache_breakpoint": True})
LONG = "w" * 9_000
ROUND = [user(LONG), user("<state>"), said("Now."), call("c1"), result("c1"), user("<delta>")]


def problems(data: dict, *, wire: str = "chat", is_known: bool = True) -> list[tuple[str | None, str | None]]:
    return [(found.code, found.param) for found in check_breakpoints(data, wire=wire, is_known=is_known)]


def request(role: str = "user", **mark: object) -> dict:
    part = {"type": "text", "text": "x", "prompt_cache_breakpoint": mark}
    return {"messages": [{"role": "user", "content": "no parts"}, {"role": role, "content": [part]}]}


@pytest.mark.parametrize("wire", WIRES)
def test_M121_what_the_wires_send_is_taken_where_breakpoints_are_known_and_refused_elsewhere(wire: str):
    data = json.loads(encode(manifest(wire, options=MARKED), ROUND))
    name = "input[0]" if wire == "responses" else "messages[1]"
    assert problems(data, wire=wire) == []
    refused = ("unsupported_parameter", f"{name}.content[0].prompt_cache_breakpoint")
    assert problems(data, wire=wire, is_known=False) == [refused]
    assert problems(json.loads(encode(manifest(wire), ROUND)), wire=wire, is_known=False) == []


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (request(mode="explicit"), []),
        (request(mode="implicit"), [("invalid_value", "messages[1].content[0].prompt_cache_breakpoint.mode")]),
        (request(), [("invalid_value", "messages[1].content[0].prompt_cache_breakpoint.mode")]),
        (
            request(role="assistant", mode="explicit"),
            [("unknown_parameter", "messages[1].content[0].prompt_cache_breakpoint")],
        ),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": "12h"}}, []),
        ({"prompt_cache_options": {"mode": "auto"}}, [("invalid_value", "prompt_cache_options.mode")]),
        ({"prompt_cache_options": {"ttl": "5m"}}, [("invalid_value", "prompt_cache_options.ttl")]),
        (
            {"prompt_cache_options": {"ttl": "30m"}, "prompt_cache_retention": "24h"},
            [("invalid_request_error", "prompt_cache_retention")],
        ),
        ({"messages": [7, {"role": "user", "content": [8]}]}, []),
    ],
)
def test_M121_what_is_refused(data: dict, refused: list):
    assert problems(data) == refused


def test_M121_older_models_know_no_options():
    assert problems({"prompt_cache_options": {}}, is_known=False) == [("unsupported_parameter", "prompt_cache_options")]


@pytest.mark.parametrize("wire", WIRES)
def test_M35_a_rebase_finds_system_tools_and_objective_only_with_the_breakpoint(wire: str):
    found = {}
    for options in (MARKED, "{}"):
        cache = PrefixCache(PROVIDERS["openai-5.6"].cache, lambda: 0.0)
        chosen = manifest(wire, options=options)
        for items in (ROUND[:2], ROUND):
            cache.read(Received(encode(chosen, items), wire))
        found[options] = cache.read(Received(encode(chosen, [user(LONG), user("<checkpoint>")]), wire)).cached
    assert found["{}"] == 0
    assert found[MARKED] > len(LONG) // 4


@pytest.mark.parametrize("wire", WIRES)
def test_I1_the_breakpoint_stays_where_it_is(wire: str):
    bodies = [encode(manifest(wire, options=MARKED), ROUND[:n]) for n in (1, 2, 6)]
    for shorter, longer in pairwise(bodies):
        assert longer.startswith(shorter[:-2])
    assert all(body.count(b"prompt_cache_breakpoint") == 1 for body in bodies)
    assert all(json.loads(body)["prompt_cache_key"].startswith("xn-") for body in bodies)
    assert len(read_request(wire, encode(manifest(wire), ROUND))) == len(ROUND)
