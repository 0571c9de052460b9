"""Sessions resumed by another xnagent, with other tools, parameters or models: what each keeps, and what breaks."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest

from tests.e2e.bench import Bench, Ended, bash, call, finish, on, scripted, server_settings, start, submit, task
from xnagent.app import crew
from xnagent.app.comparing import Comparison, compare
from xnagent.app.replay import replay_session
from xnagent.app.running import Stop, resume_session
from xnagent.core.items import Item
from xnagent.core.spine_events import (
    ManifestRecorded,
    ModelReplaced,
    PrefixBroken,
    RequestStarted,
    SpineRebased,
    ToolsChanged,
)
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import overview_text, part_text
from xnagent.models import chat
from xnagent.models.fingerprint import renderer_of
from xnagent.testing.server import ScriptedServer

PRICE = {"input_usd": 4.0, "cached_usd": 0.4, "cache_write_usd": 5.0, "output_usd": 20.0}
PRICED = {"models": {"m": {"price": PRICE}}}
ASKING = finish("<state>", outcome="blocked", summary="Wait.", question="May I?")
LONG = "Make it so. " + "Mind the details. " * 500


@contextmanager
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What renders results is as another xnagent had it."""

    def results(item: Item) -> object:
        return {"role": "tool", "tool_call_id": getattr(item, "call_id", ""), "content": "Result: " + item.text}

    with monkeypatch.context() as patch:
        patch.setattr(chat, "_render_result", results)
        renderer_of.cache_clear()
        yield
    renderer_of.cache_clear()


