"""The wire itself, against a server on the loopback: cuts, silence, refusals, secrets."""

import json
import socket
import threading
import time

import anyio
import pytest

from xnagent.core.items import AssistantText
from xnagent.errors import ModelError, UsageError
from xnagent.models.transport import HttpTransport, Timeouts
from xnagent.models.wire_model import WireModel
from xnagent.models.wires import CHAT
from xnagent.ports import Body, Reply

pytestmark = pytest.mark.anyio

QUICK = Timeouts(connect_seconds=2, idle_seconds=0.3, progress_seconds=0.6, total_seconds=5)
PATIENT = Timeouts(connect_seconds=5, idle_seconds=20, progress_seconds=20, total_seconds=20)
KEY = "sk-test-1-secret"
BODY = Body(content=b'{"messages":[]}', sha256="", segments=())


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def piece(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


END = piece(finish="stop") + b"data: [DONE]\n\n"
WHOLE = piece("那个 – é 😀") + END


async def send(url: str, *, key: str | None = KEY, timeouts: Timeouts = PATIENT) -> Reply:
    chat = WireModel(HttpTransport(url, key, timeouts=timeouts), CHAT)
    try:
        return await chat.send(BODY)
    finally:
        await chat.aclose()


async def fault_of(url: str, *, key: str | None = KEY, timeouts: Timeouts = PATIENT) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await send(url, key=key, timeouts=timeouts)
    assert KEY not in str(caught.value)
    return caught.value


def text_of(reply: Reply) -> str:
    return "".join(item.text for item in reply.items if isinstance(item, AssistantText))


async def test_B013_byte_by_byte(stream_server):
    reply = await send(stream_server(*(WHOLE[n : n + 1] for n in range(len(WHOLE)))).base_url)
    assert (text_of(reply), reply.finish) == ("那个 – é 😀", "stop")
    assert reply.first_token_seconds is not None
    assert reply.first_token_seconds >= 0


async def test_B013_cut_at_every_position(raw_server):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    cuts = iter(range(1, len(WHOLE)))

    def handler(connection: socket.socket, stopping: threading.Event) -> None:
        cut = next(cuts)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head + WHOLE[:cut])
        time.sleep(0.001)
        connection.sendall(WHOLE[cut:])

    server = raw_server(handler)
    chat = WireModel(HttpTransport(server.base_url, KEY, timeouts=PATIENT), CHAT)
    for _ in range(1, len(WHOLE)):
        assert text_of(await chat.send(BODY)) == "那个 – é 😀"
    await chat.aclose()


RAW = 'data: {"choices":[{"index":0,"delta":{"content":"a\u2028b\u2029c\u0085d"},"finish_reason":null}]}\n\n'.encode()


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
async def test_B014_unicode_line_separators_and_line_ends(stream_server, ending: bytes):
    data = (RAW + END).replace(b"\n", ending)
    for pieces in ([data], [data[n : n + 1] for n in range(len(data))]):
        assert text_of(await send(stream_server(*pieces).base_url)) == "a\u2028b\u2029c\u0085d"


async def test_B015_keep_alives_and_empty_frames(stream_server):
    noise = [
        b": OPENROUTER PROCESSING\n\n",
        b":\n\n",
        b"data:\n\n",
        b"data: \n\n",
        b'event: ping\ndata: {"type":"ping"}\n\n',
    ]
    tight = piece("ok").replace(b"data: ", b"data:")
    reply = await send(stream_server(*noise, tight, b": keepalive\n\n", END).base_url)
    assert (text_of(reply), reply.finish) == ("ok", "stop")


async def test_the_request_as_it_is_sent(stream_server):
    server = stream_server(WHOLE)
    await send(server.base_url + "/?version=2")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions?version=2 HTTP/1.1\r\n")
    assert f"authorization: bearer {KEY}".encode() in head.lower()
    assert b"accept: text/event-stream" in head.lower()
    assert b"accept-encoding: identity" in head.lower()
    assert body == BODY.content


