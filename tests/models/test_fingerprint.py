"""What made bytes of a history has a name that changes with what it makes."""

import json
import re
from dataclasses import replace

import pytest

from tests.models.speaking import WIRES
from xnagent.core.ids import AgentId
from xnagent.core.items import UserText
from xnagent.core.spine import Spine
from xnagent.models import fingerprint
from xnagent.models.encoder import Encoder
from xnagent.models.fingerprint import VERSIONS, renderer_of
from xnagent.models.wires import BY_NAME


def test_every_wire_has_a_version():
    assert set(VERSIONS) == set(BY_NAME)
    assert len({renderer_of(wire) for wire in VERSIONS}) == len(BY_NAME)
    assert all(re.fullmatch(rf"{wire}-\d+-[0-9a-f]{{12}}", renderer_of(wire)) for wire in VERSIONS)


@pytest.mark.parametrize("wire", WIRES)
def test_heads_of_16_workers_are_the_same_bytes_up_to_their_briefs(wire: str):
    """But for a key that sends each history to its own cache, where the wire has one."""
    manifest = fingerprint.sample_manifest(wire, "{}")
    heads = set()
    for number in range(1, 17):
        text = UserText(text=f'<task id="t{number}" run="r{number}">', origin="task")
        agent = AgentId(f"r{number}")
        body = Encoder(BY_NAME[wire].renderer).encode(manifest, Spine(agent=agent, items=(text,)))
        assert body.content.startswith(body.segments[0]) or wire == "messages"
        assert json.loads(body.content)["model"] == "m"
        head = body.segments[0]
        assert b"<task" not in head
        heads.add(re.sub(rb'"prompt_cache_key":"[^"]*",', b"", head) if wire == "responses" else head)
    assert len(heads) == 1
    assert all(part in next(iter(heads)) for part in (b"Be good.", b'"name":"read"'))


def test_another_order_of_the_head_is_another_head():
    manifest = fingerprint.sample_manifest("chat", "{}")
    bodies = [
        Encoder(BY_NAME["chat"].renderer).encode(one, Spine(agent=AgentId("r1")))
        for one in (manifest, replace(manifest, system="Be bad."))
    ]
    assert bodies[0].segments[0] != bodies[1].segments[0]
