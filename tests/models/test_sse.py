"""Our parser of server-sent events against another one, on whatever bytes and however they are cut."""

import itertools

import httpx
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from xnagent.models.sse import EventParser

PARTS = st.sampled_from(
    [
        b"data",
        b"data:",
        b"data: ",
        b"event: x",
        b"id: 1",
        b"retry: 2",
        b":",
        b": ping",
        b" ",
        b"a",
        b"{}",
        b"[DONE]",
        "é".encode(),
        "\u2028".encode(),
        "😀".encode(),
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\r\n\r\n",
        b"\r\r",
        b"datax: 1",
    ]
)
STREAMS = st.lists(PARTS, max_size=30).map(b"".join)


def expected(stream: bytes) -> list[str]:
    """What the other parser says, which tells an event without data too."""
    response = httpx.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=stream)
    return [event.data for event in EventSource(response).iter_sse()]


def parsed(stream: bytes, cuts: list[int]) -> list[str]:
    parser = EventParser()
    places = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    return [data for begin, end in itertools.pairwise(places) for data in list(parser.feed(stream[begin:end]))]


@given(STREAMS, st.lists(st.integers(0, 400), max_size=8))
def test_B013_B014_it_says_what_the_standard_says_however_the_stream_is_cut(stream: bytes, cuts: list[int]):
    found = parsed(stream, cuts)
    # A line end at the very end may be half of one, and then the event is only complete with the next byte.
    told = [data for data in expected(stream + b"x" if stream.endswith(b"\r") else stream) if data]
    assert [data for data in found if data] == told


@given(STREAMS)
def test_cut_into_single_bytes_it_is_the_same(stream: bytes):
    assert parsed(stream, list(range(len(stream)))) == parsed(stream, [])


def test_what_nothing_closed_is_told_at_the_end():
    parser = EventParser()
    assert list(parser.feed(b"data: 1\n\ndata: {\ndata: }")) == ["1"]
    assert parser.open_bytes == len(b"data: }")
    assert parser.finish() == "{\n}"


def test_bytes_that_are_no_text_are_replaced():
    assert list(EventParser().feed(b"data: a\xff\n\n")) == ["a\ufffd"]
