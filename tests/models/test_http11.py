"""Answers out of bytes, held against h11: where it reads one, we read the same; what it refuses is refused."""

from itertools import pairwise

import h11
from hypothesis import example, given
from hypothesis import strategies as st

from xnagent.models.http11 import AnswerError, AnswerReader

BODY = st.binary(max_size=40)
PIECES = st.lists(st.binary(min_size=1, max_size=30), max_size=6)
FIELDS = st.sampled_from(
    (b"Content-Type: text/event-stream", b"connection: close", b"Connection: keep-alive, x", b"X-Empty:", b"x:\t a b ")
)
STATUS = st.sampled_from((b"200 OK", b"200", b"200 ", b"429 Too Many Requests", b"500 X"))
VERSION = st.sampled_from((b"1.1", b"1.1", b"1.1", b"1.0"))


def chunked(pieces: list[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    chunks = (b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces)
    return b"".join(chunks) + b"0\r\n" + trailers + b"\r\n"


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Whole answers, as servers send them."""
    fields = draw(st.lists(FIELDS, max_size=3))
    pieces = draw(PIECES)
    match draw(st.sampled_from(("length", "chunked", "close"))):
        case "length":
            body = b"".join(pieces)
            fields.append(b"Content-Length: %d" % len(body))
        case "chunked":
            body = chunked(
                pieces, draw(st.sampled_from((b"", b";a=b", b" "))), draw(st.sampled_from((b"", b"a: b\r\n")))
            )
            fields.append(b"Transfer-Encoding: chunked")
        case _:
            body = b"".join(pieces)
    informational = draw(st.sampled_from((b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\na: b\r\n\r\n")))
    first = b"HTTP/%s %s" % (draw(VERSION), draw(STATUS))
    return informational + b"\r\n".join((first, *fields, b"", b"")) + body


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(marks)]


Read = tuple[int, list[tuple[bytes, bytes]], bytes, bool]


def read_by_us(chunks: list[bytes], *, is_closed: bool = False) -> Read | str:
    """Status, headers, body, and whether another request may follow; or that it was refused."""
    reader, body = AnswerReader(), bytearray()
    try:
        for chunk in chunks:
            body += reader.feed(chunk)
        if is_closed:
            reader.close()
    except AnswerError:
        return "refused"
    if reader.head is None or not reader.is_whole:
        return "unfinished"
    return (
        reader.head.status,
        [(name.lower(), value) for name, value in reader.head.headers],
        bytes(body),
        reader.can_follow,
    )


def read_by_h11(chunks: list[bytes], *, is_closed: bool = False) -> Read | str:
    connection = h11.Connection(our_role=h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    head, body = None, bytearray()
    try:
        for chunk in [*chunks, *([b""] if is_closed else [])]:
            connection.receive_data(chunk)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                match event:
                    case h11.Response():
                        head = event
                    case h11.Data():
                        body += event.data
                    case h11.EndOfMessage():
                        can_follow = (connection.our_state, connection.their_state) == (h11.DONE, h11.DONE)
                        rest, _ = connection.trailing_data
                        is_usable = can_follow and not rest and chunk != b""
                        return head.status_code, list(head.headers), bytes(body), is_usable
                    case h11.ConnectionClosed():
                        return "refused"
    except h11.RemoteProtocolError:
        return "refused"
    return "unfinished"


@given(answers(), st.lists(st.integers(min_value=0), max_size=6))
def test_whole_answers_are_read_as_h11_reads_them(data: bytes, places: list[int]):
    expected = read_by_h11([data], is_closed=True)
    found = read_by_us(cut(data, places), is_closed=True)
    assert found == expected


@given(answers(), st.data())
def test_B019_an_answer_that_is_cut_is_never_taken_for_a_whole_one(data: bytes, draw: st.DataObject):
    part = data[: draw.draw(st.integers(min_value=0, max_value=len(data)))]
    expected = read_by_h11([part], is_closed=True)
    assert read_by_us(cut(part, [3, 17, 40]), is_closed=True) == expected


@given(answers(), st.integers(min_value=0), st.binary(min_size=1, max_size=3))
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 47, b"\n")
def test_what_h11_refuses_is_not_read_to_an_end(data: bytes, place: int, garbage: bytes):
    place %= len(data)
    data = data[:place] + garbage + data[place + len(garbage) :]
    expected, found = read_by_h11([data], is_closed=True), read_by_us([data], is_closed=True)
    if expected == "refused":
        assert found == "refused"
    else:
        assert found in (expected, "refused")
