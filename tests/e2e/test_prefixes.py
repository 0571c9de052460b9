"""What must not move a request's beginning, or its clock, on any wire: days, git, absurd reports, long waits."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.bench import Bench, call, finish, git, on, scripted
from tests.e2e.test_cases import glob, on_wire
from tests.e2e.test_wires import PROVIDER, WIRES
from tests.models.test_usages import said
from xnagent.app.host import Host, SystemClock
from xnagent.core.spine_events import RequestRetried, RequestStarted, SpineRebased
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

pytestmark = pytest.mark.parametrize("wire", WIRES)


class SkippingClock(SystemClock):
    """Real time, some days later; who waits for a provider wakes at once, and later."""

    def __init__(self, days: int = 0) -> None:
        self.later = timedelta(days=days)
        self.slept: list[float] = []

    def now(self) -> str:
        return (datetime.now(UTC) + self.later).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def monotonic(self) -> float:
        return super().monotonic() + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        if not 100 < seconds < 200:
            await super().sleep(seconds)
            return
        self.slept.append(seconds)


def moved(bench: Bench, clock: SystemClock) -> None:
    """The next process of the bench has another clock."""
    bench.host = Host(home=bench.host.home, environ=bench.host.environ, clock=clock)


async def test_B008_M29_another_day_and_another_git_status_leave_the_beginning_as_it_is(bench: Bench, wire: str):
    script = scripted(
        on("<state>", calls=[glob("a*")]),
        on("a.py", calls=[glob("b*")]),
        on("LIMIT", calls=[glob("R*")]),
        finish("README"),
    )
    with ScriptedServer(script, provider=PROVIDER[wire]) as server:
        first = await bench.run(server, limits__steps=2, **on_wire(wire))
        (bench.repository / "new.py").write_text("z = 1\n")
        git("add", "-A", folder=bench.repository)
        moved(bench, SkippingClock(days=1))
        ended = await bench.resume(server, **on_wire(wire))
        server.check()
    assert (first.code, ended.code, len(server.bodies)) == (6, 0, 4)
    assert (server.count("extensions"), server.count("breaks"), server.count("rebases")) == (3, 0, 0)
    today = datetime.now(UTC).date().isoformat()
    assert not [body for body in server.bodies if today in body.decode()]


async def test_B025_a_the_next_request_is_not_sent_before_the_provider_said(bench: Bench, wire: str):
    faults = [Fault(status=429, headers={"Retry-After": "171"})]
    clock = SkippingClock()
    moved(bench, clock)

    def brain(_view: RequestView) -> ReplySpec:
        return ReplySpec(fault=faults.pop()) if faults else finish().reply

    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, limits__deadline_seconds=900, retry__max_total_seconds=600, **on_wire(wire))
    assert (ended.code, len(server.bodies)) == (0, 2)
    assert 171 <= ended.of(RequestRetried)[0].wait_seconds < 190
    assert max(clock.slept) >= 171


@pytest.mark.parametrize("factor", [0.01, 100])
async def test_M60_M63_an_absurd_report_neither_makes_room_nor_hides_that_it_is_needed(
    bench: Bench, wire: str, factor: float
):
    """Ten answers of the same size; what the provider counts is a hundredth or a hundred times of it."""

    def brain(view: RequestView) -> ReplySpec:
        tokens = round(10_000 * factor)
        usage = said(wire, fresh=tokens, cached=0, written=0, output=10, reasoning=0)
        return finish().reply if view.number > 9 else ReplySpec(calls=(call("glob", pattern="*"),), usage=usage)

    window = {"planner__model__window": 60_000, "planner__model__max_output_tokens": 1_000}
    with ScriptedServer(brain=brain, provider=PROVIDER[wire]) as server:
        ended = await bench.run(server, **window, **on_wire(wire))
        server.check()
    assert (ended.code, ended.of(SpineRebased)) == (0, [])
    sizes = [event.estimate_tokens for event in ended.of(RequestStarted)]
    assert sizes == sorted(sizes)
    assert all(1_000 < size < 40_000 for size in sizes)
