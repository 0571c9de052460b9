"""M99: every cut keeps head and tail, stays below its limit and never splits a character."""

from hypothesis import given
from hypothesis import strategies as st

from xnagent.tools.output import clip_line, clip_lines, printed, readable
from xnagent.tools.pages import page

LONG = st.builds(
    lambda pieces: "".join(text * count for text, count in pieces),
    st.lists(st.tuples(st.text("aé😀\n ", max_size=5), st.integers(0, 900)), max_size=8),
)


@given(LONG, st.integers(200, 3000))
def test_a_clip_never_exceeds_its_limit(text, limit):
    cut = clip_lines(text, limit, how_to_get="full output: artifact:0123456789abcdef")
    assert len(cut) <= limit
    cut.encode()
    if len(text) <= limit and all(len(line) <= 2_000 for line in text.split("\n")):
        assert cut == text
    elif text.strip():
        assert "…" in cut


@given(st.text(max_size=400), st.integers(60, 300))
def test_a_line_is_cut_within_its_limit(line, limit):
    cut = clip_line(line, limit)
    assert len(cut) <= limit
    assert cut == line or cut.startswith(line[:10])


@given(st.binary(max_size=300))
def test_readable_text_can_be_sent(data):
    text = readable(data)
    assert "\0" not in text
    assert "\x1b" not in text
    text.encode()


def test_a_large_spool_is_cut_between_characters(tmp_path):
    spool = tmp_path / "s"
    for shift in range(4):
        spool.write_bytes(b"x" * shift + "😀".encode() * 400_000)
        shown = printed(spool, limit=5_000)
        assert "\ufffd" not in shown.text
        assert not shown.is_whole
        assert len(shown.text) <= 5_000


@given(LONG, st.integers(-50, 50), st.integers(1, 40))
def test_a_page_is_bounded_and_numbered(text, offset, limit):
    total = text.count("\n") + bool(text and not text.endswith("\n"))
    if not text or offset > total:
        return
    shown = page(text, name="f", offset=offset, limit=limit)
    assert 1 <= shown.first <= shown.last <= shown.total == total
    assert shown.last - shown.first < limit
    assert [int(line.split("\t")[0]) for line in shown.text.split("\n")] == list(range(shown.first, shown.last + 1))
