"""Answers as they really come, on all wires: cut, torn, mislabelled, repeated, or with anything in place of a field."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.conftest import HEAD, RawServer, chunk
from tests.models.speaking import (
    WIRES,
    call,
    manifest,
    output_text,
    response,
    result,
    said,
    stream_of,
    user,
)
from xnagent.core.items import AssistantText, Reasoning, ReplyItem, ToolCall, made_by, with_unique_ids
from xnagent.errors import FAULT_KINDS, ModelError
from xnagent.models.decoding import fold
from xnagent.models.transport import HttpTransport, Timeouts
from xnagent.models.wire_model import WireModel
from xnagent.models.wires import BY_NAME, encode
from xnagent.ports import Body, Reply

PATIENT = Timeouts(connect_seconds=5, idle_seconds=20, progress_seconds=20, total_seconds=20)
QUICK = Timeouts(connect_seconds=2, idle_seconds=0.5, progress_seconds=0.6, total_seconds=5)
BODY = Body(content=b"{}", sha256="", segments=())
TEXT = "那个 – é 😀\u2028\u2029\x85."
BOM = b"\xef\xbb\xbf"
NOISE = (b": OPENROUTER PROCESSING\n\n", b":\n\n", b"data:\n\n", b"data: \n\n", b"retry: 5\n\n")


THOUGHTS = {
    "chat": "é",
    "responses": '{"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "é"}',
    "messages": '{"type": "thinking", "thinking": "é", "signature": "s"}',
}


def answer(wire: str) -> list[ReplyItem]:
    return [
        Reasoning(wire=wire, payload=THOUGHTS[wire]),
        said(TEXT),
        call("c1", '{"path": "é"}'),
        call("c2", "{}", "read"),
    ]


def events(wire: str) -> list[bytes]:
    """The stream in which the characters stand as themselves, not as escapes."""
    found = []
    for data in stream_of(wire, answer(wire)):
        text = data if data == "[DONE]" else json.dumps(json.loads(data), ensure_ascii=False)
        found.append(f"data: {text}\n\n".encode())
    return found


async def send(wire: str, url: str, timeouts: Timeouts = PATIENT) -> Reply:
    model = WireModel(HttpTransport(url, "sk-x", timeouts=timeouts), BY_NAME[wire])
    try:
        return await model.send(BODY)
    finally:
        await model.aclose()


def whole(wire: str) -> bytes:
    """The answer without a stream."""
    if wire == "responses":
        return response("completed", f"[{','.join(map(output_text, answer(wire)))}]").encode()
    if wire == "messages":
        use = [{"type": "tool_use", "id": "c1", "name": "bash", "input": {}}, {"type": "text", "text": TEXT}]
        return json.dumps({"type": "message", "content": use, "stop_reason": "tool_use", "usage": {}}).encode()
    calls = [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]
    message = {"role": "assistant", "content": TEXT, "tool_calls": calls}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).encode()


SHAPES: dict[str, Callable[[list[bytes]], Sequence[bytes]]] = {
    "B013 byte by byte": lambda made: [bytes([byte]) for byte in b"".join(made)],
    "B013 with a byte order mark": lambda made: [BOM, *made],
    "B014 with CR LF": lambda made: [b"".join(made).replace(b"\n", b"\r\n")],
    "B014 with CR": lambda made: [b"".join(made).replace(b"\n", b"\r")],
    "B014 CR and LF apart": lambda made: b"".join(made).replace(b"\n", b"\r\n").replace(b"\r", b"\r\0").split(b"\0"),
    "B015 among keep-alives": lambda made: [part for one in made for part in (*NOISE, one)],
    "B015 without a space": lambda made: [one.replace(b"data: ", b"data:") for one in made],
    "B015 after empty lines": lambda made: [b"\n", b"\r\n\n", *made],
    "two ends": lambda made: [*made, *made[-2:]],
    "content after the end": lambda made: [*made, *made],
    "nothing closes the last events": lambda made: [*made[:-2], b"".join(made[-2:]).rstrip()],
    "joined by a gateway": lambda made: [b"".join(one[:-1] for one in made) + b"\n"],
}


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("shape", SHAPES)
async def test_B013_B014_B015_whatever_carries_it_the_answer_is_the_same(wire: str, shape: str, stream_server):
    reply = await send(wire, stream_server(*SHAPES[shape](events(wire))).base_url)
    assert list(reply.items) == answer(wire)
    assert reply.finish == "tool_calls"


TYPES = ["text/event-stream", "application/json", "text/html", "text/plain; charset=latin-1", "", "x/y"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", TYPES)
async def test_a_wrong_content_type_hides_neither_a_stream_nor_a_whole_answer_nor_an_error(
    wire: str, kind: str, stream_server
):
    name = f"Content-Type: {kind}\r\n" if kind else ""
    head = f"HTTP/1.1 200 OK\r\n{name}Transfer-Encoding: chunked\r\n\r\n".encode()
    assert list((await send(wire, stream_server(*events(wire), head=head).base_url)).items) == answer(wire)
    parts = [b"\n", BOM, b" \n", whole(wire)]
    reply = await send(wire, stream_server(*parts, head=head).base_url)
    assert [item.text for item in reply.items if isinstance(item, AssistantText)] == [TEXT]
    assert next(item.call_id for item in reply.items if isinstance(item, ToolCall)) == "c1"
    refused = b'{"error":{"message":"no credit","code":"insufficient_quota"}}'
    for body, fault in ((refused, "quota"), (b"<!doctype html>", "protocol"), (b"", "incomplete"), (BOM, "incomplete")):
        with pytest.raises(ModelError) as caught:
            await send(wire, stream_server(body, head=head).base_url)
        assert caught.value.fault == fault, (kind, body)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wire", WIRES)
async def test_B019_cut_at_any_byte_it_is_whole_or_incomplete_and_never_a_part(wire: str, raw_server):
    data = b"".join(events(wire))
    cuts = iter(range(0, len(data), 7))
    length, head = len(data), HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

    def handler(connection: socket.socket, stopping: threading.Event) -> None:
        connection.sendall(head + chunk(data[: next(cuts)] or b":\n\n") + b"0\r\n\r\n")

    server: RawServer = raw_server(handler)
    model = WireModel(HttpTransport(server.base_url, timeouts=PATIENT), BY_NAME[wire])
    outcomes = []
    for _ in range(0, length, 7):
        try:
            outcomes.append(list((await model.send(BODY)).items))
        except ModelError as error:
            outcomes.append(error.fault)
    await model.aclose()
    incomplete = outcomes.count("incomplete")
    assert incomplete > length // 14
    assert outcomes == ["incomplete"] * incomplete + [answer(wire)] * (len(outcomes) - incomplete)


@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_B021_an_error_that_nothing_closes_is_told_and_half_of_one_is_not(wire: str, stream_server):
    refused = b'data: {"error":{"message":"no credit","code":"insufficient_quota"}}'
    for body, fault in ((refused, "quota"), (refused[:-2], "incomplete"), (refused[:9], "incomplete")):
        with pytest.raises(ModelError) as caught:
            await send(wire, stream_server(*events(wire)[:2], body).base_url)
        assert caught.value.fault == fault


STILL_WORKING = {
    "chat": b'data: {"choices":[],"id":"c"}\n\n',
    "responses": b'data: {"type":"response.in_progress","response":{"status":"in_progress"}}\n\n',
    "messages": b'event: ping\ndata: {"type":"ping"}\n\n',
}


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wire", WIRES)
async def test_B026e_what_only_says_that_it_works_ends_at_the_progress_limit(wire: str, raw_server):
    def handler(connection: socket.socket, stopping: threading.Event) -> None:
        connection.sendall(HEAD + chunk(b"".join(events(wire)[:2])))
        while not stopping.wait(0.02):
            connection.sendall(chunk(STILL_WORKING[wire]))

    with anyio.fail_after(20), pytest.raises(ModelError, match="no progress") as caught:
        await send(wire, raw_server(handler).base_url, QUICK)
    assert caught.value.fault == "timeout"


JUNK = st.sampled_from(
    [None, [], {}, "", "x", 0, -1, 1.5, 10**30, True, [None], {"a": None}, [{}], "null", float("nan"), "\ud83d", "0"]
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*place, key))


def changed(value: Any, place: tuple[Any, ...], junk: Any, *, is_deleted: bool) -> Any:
    if not place:
        return junk
    made = deepcopy(value)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    if is_deleted:
        del inner[place[-1]]
    else:
        inner[place[-1]] = junk
    return made


@st.composite
def odd_streams(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A good stream with events lost, repeated, joined or swapped, or with something else in place of a field."""
    wire = draw(st.sampled_from(WIRES))
    stream = stream_of(wire, answer(wire))
    for _ in range(draw(st.integers(1, 4))):
        at, other = draw(st.integers(0, len(stream) - 1)), draw(st.integers(0, len(stream) - 1))
        move = draw(st.sampled_from(["change", "change", "delete", "lose", "repeat", "swap", "join"]))
        if move == "lose" and len(stream) > 1:
            stream.pop(at)
        elif move == "repeat":
            stream.insert(other, stream[at])
        elif move == "swap":
            stream[at], stream[other] = stream[other], stream[at]
        elif move == "join":
            stream[at : at + 2] = ["\n".join(stream[at : at + 2])]
        elif stream[at].startswith("{") and "\n" not in stream[at]:
            event = json.loads(stream[at])
            place = draw(st.sampled_from(list(places(event))))
            stream[at] = json.dumps(changed(event, place, draw(JUNK), is_deleted=move == "delete"))
    return wire, stream