async def by_older(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Two requests, then a question: the first result is in what the second one sent."""
    look = on("<state>", calls=[call("glob", pattern="*")])
    asking = finish("a.py", outcome="blocked", summary="Wait.", question="May I?")
    with older(monkeypatch), ScriptedServer(scripted(look, asking)) as server:
        return await bench.run(server, LONG, **PRICED)


def answered() -> ScriptedServer:
    return ScriptedServer(scripted(finish("Yes")), strict=False)


async def test_M42_a_renderer_that_makes_other_bytes_is_refused_in_strict_mode_and_says_what_to_do(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    first = await by_older(bench, monkeypatch)
    with answered() as server:
        await resumed(bench, server, prefix="strict")
        assert server.bodies == []
    ended = bench.host.place(bench.session)
    events = tuple(ended.events())
    (broken,) = (one.event for one in events if isinstance(one.event, PrefixBroken))
    settled = events[-1].event
    assert (settled.exit_code, settled.outcome) == (10, "prefix_broken")
    assert "resume SESSION --prefix warn" in settled.error
    assert "or resume with the xnagent that wrote it" in settled.error
    recorded = first.of(ManifestRecorded)[0].renderer
    assert recorded != renderer_of("chat")
    assert recorded in broken.detail
    assert renderer_of("chat") in broken.detail
    assert (broken.segment, broken.declared) == ("renderer", "renderer")
    reported = first.replies()[-1].usage
    assert broken.lost_tokens == reported.input_tokens + reported.output_tokens > 1_000
    assert broken.lost_usd == pytest.approx(broken.lost_tokens * 4.6 / 1e6)


async def resumed(bench: Bench, server: ScriptedServer, **settings: object) -> None:
    """Not judged by `ended`: what the older one sent can't be made again."""
    made = server_settings(server.base_url, **{**PRICED, **settings})
    await resume_session(bench.host, bench.session, settings=made, message="Yes.", stop=Stop())


async def test_M42_a_warning_goes_on_and_a_replay_names_the_renderer_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    await by_older(bench, monkeypatch)
    with answered() as server:
        await resumed(bench, server, prefix="warn")
        assert len(server.bodies) == 1
    found = replay_session(bench.host, bench.session)
    assert found.changed == [
        one for one in found.changed if "another renderer: chat-1-" in one and renderer_of("chat") in one
    ]
    assert len(found.changed) == 1
    assert [problem.split(": ")[1] for problem in found.problems] == ["request 2"]


async def test_M42_a_prompt_that_changed_since_stays_as_recorded_and_a_replay_names_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch, ScriptedServer(scripted(ASKING)) as server:
        patch.setattr(crew, "system_text", lambda role: f"The older text of the {role}.")
        await bench.run(server)
    with ScriptedServer(scripted(finish("Yes"))) as server:
        ended = await bench.resume(server, "Yes.", planner__model__max_output_tokens=1_234)
        assert [b"The older text of the planner." in body for body in server.bodies] == [True]
    assert (ended.of(PrefixBroken), ended.code) == ([], 0)
    found = replay_session(bench.host, bench.session)
    assert (len(found.changed), found.problems) == (2, [])
    assert all("prompts/planner.md is another: " in one for one in found.changed)


async def test_M42_another_limit_of_output_keeps_the_recorded_text_and_tools_and_breaks_nothing(bench: Bench):
    with ScriptedServer(scripted(ASKING)) as server:
        first = await bench.run(server)
    with ScriptedServer(scripted(finish("Yes"))) as server:
        ended = await bench.resume(server, "Yes.", planner__model__max_output_tokens=1_234)
    before, after = (one.of(ManifestRecorded)[-1] for one in (first, ended))
    assert (before.max_output_tokens, after.max_output_tokens) == (8_192, 1_234)
    assert (before.system, before.tools) == (after.system, after.tools)
    assert ended.of(PrefixBroken) + ended.of(ToolsChanged) == []
    assert {len(one) for one in (after.system_sha256, after.tools_sha256)} == {64}


def explained(ended: Ended, request: int, against: int) -> Comparison:
    return compare(ended.events, request, against=against)


async def test_M27_a_tool_that_a_rule_takes_away_is_a_declared_break_with_its_price(bench: Bench):
    with ScriptedServer(scripted(ASKING)) as server:
        await bench.run(server, LONG, **PRICED)
    with ScriptedServer(scripted(finish("Yes"))) as server:
        ended = await bench.resume(server, "Yes.", permissions__deny=["Grep"], **PRICED)
    (broken,) = ended.of(ToolsChanged)
    assert (broken.agent, broken.removed, broken.added) == ("planner", ("grep",), ())
    assert broken.lost_tokens > 1_000
    assert broken.lost_usd == pytest.approx(broken.lost_tokens * 4.6 / 1e6)
    assert (ended.of(PrefixBroken), ended.code) == ([], 0)
    found = explained(ended, 2, 1)
    assert (found.segment, found.is_same_lineage, found.reported) == ("tools", False, None)
    assert (found.declared.event, found.declared.cause) == ("tools_changed", "without grep")
    assert found.declared.seq == next(one.seq for one in ended.events if one.event is broken)
    assert found.lost_usd == pytest.approx(found.lost_tokens * 4.6 / 1e6)
    reading = Reading(session=bench.session, state=ended.state, events=ended.events)
    assert "other tools" in overview_text(reading)
    assert "without grep" in part_text(reading, "rebases")


async def test_M27_a_rebase_keeps_the_head_and_breaks_at_the_checkpoint(bench: Bench):
    steps = [bash(f"seq 1 2500; echo {number}") for number in range(6)]
    script = scripted(start(task("a")), finish("r1 settled: completed"), workers={"a": [*steps, submit()]})
    small = {"planner__model__window": 16_000, "planner__model__max_output_tokens": 2_000}
    with ScriptedServer(script) as server:
        ended = await bench.run(server, **small, **PRICED)
    rebased = next(one for one in ended.events if isinstance(one.event, SpineRebased))
    sent = [one for one in ended.events if isinstance(one.event, RequestStarted) and one.event.agent == "r1"]
    last = [one.event.request for one in sent if one.seq < rebased.seq][-1]
    then = next(one.event.request for one in sent if one.seq > rebased.seq)
    found = explained(ended, then, last)
    assert (found.segment, found.lineage, found.against_lineage) == ("checkpoint", "r1.1", "r1.0")
    assert (found.declared.seq, found.declared.event) == (rebased.seq, "spine_rebased")
    whole = next(one.usage.input_tokens for one in ended.replies("r1") if one.request == last)
    assert found.kept_tokens + found.lost_tokens == whole
    assert found.kept_tokens > ended.of(ManifestRecorded)[-1].head_tokens * 0.6
    again = explained(ended, last, sent[0].event.request)
    assert (again.segment, again.lost_tokens, again.declared, again.is_same_lineage) == (None, 0, None, True)
    assert json.dumps(asdict(found))


async def test_M27_another_model_keeps_nothing(bench: Bench):
    with ScriptedServer(scripted(ASKING)) as server:
        await bench.run(server, LONG, **PRICED)
    with ScriptedServer(scripted(finish("Yes"))) as server:
        ended = await bench.resume(server, "Yes.", planner__model__name="n", chosen=("planner",))
    found = explained(ended, 2, 1)
    assert (found.segment, found.kept_tokens, found.declared.event) == ("model", 0, "model_replaced")
    assert found.lost_tokens == ended.replies()[0].usage.input_tokens
    assert len(ended.of(ModelReplaced)) == 1


async def test_M27_what_an_older_log_does_not_say_is_unknown(bench: Bench):
    with ScriptedServer(scripted(ASKING)) as server:
        ended = await bench.run(server, LONG)
    bare = [
        replace(one, event=replace(one.event, settings="")) if hasattr(one.event, "settings") else one
        for one in ended.events
    ]
    found = compare(bare, 1, against=1)
    assert (found.segment, found.lost_usd, found.order) == (None, None, "tools, system, messages")
