"""Recall: what was planted before 20 rebases is in the checkpoint or two calls away; what was taken back is not."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.e2e.bench import Bench, bash, call, finish, plan, reply, submit, task
from xnagent.core.spine_events import SpineRebased
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

REBASES = 20
STATED: Mapping[str, str] = {
    "number": "3.14159265358979323846",
    "identifier": "0189cafe-7a3b-4000-8000-00000000beef",
    "path": "src/deep/er/settings.prod.toml",
    "decision": "We keep PostgreSQL and drop Redis",
    "pinned": "Never touch the table ledger_v2",
}
CORRECTED, WRONG = "port 8443", "port 8080"
RETRACTED = "The cache may be deleted"
IN_A_RUN = "needle-77120-of-the-run"
LOST_LINE = "row 41234 of"


@dataclass
class Probe:
    """Asks for one thing: looks at the newest checkpoint, then calls, and counts how many it takes."""

    wanted: str
    calls: list[Callable[[str], ScriptedCall]] = field(default_factory=list)
    used: int = 0
    is_found: bool = False


def planting(view: RequestView) -> ReplySpec | None:
    """The first steps: facts of all kinds, one corrected, one taken back, and a task whose run prints much."""
    texts = [text for name, text in STATED.items() if name != "pinned"]
    record = [call("record_fact", text=f"On record: {text}", value=text) for text in texts]
    match view.number:
        case 1:
            return reply(*record, call("record_fact", text=STATED["pinned"], pinned=True))
        case 2:
            return reply(call("record_fact", text=f"It listens on {WRONG}"), call("record_fact", text=RETRACTED))
        case 3:
            return reply(
                call("correct_fact", fact="f6", text=f"It listens on {CORRECTED}"),
                call("retract_fact", fact="f7", reason="it is the only copy"),
            )
        case 4:
            return reply(plan(task("export")), call("delegate", task="export"))
        case _:
            return None


@dataclass
class Prober:
    """A Planner that plants, talks until it was rebased twenty times, and then answers its probes."""

    probes: list[Probe]
    rebases: int = 0
    checkpoint: str = ""
    asked: int = 0

    def __call__(self, view: RequestView) -> ReplySpec:
        if view.role == "worker":
            return self.worker(view)
        found = re.search(r'<checkpoint number=\\?"(\d+)', json.dumps(view.messages))
        if found:
            self.rebases = int(found[1])
            self.checkpoint = next(text for text in map(content, view.messages) if "<checkpoint number=" in text)
        planted = planting(view)
        if planted is not None and not self.rebases:
            return planted
        if "r1 settled" not in json.dumps(view.messages) and not self.rebases:
            return ReplySpec(text="I wait.")
        if self.rebases < REBASES:
            return reply(call("glob", pattern=f"*{view.number}*"), text="I think about it. " * 120)
        return self.probe(view)

    def worker(self, view: RequestView) -> ReplySpec:
        if view.number == 1:
            return bash(f"for n in $(seq 41000 42000); do echo row $n of the export; done; echo {IN_A_RUN}").reply
        return submit(summary="The export is done.").reply

    def probe(self, view: RequestView) -> ReplySpec:
        """Two requests may answer one probe: each makes one call."""
        for one in self.probes[self.asked :]:
            if one.wanted in self.checkpoint or (one.used and one.wanted in view.new_text):
                one.is_found = True
            elif one.used < len(one.calls):
                one.used += 1
                return reply(one.calls[one.used - 1](view.new_text))
            self.asked += 1
        return finish().reply


def content(message: dict) -> str:
    return str(message.get("content"))


def ticket_in(text: str) -> str:
    return re.search(r"artifact:[0-9a-f]{16}", text)[0]


@pytest.mark.slow
async def test_I8_M25_M81_T19_after_20_rebases_all_that_was_planted_is_at_most_two_calls_away(bench: Bench):
    inspect = [lambda _text: call("run_inspect", run="r1")]
    page = [*inspect, lambda text: call("read", target=ticket_in(text), offset=230, limit=10)]
    probes = [Probe(text) for text in (*STATED.values(), CORRECTED)]
    probes += [Probe(IN_A_RUN, inspect), Probe(LOST_LINE, page)]
    brain = Prober(probes)
    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, planner__model__window=11_000, planner__model__max_output_tokens=500)
    assert ended.code == 0
    rebases = [event for event in ended.of(SpineRebased) if event.agent == "planner"]
    assert len(rebases) >= REBASES
    assert [one.wanted for one in probes if not one.is_found] == []
    assert max(one.used for one in probes) <= 2
    assert [one.used for one in probes[: len(STATED) + 1]] == [0] * (len(STATED) + 1)
    for event in rebases:
        text = event.items[1].text
        assert WRONG not in text
        assert RETRACTED not in text
