"""An outline of a session: what it has is what the whole log has, on files and on a real PostgreSQL server."""

from contextlib import aclosing, closing
from dataclasses import fields, replace
from itertools import count
from sqlite3 import connect

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.sessions import Story, delegated, task
from tests.core.strategies import stories
from xnagent.cli.skim import OUTLINED, can_skim, skim
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, CallId, RunId, SessionId
from xnagent.core.items import AssistantText, ToolCall
from xnagent.core.spine_events import DENIED, ReplyReceived, ResultOffloaded, ToolFinished, ToolStarted
from xnagent.core.tokens import Usage
from xnagent.errors import StoreDamagedError
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document, overview_text, part_text
from xnagent.store.codec import encode
from xnagent.store.files import FilePlace
from xnagent.store.outline import _Bare
from xnagent.store.placed import PlacedLog

WORKER = AgentId("r1")
LEFT_OUT = {"work", "spines", "started_tools", "calibrations"}
WORK = (ToolStarted, ToolFinished, ResultOffloaded)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def whole_of(place):
    events = tuple(place.events())
    return Reading(session=place.read_session(), state=fold_all(one.event for one in events), events=events)


async def stored(story, place, clock):
    async with aclosing(await PlacedLog.create_at(place, session=SessionId(place.name), clock=clock)) as log:
        await log.append(*story.events, durable=False)


def check_that_parts_are_the_same(place):
    whole, part = whole_of(place), skim(place)
    for field in fields(whole.state):
        if field.name not in LEFT_OUT:
            assert getattr(part.state, field.name) == getattr(whole.state, field.name), field.name
    assert part.state.spines.get(PLANNER) == whole.state.spines.get(PLANNER)
    assert overview_text(part) == overview_text(whole)
    for name in OUTLINED:
        assert document(part, [name]) == document(whole, [name])
        assert part_text(part, name) == part_text(whole, name)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(story=stories(), is_denied=st.booleans())
async def test_parts_of_an_outline_are_those_of_the_whole_log(story, is_denied, file_of, clock):
    code = DENIED if is_denied else "ok"
    story.events = [replace(one, code=code) if isinstance(one, ToolFinished) else one for one in story.events]
    place = next(file_of)
    await stored(story, place, clock)
    check_that_parts_are_the_same(place)


@pytest.fixture
def file_of(tmp_path):
    """A new file each time."""
    return (FilePlace(tmp_path / f"s-{number}.db") for number in count())


@pytest.fixture
async def worked(spot, clock):
    """A session whose Planner and Worker each made a step, the Worker's with a call that was denied."""
    story = Story()
    story.begin()
    story.add(task("a"), delegated("r1", "a"))
    story.step("planned")
    story.launch(RunId("r1"))
    (call,) = story.reply(WORKER, story.call(), usage=Usage(input_tokens=700, cached_tokens=300))
    story.answer(WORKER, call, "DENIED: not allowed", DENIED)
    story.reply(WORKER, AssistantText(text="Done."))
    await stored(story, spot.place, clock)
    return story


def rewrite(spot, seq, event, *changes):
    """What a damaged file, or one that another version wrote, has in an event's place."""
    content = encode(event)[1]
    for old, new in changes:
        assert old in content
        content = content.replace(old, new)
    if spot.store == "files":
        with closing(connect(str(spot.place))) as connection, connection:
            connection.execute("UPDATE events SET enc = 'raw', payload = ? WHERE seq = ?", (content, seq))
    else:
        spot.ask("UPDATE events SET enc = 'raw', payload = %s WHERE session = %s AND seq = %s", content, spot.name, seq)


def place_of(story, kind, *, agent):
    seq = next(n for n, one in enumerate(story.events, 1) if isinstance(one, kind) and one.agent == agent)
    return seq, story.events[seq - 1]


async def test_an_outline_has_no_work_of_others_and_tells_denials(worked, spot):
    outline = [one.event for one in spot.place.events(is_outline=True)]
    others = [one for one in outline if isinstance(one, WORK) and one.agent == WORKER]
    assert [one.code for one in others] == [DENIED]
    assert [len(one.items) for one in outline if isinstance(one, ReplyReceived)] == [2, 0, 0]
    assert len(worked.events) - len(outline) == 1
    check_that_parts_are_the_same(spot.place)


async def test_where_an_id_came_twice_the_first_end_counts_too(worked, spot, clock):
    async with aclosing(await PlacedLog.open_at(spot.place, clock=clock)) as log:
        call = ToolCall(call_id=CallId("c2"), name="read", arguments="{}")
        story = Story(states=[log.state], events=[])
        story.rebase(WORKER)
        story.reply(WORKER, call)
        story.answer(WORKER, call)
        await log.append(*story.events)
    assert skim(spot.place).state.denials == 1
    check_that_parts_are_the_same(spot.place)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ((b'"type":"reply_received"', b'"type":"reply_dreamt"'), "does not match any of the expected tags"),
        ((b'"input_tokens":700', b'"input_tokens":"many"'), "at reply_received.usage.input_tokens"),
        ((b'"finish":', b'"finished":'), "at reply_received.finish: Field required"),
        ((b"{", b"["), "Invalid JSON"),
    ],
    ids=["unknown-kind", "wrong-value", "no-field", "no-json"],
)
async def test_what_cannot_be_read_is_told_as_by_the_whole_log(worked, spot, change, told):
    rewrite(spot, *place_of(worked, ReplyReceived, agent=WORKER), change)
    with pytest.raises(StoreDamagedError, match="STORE_EVENT_DAMAGED") as by_whole:
        tuple(spot.place.events())
    with pytest.raises(StoreDamagedError) as by_outline:
        tuple(spot.place.events(is_outline=True))
    assert str(by_outline.value) == str(by_whole.value)
    assert told in str(by_whole.value)


async def test_a_reply_of_an_older_log_is_read_with_what_it_has(worked, spot):
    seq, event = place_of(worked, ReplyReceived, agent=WORKER)
    rewrite(spot, seq, event, (b',"first_token_seconds":null', b""), (b',"note":""', b""))
    check_that_parts_are_the_same(spot.place)


async def test_damage_in_what_is_left_out_is_only_found_by_who_reads_it(worked, spot):
    rewrite(spot, *place_of(worked, ToolStarted, agent=WORKER), (b"{", b"["))
    with pytest.raises(StoreDamagedError):
        tuple(spot.place.events())
    assert skim(spot.place).state.denials == 1


def test_a_reply_without_items_has_the_fields_of_a_reply():
    assert [field.name for field in fields(_Bare)] == [field.name for field in fields(ReplyReceived)]
    assert {field.name: field.default for field in fields(_Bare) if field.name != "items"} == {
        field.name: field.default for field in fields(ReplyReceived) if field.name != "items"
    }


@pytest.mark.parametrize(
    ("parts", "is_text", "is_enough"),
    [([], True, True), ([], False, False), (["tasks", "requests"], False, True), (["tasks", "runs"], True, False)],
)
def test_an_outline_is_enough_for_parts_that_it_has(parts, is_text, is_enough):
    assert can_skim(parts, is_text=is_text) is is_enough