async def test_without_a_key_no_header(stream_server):
    server = stream_server(WHOLE)
    await send(server.base_url, key=None)
    assert b"authorization" not in server.requests[0].lower()


async def test_a_stream_that_does_not_name_itself_is_read(stream_server):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=latin-1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert text_of(await send(stream_server(WHOLE, head=head).base_url)) == "那个 – é 😀"


async def test_a_whole_completion_is_accepted(answer_server):
    body = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
    assert text_of(await send(answer_server(200, body).base_url)) == "hi"


@pytest.mark.parametrize(
    ("status", "body", "kind", "fault", "says"),
    [
        (200, b"<html>login</html>", "text/html", "protocol", "HTML, not JSON; check --base-url"),
        (200, b" <!doctype html>x", "application/json", "protocol", "HTML, not JSON"),
        (200, b'{"data":[]}', "application/json", "protocol", "no completion"),
        (200, b'{"error":{"code":"insufficient_quota","message":"m"}}', "application/json", "quota", "m"),
        (
            401,
            f'{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}'.encode(),
            "application/json",
            "authentication",
            "[key]",
        ),
        (404, b"<html>nginx</html>", "text/html", "not_found", "--base-url"),
        (
            529,
            b'{"error":{"type":"overloaded_error","message":"Overloaded"}}',
            "application/json",
            "overloaded",
            "Overloaded",
        ),
        (500, b"x" * 3_000_000, "text/plain", "server", "xxx"),
    ],
)
async def test_refusals(answer_server, status: int, body: bytes, kind: str, fault: str, says: str):
    error = await fault_of(answer_server(status, body, kind=kind).base_url)
    assert (error.fault, says in str(error)) == (fault, True)
    assert len(str(error)) < 700


async def test_B022_the_wait_that_is_asked_for_is_kept(answer_server):
    error = await fault_of(answer_server(429, b"{}", extra="Retry-After: 171\r\n").base_url)
    assert (error.fault, error.retry_after_seconds, error.status) == ("rate_limited", 171, 429)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # httpx itself leaves a generator open, of which trio warns
async def test_a_compression_that_cannot_be_read(answer_server):
    error = await fault_of(answer_server(200, b"no gzip at all" * 9, extra="Content-Encoding: gzip\r\n").base_url)
    assert (error.fault, "compressed" in str(error)) == ("protocol", True)


async def test_no_redirect_is_followed(answer_server, stream_server):
    other = stream_server(WHOLE)
    error = await fault_of(answer_server(307, b"", extra=f"Location: {other.base_url}/chat/completions\r\n").base_url)
    assert (error.fault, other.requests) == ("not_found", [])


async def test_B021_an_error_inside_a_stream(stream_server):
    error = await fault_of(
        stream_server(piece("Hel"), event({"error": {"message": f"bad {KEY}", "code": 502}})).base_url
    )
    assert (error.fault, str(error).count("[key]")) == ("server", 1)


async def test_B019_B026d_the_other_side_stops_in_the_middle(stream_server):
    started = time.monotonic()
    error = await fault_of(stream_server(piece("The fix"), ends=False).base_url)
    assert (error.fault, time.monotonic() - started < 5) == ("incomplete", True)
    assert (await fault_of(stream_server(piece("The fix")).base_url)).fault == "incomplete"
    assert (await fault_of(stream_server().base_url)).fault == "incomplete"


async def test_a_connection_that_breaks_after_the_finish_is_a_success(stream_server):
    assert text_of(await send(stream_server(piece("x", "stop"), ends=False).base_url)) == "x"


