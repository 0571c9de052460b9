"""The small stand-ins."""

import anyio
import pytest

from xnagent.core.ids import AgentId, Ticket
from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.tokens import Usage
from xnagent.errors import ModelError
from xnagent.ports import Artifacts, Clock, Model, Reply
from xnagent.testing.doubles import FakeClock, ListModel, MemoryArtifacts

pytestmark = pytest.mark.anyio


async def test_time_passes_at_once_and_others_run():
    clock, order = FakeClock(), []
    as_port: Clock = clock

    async def sleeper(name: str) -> None:
        for _ in range(2):
            await as_port.sleep(1.5)
            order.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(sleeper, "a")
        group.start_soon(sleeper, "b")
    assert (clock.monotonic(), clock.now(), clock.sleeps) == (6.0, "2030-01-01T00:00:06.000Z", [1.5] * 4)
    assert sorted(order) == ["a", "a", "b", "b"]
    assert order not in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


async def test_artifacts_are_kept_by_their_hash():
    kept: Artifacts = MemoryArtifacts()
    ticket = kept.put(b"x")
    assert ticket == kept.put(b"x") == "artifact:2d711642b726b044"
    assert await kept.get(ticket) == b"x"
    assert await kept.get(Ticket("artifact:0000000000000000")) is None


async def test_replies_in_order_then_an_error():
    reply = Reply(items=(), usage=Usage(), finish="stop")
    double = ListModel([reply, ModelError("no", fault="server")])
    model: Model = double
    manifest = ManifestRecorded(
        manifest="m", role="worker", wire="chat", model="x", system="", tools="[]", max_output_tokens=1, window_tokens=9
    )
    body = model.encode(manifest, Spine(agent=AgentId("r1")))
    assert await model.send(body) is reply
    with pytest.raises(AssertionError, match="1 replies"):
        double.check()
    with pytest.raises(ModelError):
        await model.send(body)
    double.check()
    with pytest.raises(AssertionError, match="not expected"):
        await model.send(body)
    await model.aclose()
    assert len(double.bodies) == 3
