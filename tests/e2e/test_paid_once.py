"""Each token is paid once, but for what rebases write again: 300 steps in a window of 64,000 tokens."""

import sys

import pytest

from tests.e2e.bench import Bench, Ended, call, finish, start, submit, task
from tests.e2e.test_long import LongBrain
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.spine_events import ReplyReceived, RequestStarted, SpineRebased
from xnagent.core.state import spine_of
from xnagent.models.wires import encode
from xnagent.testing.cache import CacheRules
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

STEPS = 300
FINE = CacheRules(block_tokens=16)
"""Serves nearly each byte that it has seen at the beginning of a request."""
SMALL = {"planner__model__window": 64_000, "planner__model__max_output_tokens": 4_000}
TEXT = "def function_{0}(value): return value * {0} + {1}  # of part {1}\n"


class LoneBrain(LongBrain):
    """The Planner of the long session without its Workers: it looks at files and says much."""

    def __init__(self) -> None:
        super().__init__()
        self.delegated = 40

    def planner(self, view: RequestView) -> ReplySpec:
        if self.steps + 1 >= STEPS:
            return finish().reply
        self.steps += 1
        record = call("record_fact", text=f"Part {self.steps} is as the one before.", value=str(self.steps))
        look = call("read", target=f"part{self.steps % 40}.py", offset=self.steps % 7 + 1, limit=40)
        calls = (look, record) if self.steps % 10 == 0 else (look,)
        return ReplySpec(calls=calls, text=f"Step {self.steps}. " + "I look at the next part of it. " * 4)


def working(view: RequestView) -> ReplySpec:
    """A Worker of 300 steps: reads, looks for names, and runs a command now and then."""
    if view.role == "planner":
        if "<state>" in view.new_text:
            return start(task("one")).reply
        return finish().reply if "r1 settled" in view.new_text else ReplySpec(text="Waiting.")
    step = view.number
    if step > STEPS:
        return submit().reply
    if step % 5 == 0:
        look = call("bash", command=f"sed -n '{step % 30 + 1},{step % 30 + 40}p' part{step % 40}.py")
    elif step % 3 == 0:
        look = call("grep", pattern=f"function_{step % 90}\\b")
    else:
        look = call("read", path=f"part{step % 40}.py", offset=step % 20 + 1, limit=35)
    return ReplySpec(calls=(look,), text=f"Step {step}. " + "I look at the next part of it. " * 4)


def times_paid(ended: Ended, agent: AgentId) -> float:
    """Input that no prefix cache could serve, for the content: the same history in one request, never rebased."""
    replies = ended.replies(agent)
    fresh = sum(reply.usage.input_tokens - reply.usage.cached_tokens for reply in replies)
    whole = fold_all(stored.event for stored in ended.events if not isinstance(stored.event, SpineRebased))
    spine = spine_of(whole, agent)
    content = len(encode(whole.manifests[spine.sent_manifest], spine.items, agent=agent)) / FINE.bytes_per_token
    return fresh / content


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("agent", "brain"), [(PLANNER, LoneBrain()), (AgentId("r1"), working)], ids=["planner", "r1"])
async def test_M1_M15_M51_300_steps_pay_each_token_at_most_1_15_times(tmp_path, capsys, agent: AgentId, brain):
    files = {f"part{n}.py": "".join(TEXT.format(line, n) for line in range(90)) for n in range(40)}
    bench = Bench(tmp_path, files)
    with ScriptedServer(brain=brain, cache=FINE) as server:
        ended = await bench.run(server, limits__run_steps=STEPS + 1, **SMALL)
    rebases = [event for event in ended.of(SpineRebased) if event.agent == agent]
    paid = times_paid(ended, agent)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{agent}: {len(ended.replies(agent))} requests, {len(rebases)} rebases, paid {paid:.3f} times\n"
        )
    assert (ended.outcome, server.count("breaks")) == ("completed", 0)
    assert len(ended.replies(agent)) >= STEPS - 1
    assert len(rebases) >= 3
    assert 1.0 < paid <= 1.15
    sizes = {event.request: event.estimate_tokens for event in ended.of(RequestStarted) if event.agent == agent}
    reported = {event.request: event.usage.input_tokens for event in ended.of(ReplyReceived) if event.agent == agent}
    off = [abs(reported[request] / sizes[request] - 1) for request in reported]
    assert sorted(off)[len(off) // 2] < 0.02
