"""B054: a history goes on with another model, whose requests hold none of the first one's reasoning."""

import json
import re
from itertools import product

import pytest

from tests.models.speaking import SEALED, TOOLS, WIRES, call, manifest, read_request, result, said, spine, user
from xnagent.core.items import Item, Reasoning, made_by
from xnagent.core.spine_events import ReplyReceived
from xnagent.core.text import canonical
from xnagent.models.encoder import Encoder
from xnagent.models.wires import BY_NAME, encode
from xnagent.store import codec

CALL_ID = {"chat": "call_1", "responses": "call_1|fc_9", "messages": "toolu_01"}


def history(wire: str, model: str = "a") -> list[Item]:
    """What a model of that wire has said: reasoning, text, a call; and the call's result."""
    sealed = Reasoning(wire=wire, payload=SEALED[wire], model=model)
    made = call(CALL_ID[wire], '{"command":"ls"}')
    return [user("Go."), sealed, said("ok"), made, result(made.call_id), user("On.")]


def without_reasoning(items: list[Item]) -> list[Item]:
    return [item for item in items if not isinstance(item, Reasoning)]


@pytest.mark.parametrize(("made_on", "sent_on"), list(product(WIRES, WIRES)))
def test_B054_a_b_c_d_foreign_reasoning_is_left_out_and_the_rest_stays(made_on: str, sent_on: str):
    items = history(made_on)
    other = manifest(sent_on, model="b", send_reasoning=True, tools=canonical(TOOLS))
    body = encode(other, items)
    assert body == encode(other, without_reasoning(items))
    assert SEALED[made_on].encode() not in body
    sent = read_request(sent_on, body)
    assert [type(item) for item in sent] == [type(item) for item in without_reasoning(items)]


def test_B054_d_the_call_ids_of_one_wire_are_mapped_alike_in_call_and_result():
    _, reply, after = json.loads(encode(manifest("messages", model="b"), history("responses")))["messages"]
    called, answered = reply["content"][-1]["id"], after["content"][0]["tool_use_id"]
    assert called == answered
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", called)


@pytest.mark.parametrize("wire", WIRES)
def test_B054_e_back_at_the_first_model_its_own_blocks_are_sent_unchanged(wire: str):
    first, second = (manifest(wire, model=name, send_reasoning=True) for name in "ab")
    begun = history(wire)
    later = [Reasoning(wire=wire, payload=SEALED[wire], model="b"), said("done"), user("More.")]
    before = encode(first, begun)
    encoder = Encoder(BY_NAME[wire].renderer)
    bodies = [
        encoder.encode(chosen, spine(*items)).content
        for chosen, items in ((first, begun), (second, begun), (second, [*begun, *later]), (first, [*begun, *later]))
    ]
    assert bodies[0] == before
    counts = [sum(isinstance(item, Reasoning) for item in read_request(wire, body)) for body in bodies]
    assert counts == [1, 0, 1, 1]
    assert read_request(wire, bodies[3]) == [*read_request(wire, before), said("done"), user("More.")]


@pytest.mark.parametrize("wire", WIRES)
def test_B054_a_reply_that_is_nothing_but_foreign_reasoning_leaves_a_valid_history(wire: str):
    items = [user("Go."), history(wire)[1], user("On.")]
    body = encode(manifest(wire, model="b", system=""), items)
    messages = json.loads(body)["input" if wire == "responses" else "messages"]
    assert [messages[0]["role"], messages[-1]["role"]] == ["user", "user"]
    assert all("reasoning_content" not in message for message in messages)
    assert SEALED[wire].encode() not in body


def test_B054_the_name_of_the_model_is_on_its_reasoning_alone():
    items = (Reasoning(wire="chat", payload="r"), said("x"), call("c"))
    assert made_by("m", items) == (Reasoning(wire="chat", payload="r", model="m"), *items[1:])


@pytest.mark.parametrize("wire", WIRES)
def test_B054_reasoning_in_a_log_that_names_no_model_is_read_and_sent_as_before(wire: str):
    old = {
        "agent": "planner",
        "request": 1,
        "items": [{"wire": wire, "payload": SEALED[wire], "kind": "reasoning"}],
        "usage": {},
        "cost_usd": None,
        "finish": "stop",
        "duration_seconds": 1.0,
        "type": "reply_received",
    }
    event = codec.decode(json.dumps(old).encode(), seq=1)
    assert isinstance(event, ReplyReceived)
    items = [user("Go."), *event.items, said("ok"), user("On.")]
    body = encode(manifest(wire, model="any", send_reasoning=True), items)
    assert sum(isinstance(item, Reasoning) for item in read_request(wire, body)) == 1
