"""Every event class survives being stored; what cannot be read is named."""

import json
import random
import typing
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnagent.core.events import Event, ProgressNoted, SessionStarted, Stored
from xnagent.core.ids import PLANNER, AgentId, CallId, RunId, SessionId
from xnagent.core.items import AssistantText
from xnagent.core.masking import Secret, mask_of
from xnagent.core.spine_events import ReplyReceived, ToolFinished, ToolStarted
from xnagent.core.tokens import Usage
from xnagent.errors import StoreDamagedError, StoreWriteError
from xnagent.store.codec import as_record, decode, encode, masked, pack, record_lines, unpack
from xnagent.store.records import Records

CLASSES = typing.get_args(Event)


def events_of(kind: type) -> st.SearchStrategy[Event]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{f.name: st.from_type(hints[f.name]) for f in fields(kind) if f.name != "type"})


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_event_class_comes_back_as_it_was(kind):
    @settings(max_examples=12)
    @given(event=events_of(kind))
    def comes_back(event):
        kept, content = encode(event)
        assert repr(kept) == repr(event)
        encoding, payload = pack(content)
        assert repr(decode(unpack(encoding, payload, what="it"), seq=1)) == repr(event)

    comes_back()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_record_line_says_what_the_record_says_in_ascii(kind):
    @settings(max_examples=4)
    @given(event=events_of(kind))
    def says_the_same(event):
        stored = [Stored(seq=seq, at="2026-01-01T00:00:00.000Z", event=encode(event)[0]) for seq in (1, 2)]
        lines = list(record_lines(SessionId('s-"1'), stored))
        assert not set("".join(lines)) - {chr(code) for code in range(32, 127)}
        told = [json.loads(line, parse_constant=pytest.fail) for line in lines]
        assert [list(one.items()) for one in told] == [
            list(json.loads(json.dumps(as_record(SessionId('s-"1'), one))).items()) for one in stored
        ]

    says_the_same()


def test_records_are_made_when_they_are_looked_at():
    stored = [Stored(seq=seq, at="t", event=ProgressNoted(run=RunId("r1"), text="x")) for seq in (1, 2, 3)]
    records = Records(SessionId("s-1"), stored)
    assert list(records) == [as_record(SessionId("s-1"), one) for one in stored]
    assert list(records[1:]) == list(records)[1:]
    assert len(records) == len(stored)


def test_the_union_is_closed_over_distinct_types():
    names = [next(f.default for f in fields(kind) if f.name == "type") for kind in CLASSES]
    assert len(set(names)) == len(names) > 30


def test_content_is_compact_json_with_raw_unicode():
    _, content = encode(ProgressNoted(run=RunId("r1"), text="grün 😀"))
    assert content == '{"run":"r1","text":"grün 😀","type":"progress_noted"}'.encode()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("ok \ud83d…", "ok \ufffd…"),
        ("a\udcff", "a\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("nul \x00 stays", "nul \x00 stays"),
    ],
)
def test_b055_lone_surrogates_are_stored_as_replacement_characters(text, kept):
    result = ToolFinished(agent=AgentId("r1"), call_id=CallId("c1"), tool="bash", text=text, paths_read=(text,))
    event, content = encode(result)
    assert event == decode(content, seq=1)
    assert (event.text, event.paths_read) == (kept, (kept,))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_json_cannot_say_survives_and_is_null_in_a_record(number):
    event = ToolFinished(agent=AgentId("r1"), call_id=CallId("c1"), tool="bash", text="\udcff", duration_seconds=number)
    kept, content = encode(event)
    assert str(decode(content, seq=1).duration_seconds) == str(kept.duration_seconds) == str(number)
    record = as_record(SessionId("s-1"), Stored(seq=1, at="t", event=event))
    assert record["duration_seconds"] is None
    json.dumps(record, allow_nan=False).encode()


def test_an_event_that_could_not_be_read_back_is_refused():
    event = ToolStarted(agent=AgentId("r1"), call_id=CallId("c1"), tool="bash", effect="magic")
    with pytest.raises(StoreWriteError, match="STORE_EVENT_INVALID: a tool_started event"):
        encode(event)


