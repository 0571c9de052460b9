"""Many Workers and many processes with one head: how often a provider has to read it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bench import Bench, call, delegate, finish, on, plan, reply, scripted, server_settings, task
from tests.e2e.test_wires import WIRES
from xnagent.app.running import SessionSpec, Stop, run_session
from xnagent.testing.cache import CacheRules
from xnagent.testing.choice import RequestView
from xnagent.testing.prompt import prompt_of
from xnagent.testing.providers import PROVIDERS
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

PRICE = {"input_usd": 4.0, "cached_usd": 0.4, "cache_write_usd": 5.0, "output_usd": 20.0}
PROVIDER = {"chat": "generic", "responses": "openai", "messages": "anthropic"}
WORKERS = 16
FIRST_TOKEN_SECONDS = 1.0
NAMES = [f"t{number}" for number in range(1, WORKERS + 1)]


def brain(view: RequestView) -> ReplySpec:
    """Everything is delegated at once; each Worker hands in; nothing is answered before a second is over."""
    if view.role == "worker":
        return ReplySpec(calls=(call("submit", status="failed", summary="No."),), delay_seconds=FIRST_TOKEN_SECONDS)
    if view.number == 1:
        return reply(plan(*map(task, NAMES)), *delegate(*NAMES))
    done = str(view.messages).count("settled: failed")
    return finish(outcome="failed").reply if done >= WORKERS else reply(text="Waiting.")


MARKED = CacheRules(minimum_tokens=1_024, units="breakpoints", dialect="anthropic")


@pytest.mark.parametrize(
    ("wire", "rules", "visible_after", "lag"),
    [
        pytest.param("messages", MARKED, 0.8, None, id="visible before the first token"),
        pytest.param("chat", CacheRules(minimum_tokens=1_024), 1.5, 0.6, id="visible later, and that is known"),
    ],
)
async def test_16_workers_heads_are_written_once_and_read_15_times_while_visibility_takes_its_time(
    bench: Bench, wire: str, rules: CacheRules, visible_after: float, lag: float | None
):
    rules = replace(rules, visible_after_seconds=visible_after * FIRST_TOKEN_SECONDS)
    models = {"m": {"price": PRICE, "cache_lag_seconds": lag}}
    settings: dict[str, Any] = {"planner__model__wire": wire, "parallel": WORKERS, "models": models}
    with ScriptedServer(brain=brain, provider=PROVIDER[wire], cache=rules) as server:
        ended = await bench.run(server, **settings)
        server.check()
    firsts = [ended.replies(f"r{number}")[0].usage for number in range(1, WORKERS + 1)]
    cached = sorted(usage.cached_tokens for usage in firsts)
    assert cached[0] == 0
    assert min(cached[1:]) > 1_024
    assert min(cached[1:]) > 0.9 * min(usage.input_tokens for usage in firsts)
    heads = {exchange.request.body.partition(b'"messages":')[0] for exchange in server.exchanges}
    assert len(heads) == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_M29_a_second_process_in_another_folder_finds_its_head_cached(tmp_path: Path, wire: str):
    """Two homes, two repositories, one provider."""
    provider = PROVIDER[wire]
    looks = [on("<state>", calls=[call("glob", pattern="*")]), finish()]
    one = Bench(tmp_path / "here", session="s-one")
    other = Bench(tmp_path / "there" / "deeper", files={"z.txt": "z\n", "README.md": "Another.\n"}, session="s-two")
    with ScriptedServer(scripted(*looks, *looks), provider=provider, strict=False) as server:
        await one.run(server, planner__model__wire=wire)
        again = len(server.exchanges)
        settings = server_settings(server.base_url, planner__model__wire=wire)
        spec = SessionSpec(
            objective="Make it so.", repository=other.repository, settings=settings, session=other.session
        )
        await run_session(other.host, spec, stop=Stop())
        ended = other.ended()
        rules = PROVIDERS[provider].cache
        head = prompt_of(server.exchanges[again].request, rules.order)
        before = [block for block in head.blocks if b"Make it so." not in block.data and b"<state>" not in block.data]
        tokens = sum(len(block.data) for block in before) // rules.bytes_per_token
        share = ended.replies()[0].usage.cached_tokens / tokens
    assert tokens > 1_500
    assert share >= 0.98