def outcome(wire: str, stream: list[str]) -> Reply | ModelError:
    try:
        return fold(BY_NAME[wire].new_decoder(), stream)
    except ModelError as error:
        return error


@given(odd=odd_streams())
def test_B016_B017_B018_B020_B021_no_stream_is_too_odd(odd: tuple[str, list[str]]):
    """It is a reply that every wire can carry on, or a fault; never anything else."""
    check_outcome(*odd)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("junk", [[], {}, None, 10**30])
def test_B018_anything_may_stand_in_any_place(wire: str, junk: object):
    stream = stream_of(wire, answer(wire))
    for number, data in enumerate(stream):
        event = json.loads(data) if data.startswith("{") else {}
        for place in places(event):
            made = json.dumps(changed(event, place, junk, is_deleted=False))
            check_outcome(wire, [*stream[:number], made, *stream[number + 1 :]])


def check_outcome(wire: str, stream: list[str]) -> None:
    reply = outcome(wire, stream)
    if isinstance(reply, ModelError):
        assert reply.fault in FAULT_KINDS
        return
    items = with_unique_ids(made_by("some-model", reply.items), set())
    results = [result(item.call_id) for item in items if isinstance(item, ToolCall)]
    for other in WIRES:
        json.loads(encode(manifest(other), [user("Go."), *items, *results, user("On.")]))
    usage = reply.usage
    counts = (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens)
    assert all(count is None or 0 <= count < 1 << 50 for count in counts)
    assert usage.is_estimated or usage.input_tokens
    assert all(isinstance(item, AssistantText | Reasoning | ToolCall) for item in reply.items)