@pytest.mark.parametrize(
    "content",
    [
        b'{"type":"unheard_of"}',
        b'{"run":"r1","text":3,"type":"progress_noted"}',
        b'{"run":"r1","type":"progress_noted"}',
        b'{"run":"r1","te',
        b"\x00" * 300,
        b"",
        b"[]",
        b"\xff\xfe",
    ],
)
def test_b052_damaged_content_is_named_by_its_number(content):
    with pytest.raises(StoreDamagedError, match="event 17 cannot be read"):
        decode(content, seq=17)


@pytest.mark.parametrize(("encoding", "payload"), [("zlib", b"no"), ("zlib", "text"), ("lzma", b"x")])
def test_what_cannot_be_unpacked_is_named(encoding, payload):
    with pytest.raises(StoreDamagedError, match="event 3"):
        unpack(encoding, payload, what="event 3")


def test_only_what_is_worth_it_is_compressed():
    assert pack(b"x" * 511)[0] == "raw"
    assert pack(b"x" * 512)[0] == "zlib"
    assert pack(random.Random(1).randbytes(600))[0] == "raw"


def test_a_record_is_flat_and_begins_with_its_envelope():
    event = SessionStarted(session=SessionId("s-1"), objective="Port", checks=("pytest -q",))
    record = as_record(SessionId("s-1"), Stored(seq=1, at="2026-11-30T14:15:02.123Z", event=event))
    assert list(record)[:5] == ["type", "session", "seq", "at", "objective"]
    assert record["type"] == "session_started"
    assert record["checks"] == ["pytest -q"]
    assert record["at"] == "2026-11-30T14:15:02.123Z"


def test_events_of_older_logs_have_what_they_did_not_say_as_unknown():
    started = {
        "agent": "planner",
        "request": 1,
        "manifest": "m",
        "items": 2,
        "estimate_tokens": 9,
        "predicted_cached_tokens": None,
        "sha256": "s",
        "size_bytes": 4,
        "type": "request_started",
    }
    read = decode(json.dumps(started).encode(), seq=1)
    assert (read.long_items, read.waited_seconds, read.ceiling_usd) == (0, None, None)
    usage = {"input_tokens": 9, "cache_write_tokens": 7}
    reply = {"agent": "planner", "request": 1, "items": [], "usage": usage, "cost_usd": None, "finish": "stop"}
    read = decode(json.dumps({**reply, "duration_seconds": 1.0, "type": "reply_received"}).encode(), seq=2)
    assert (read.usage.cache_write_tokens, read.usage.cache_write_short_tokens) == (7, None)
    assert read.usage.cache_write_long_tokens is None


KEY = 'sk-"test"/Zq8xTr3VbN1mK9pL'
MASK = mask_of([Secret(name="A_KEY", value=KEY)])


def masked_again(event):
    return masked(*encode(event), mask=MASK)


def test_B075_what_is_stored_of_an_event_holds_no_secret():
    event = ToolFinished(
        agent=PLANNER, call_id=CallId("c"), tool="bash", text=f"a {KEY}", label=KEY, seen=((KEY, "1"),)
    )
    found, content = masked_again(event)
    assert found == replace(event, text="a [secret:A_KEY]", label="[secret:A_KEY]")
    assert found.seen == event.seen, "names that xnagent works with stay"
    assert decode(content, seq=1) == found


def test_an_event_without_secrets_is_the_same_object():
    event = ToolFinished(agent=PLANNER, call_id=CallId("c"), tool="bash", text="nothing")
    assert masked_again(event)[0] is event


def test_what_is_sent_to_models_again_stays_byte_for_byte():
    item = AssistantText(text=KEY)
    event = ReplyReceived(
        agent=PLANNER, request=1, items=(item,), usage=Usage(), cost_usd=None, finish="stop", duration_seconds=0
    )
    assert masked_again(event) == encode(event)
