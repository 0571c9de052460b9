"""M114: a window that gets full is told in the log and by `inspect`, before anything fails."""

import json

import pytest

from tests.e2e.bench import Bench, Ended, bash, finish, scripted, start, submit, task
from xnagent.core.spine_events import RequestStarted, SpineRebased, WindowFilled
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document, overview, overview_text, part_text
from xnagent.testing.server import ScriptedServer

pytestmark = pytest.mark.anyio

SMALL = {
    "worker__model__window": 12_000,
    "worker__model__max_output_tokens": 1_000,
    "spine__policy": "threshold",
    "spine__soft_share": 0.8,
    "spine__warn_shares": [0.6, 0.4],
}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def run(bench: Bench, **settings: object) -> Ended:
    """A Worker whose history grows by about a twelfth of its window with each step, through a rebase."""
    steps = [bash(f"seq -f 'a line {number} %g' 160") for number in range(14)]
    script = scripted(start(task("one")), finish("r1 settled: completed"), workers={"one": [*steps, submit()]})
    with ScriptedServer(script) as server:
        return await bench.run(server, **{**SMALL, **settings})


def reading(ended: Ended) -> Reading:
    return Reading(session=ended.state.session, state=ended.state, events=ended.events)


async def test_M114_T26_each_level_is_told_once_a_generation_right_before_its_request(bench: Bench):
    ended = await run(bench)
    told = ended.of(WindowFilled)
    assert ended.of(SpineRebased)
    assert [(one.generation, one.level) for one in told][:3] == [(0, 0.4), (0, 0.6), (1, 0.4)]
    assert len({(one.agent, one.generation, one.level) for one in told}) == len(told)
    sizes = {one.request: one for one in ended.of(RequestStarted)}
    for one in told:
        assert (one.agent, one.usable_tokens) == ("r1", 12_000 - 1_000 - 256)
        assert one.tokens == sizes[one.request].estimate_tokens >= one.level * one.usable_tokens
    before = [one for one in ended.of(RequestStarted) if one.agent == "r1" and one.request < told[0].request]
    assert all(one.estimate_tokens < 0.4 * told[0].usable_tokens for one in before)
    assert ended.code == 0


async def test_M114_inspect_shows_how_full_requests_were_and_which_reached_a_level(bench: Bench):
    shown = reading(ended := await run(bench))
    first = ended.of(WindowFilled)[0]
    rows = {row["request"]: row for row in document(shown, ["requests"])["requests"]}
    assert rows[first.request]["warned_share"] == 0.4
    assert rows[first.request]["window_share"] == pytest.approx(first.tokens / first.usable_tokens, abs=1e-4)
    assert [row["warned_share"] for row in rows.values()].count(0.4) == sum(
        one.level == 0.4 for one in ended.of(WindowFilled)
    )
    table = part_text(shown, "requests")
    assert "of window" in table
    assert " 40%" in table
    warnings = json.loads(json.dumps(overview(shown)["window_warnings"]))
    assert [(one["request"], one["level"]) for one in warnings] == [
        (one.request, one.level) for one in ended.of(WindowFilled)
    ]
    assert "r1 reached 60% at request " in overview_text(shown)


async def test_M114_no_levels_no_warning(bench: Bench):
    ended = await run(bench, spine__warn_shares=[])
    assert ended.of(WindowFilled) == []
    assert overview(reading(ended))["window_warnings"] == []
    assert " reached " not in overview_text(reading(ended))
