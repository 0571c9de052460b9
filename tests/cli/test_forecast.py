"""What it costs to go on: the next request, a rebase that is due before it, and the rest."""

from pathlib import Path

import pytest

from tests.e2e.bench import Bench, call, server_settings
from xnagent.app.prospects import session_prospects
from xnagent.cli.forecast import Standing, forecast_record, forecast_text, forecasts, whole_forecast
from xnagent.config.entry import model_chain
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

PRICED = {"m": {"price": {"input_usd": 1.0, "cached_usd": 0.1, "output_usd": 4.0}, "cache_lifetime_seconds": 300}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def standing(folder: Path, *, age_seconds: float, **settings: object) -> Standing:
    """A session that came to its limit of steps with a long history."""
    bench = Bench(folder)

    def brain(_view) -> ReplySpec:
        return ReplySpec(calls=(call("glob", pattern="*"),), text="thinking " * 600)

    with ScriptedServer(brain=brain) as server:
        ended = await bench.run(server, limits__steps=5, models=PRICED)
        made = server_settings(server.base_url, models=PRICED, **settings)
    chains = {role: model_chain(made, role) for role in ("planner", "worker")}
    return Standing(
        state=ended.state, age_seconds=age_seconds, chains=chains, prospects=session_prospects(bench.host, made)
    )


async def test_a_rebase_that_is_due_is_foreseen_with_what_it_leaves(tmp_path: Path):
    found = await standing(
        tmp_path, age_seconds=10, spine__soft_share=0.05, spine__tail_share=0.01, spine__least_tail_tokens=0
    )
    (row,) = forecasts(found)
    assert row.rebase is not None
    assert row.rebase.cause == "soft"
    assert row.rebase.tokens_after < row.cached_tokens + row.fresh_tokens
    after = row.rebase.forecast
    assert after.likely.input_tokens == row.rebase.tokens_after
    assert 0 < after.likely.cached_tokens < after.likely.input_tokens
    text = forecast_text([row], whole_forecast(found, [row]))
    assert "planner is rebased before that (soft): " in text
    (record,) = forecast_record("s-1", [row], whole=row.forecast)["requests"]
    assert record["rebase"]["tokens_after"] == row.rebase.tokens_after


@pytest.mark.parametrize(("age_seconds", "is_warm"), [(299, True), (301, False)])
async def test_an_expired_cache_is_paid_for_again(tmp_path: Path, age_seconds: float, is_warm: bool):
    found = await standing(tmp_path, age_seconds=age_seconds)
    (row,) = forecasts(found)
    assert row.rebase is None
    low, likely, high = row.forecast.low, row.forecast.likely, row.forecast.high
    assert low.cached_tokens > 0
    assert high.cost_usd > likely.cost_usd
    size = row.cached_tokens + row.fresh_tokens
    paid_again = likely.uncached_tokens >= size
    assert paid_again is not is_warm


async def test_a_session_that_is_over_goes_on_only_with_a_message(tmp_path: Path):
    bench = Bench(tmp_path)
    with ScriptedServer(brain=lambda _: ReplySpec(calls=(call("finish", outcome="failed", summary="x"),))) as server:
        ended = await bench.run(server)
        made = server_settings(server.base_url)
    chains = {role: model_chain(made, role) for role in ("planner", "worker")}
    prospects = session_prospects(bench.host, made)
    over = Standing(state=ended.state, age_seconds=1, chains=chains, prospects=prospects)
    assert forecasts(over) == []
    again = Standing(state=ended.state, age_seconds=1, chains=chains, prospects=prospects, has_message=True)
    assert [row.agent for row in forecasts(again)] == ["planner"]
    assert whole_forecast(again, forecasts(again)).likely.cost_usd is None