def silent(*first: bytes, every_seconds: float = 0, noise: bytes = b"", half_closed: bool = False):
    """Send the pieces as they are, then noise at intervals or nothing, until the test ends."""

    def handler(connection: socket.socket, stopping: threading.Event) -> None:
        for part in first:
            connection.sendall(part)
        if half_closed:
            connection.shutdown(socket.SHUT_WR)
        while not stopping.wait(every_seconds or 0.05):
            if noise:
                connection.sendall(noise)

    return handler


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "says"), [([], "before the answer"), ([HEAD], "in the middle"), ([HEAD, piece("x")], "in the middle")]
)
async def test_B026_abc_silence_ends_at_the_idle_limit(raw_server, first: list[bytes], says: str):
    started = time.monotonic()
    error = await fault_of(raw_server(silent(*first)).base_url, timeouts=QUICK)
    assert (error.fault, error.is_retryable, time.monotonic() - started < 4) == ("timeout", True, True)
    assert "idle" in str(error)
    assert says in str(error)


async def test_B026d_a_half_closed_connection_is_incomplete_at_once(raw_server):
    chunked = HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    server = raw_server(silent(chunked, b"5\r\n: hi\n\r\n", half_closed=True))
    assert (await fault_of(server.base_url)).fault == "incomplete"


async def test_B026e_keep_alives_alone_end_at_the_progress_limit(raw_server):
    started = time.monotonic()
    server = raw_server(silent(HEAD, piece("x"), every_seconds=0.05, noise=b": keepalive\n\n"))
    error = await fault_of(server.base_url, timeouts=QUICK)
    assert (error.fault, "no progress" in str(error), time.monotonic() - started < 4) == ("timeout", True, True)


async def test_B026_pieces_without_end_stop_at_the_total_limit(raw_server):
    limits = Timeouts(connect_seconds=2, idle_seconds=5, progress_seconds=5, total_seconds=0.4)
    server = raw_server(silent(HEAD, every_seconds=0.02, noise=piece("x")))
    error = await fault_of(server.base_url, timeouts=limits)
    assert (error.fault, "total" in str(error)) == ("timeout", True)


async def test_silence_after_the_whole_answer_does_not_matter(raw_server):
    assert text_of(await send(raw_server(silent(HEAD, WHOLE)).base_url)) == "那个 – é 😀"
    assert text_of(await send(raw_server(silent(HEAD, piece("x", "stop"))).base_url, timeouts=QUICK)) == "x"


async def test_an_event_without_end_is_refused(raw_server):
    server = raw_server(silent(HEAD, b"data: ", every_seconds=0.0001, noise=b"x" * (4 << 20)))
    assert (await fault_of(server.base_url)).fault == "protocol"


async def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = await fault_of(f"http://127.0.0.1:{port}/v1?key=k4-very-secret")
    assert (error.fault, "127.0.0.1" in str(error), "k4-very" in str(error)) == ("connection", True, False)


async def test_a_client_can_be_cancelled_and_closed(raw_server):
    chat = WireModel(HttpTransport(raw_server(silent(HEAD)).base_url, KEY, timeouts=PATIENT), CHAT)
    with anyio.move_on_after(0.1) as scope:
        await chat.send(BODY)
    assert scope.cancelled_caught
    await chat.aclose()
    await chat.aclose()


async def test_forty_at_once_and_connections_are_used_again(stream_server):
    server = stream_server(WHOLE)
    chat, replies = WireModel(HttpTransport(server.base_url, KEY, timeouts=PATIENT), CHAT), []

    async def one() -> None:
        replies.append(text_of(await chat.send(BODY)))

    async with anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(one)
    await chat.aclose()
    assert replies == ["那个 – é 😀"] * 40


@pytest.mark.parametrize("url", ["", "host/v1", "ftp://x/v1", "http://", "http://a b/", "https://[::1"])
def test_addresses_that_cannot_be_used(url: str):
    with pytest.raises(UsageError, match="BASE_URL_INVALID"):
        HttpTransport(url)


@pytest.mark.parametrize("key", ["sk-é", "sk-\nx", "sk\x00"])
def test_B075_keys_that_cannot_be_in_a_header_are_not_shown(key: str):
    with pytest.raises(UsageError, match="API_KEY_INVALID") as caught:
        HttpTransport("http://127.0.0.1/v1", key)
    assert key not in str(caught.value)
    assert HttpTransport("http://127.0.0.1/v1", " sk-ok\n").host == "127.0.0.1"
