"""Which agent is pinned to which slot of a llama.cpp server."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.speaking import WIRES, manifest, said, spine, user
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.spine import Spine
from xnagent.core.text import canonical
from xnagent.models.catalog import ModelEntry, create_model
from xnagent.models.chat import ChatEncoder
from xnagent.models.slots import slot_of
from xnagent.models.wires import encode
from xnagent.testing.server import ScriptedServer

THREE = canonical({"slots": 3, "temperature": 0})


def runs(*numbers: int) -> list[AgentId]:
    return [AgentId(f"r{number}") for number in numbers]


def sent(agent: AgentId | None, wire: str = "chat", options: str = THREE) -> dict:
    return json.loads(encode(manifest(wire, options=options), [user("Go.")], agent=agent))


def test_the_planner_keeps_a_slot_of_its_own_and_workers_take_turns():
    assert slot_of(PLANNER, 4) == 0
    assert [slot_of(run, 4) for run in runs(1, 2, 3, 4, 5, 6, 7)] == [1, 2, 3, 1, 2, 3, 1]
    assert [slot_of(agent, 2) for agent in (PLANNER, *runs(1, 2))] == [0, 1, 1]
    assert [slot_of(agent, 1) for agent in (PLANNER, *runs(1, 2))] == [None] * 3


@given(slots=st.integers(2, 9), first=st.integers(1, 10_000))
def test_as_many_runs_in_a_row_as_there_are_other_slots_share_none(slots: int, first: int):
    taken = [slot_of(run, slots) for run in (PLANNER, *runs(*range(first, first + slots - 1)))]
    assert sorted(taken) == list(range(slots))


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_a_request_names_the_slot_and_not_how_many_there_are(wire: str):
    fields = [sent(agent, wire) for agent in (PLANNER, *runs(1, 2, 3))]
    assert [one["id_slot"] for one in fields] == [0, 1, 2, 1]
    assert all("slots" not in one and one["temperature"] == 0 for one in fields)
    assert not {"id_slot", "slots"} & sent(None, wire).keys()
    assert not {"id_slot", "slots"} & sent(PLANNER, wire, canonical({"slots": 1})).keys()


def test_the_server_is_asked_to_tell_its_progress_on_the_wire_where_that_is_understood():
    assert sent(PLANNER)["return_progress"] is True
    assert sent(PLANNER, options=canonical({"slots": 1}))["return_progress"] is True
    assert "return_progress" not in sent(PLANNER, "responses")
    assert sent(PLANNER, options=canonical({"slots": 3, "return_progress": False}))["return_progress"] is False


@pytest.mark.parametrize("wire", WIRES)
def test_an_endpoint_without_slots_is_sent_the_same_bytes_for_every_agent(wire: str):
    bodies = {encode(manifest(wire), [user("Go.")], agent=agent) for agent in (None, PLANNER, *runs(1, 2))}
    assert len(bodies) == 1
    assert not any(name in body for body in bodies for name in (b"slot", b"progress"))


def test_I1_the_encoder_pins_each_agent_of_one_manifest_and_extends_its_bytes():
    encoder, chosen = ChatEncoder(), manifest("chat", options=THREE)
    for agent in (PLANNER, *runs(1, 2)):
        short = Spine(agent=agent, items=spine(user("Go.")).items)
        long = Spine(agent=agent, items=(*short.items, user("On.")))
        before, after = encoder.encode(chosen, short), encoder.encode(chosen, long)
        assert before.content == encode(chosen, short.items, agent=agent)
        assert after.content == encode(chosen, long.items, agent=agent)
        assert after.content.startswith(before.content.removesuffix(b"]}"))
        assert after.segments[: len(before.segments)] == before.segments


async def test_a_server_that_tells_its_progress_is_read_like_any_other():
    with ScriptedServer({"worker": [{"text": "ok", "times": 0}]}, provider="llama.cpp") as server:
        model = create_model(ModelEntry(name="some-model", base_url=server.base_url), None)
        reply = await model.send(model.encode(manifest("chat", options=THREE), spine(user("Go."))))
        await model.aclose()
        server.check()
    assert reply.items == (said("ok"),)
    assert (reply.usage.cached_tokens, reply.note) == (0, "")
    assert json.loads(server.bodies[0])["id_slot"] == 1