IDS = st.sampled_from(["c", "call_0", "", "x" * 300, "a b|c", "é"])


@given(ids=st.lists(IDS, min_size=2, max_size=5), wire=st.sampled_from(WIRES))
def test_B005_B017_calls_keep_their_number_order_and_arguments_whatever_their_ids(wire: str, ids: list[str]):
    calls = [call(one, json.dumps({"n": number}), "read") for number, one in enumerate(ids)]
    reply = fold(BY_NAME[wire].new_decoder(), stream_of(wire, calls))
    made = [item for item in reply.items if isinstance(item, ToolCall)]
    assert [item.arguments for item in made] == [item.arguments for item in calls]
    unique = [item for item in with_unique_ids(tuple(made), set()) if isinstance(item, ToolCall)]
    for other in WIRES:
        body = encode(manifest(other), [user("Go."), *unique, *(result(item.call_id) for item in unique)])
        name = {"chat": "tool_call_id", "responses": "call_id", "messages": "tool_use_id"}[other]
        sent = [found[name] for found in _objects(json.loads(body)) if name in found and "name" not in found]
        assert len(set(sent)) == len(sent) == len(ids)
        assert all(sent)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _objects(one)


@pytest.mark.parametrize("wire", WIRES)
def test_B020_a_call_without_a_name_is_kept_so_that_it_gets_its_error(wire: str):
    reply = fold(BY_NAME[wire].new_decoder(), stream_of(wire, [call("c1", '{"a":1}', "")]))
    assert reply.items == (call("c1", '{"a":1}', ""),)
    for other in WIRES:
        assert b'"name":""' not in encode(manifest(other), [user("Go."), *reply.items, result("c1")])
