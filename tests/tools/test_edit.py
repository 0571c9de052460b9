"""B040 to B045: the edit tool on real files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.ports import Intent
from xnagent.tools.matching import find, replaced

BOM = b"\xef\xbb\xbf"


async def test_B040_crlf_is_matched_and_kept(scene):
    scene.put("a.py", b"def f():\r\n    return 1\r\n\r\ndef g():\r\n    return 2\r\n")
    done = await scene.do("edit", path="a.py", old="def f():\n    return 1\n", new="def f():\n    return 10\n")
    assert done.code == "ok"
    assert "line ends" in done.text
    assert scene.bytes_of("a.py") == b"def f():\r\n    return 10\r\n\r\ndef g():\r\n    return 2\r\n"


async def test_B040_mixed_line_ends_are_kept(scene):
    scene.put("m", b"a = 1\nb = 2\r\nc = 3\n")
    await scene.do("edit", path="m", old="b = 2", new="b = 20")
    assert scene.bytes_of("m") == b"a = 1\nb = 20\r\nc = 3\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc", "1\n2\n3", b"1\r\n2\n3\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "a\r\nB", b"a\r\nB\r\n"),
        (b"a\r\nb", "a\nb", "a\nc", b"a\r\nc"),
        (b"a\nb\n", "a\r\nb\r\n", "a\nc\n", b"a\nc\n"),
        (b"one\r\ntwo", "two", "two\nthree", b"one\r\ntwo\r\nthree"),
    ],
)
async def test_B040_new_lines_end_like_their_surroundings(scene, before, old, new, after):
    scene.put("f", before)
    assert (await scene.do("edit", path="f", old=old, new=new)).code == "ok"
    assert scene.bytes_of("f") == after


async def test_B041_the_byte_order_mark_stays_and_is_not_seen(scene):
    scene.put("b.txt", BOM + "hello\n中文\n".encode())
    assert (await scene.do("read", path="b.txt")).text == "1\thello\n2\t中文"
    assert (await scene.do("edit", path="b.txt", old="hello", new="hello2")).code == "ok"
    assert scene.bytes_of("b.txt") == BOM + "hello2\n中文\n".encode()
    assert (await scene.do("write", path="b.txt", content="hello2\nnew\n")).code == "ok"
    assert scene.bytes_of("b.txt") == BOM + b"hello2\nnew\n"
    assert (await scene.do("edit", path="b.txt", old="hello2\n", new="hello3\n")).code == "ok"
    assert scene.bytes_of("b.txt") == BOM + b"hello3\nnew\n"


async def test_B041_utf16_is_edited_as_utf16(scene):
    scene.put("w.txt", b"\xff\xfe" + "eins\r\nzwei\r\n".encode("utf-16-le"))
    assert (await scene.do("edit", path="w.txt", old="eins\nzwei", new="eins\ndrei")).code == "ok"
    assert scene.bytes_of("w.txt") == b"\xff\xfe" + "eins\r\ndrei\r\n".encode("utf-16-le")


@pytest.mark.parametrize(("old", "new", "every"), [("", "X", True), ("", "X", False), ("abcd", "abcd", False)])
async def test_B042_empty_or_equal_texts_are_refused(scene, old, new, every):
    scene.put("f", "abcd")
    refused = await scene.do("edit", path="f", old=old, new=new, all=every)
    assert refused.code == ("NO_CHANGE" if old else "BAD_ARGS")
    assert scene.bytes_of("f") == b"abcd"


async def test_B042_an_empty_file_is_for_write(scene):
    scene.put("f", "")
    refused = await scene.do("edit", path="f", old="", new="X")
    assert refused.code == "BAD_ARGS"
    assert "use write" in refused.text
    assert (await scene.do("write", path="f", content="X")).code == "ok"


@pytest.mark.parametrize(
    "new",
    ['log("$& ok");', "PID=$$", "a $` b $' c", 'x = r"\\1 \\g<0> \\n \\\\"', "{0} %s ${HOME}", "\\", "\\U\\E", "\t\\t"],
)
async def test_B043_new_text_is_data(scene, new):
    scene.put("f", 'log("done");\n')
    await scene.do("edit", path="f", old='log("done");', new=new)
    assert scene.bytes_of("f") == new.encode() + b"\n"


PHP = b"$t = 'Carta d\xe2\x80\x99identit\xc3\xa0';\nsay('%s');\n"


async def test_B044_wanted_curly_quotes_are_written(scene):
    scene.put("t.php", PHP)
    assert (await scene.do("edit", path="t.php", old="say('%s');", new="say(\u2018%s\u2019);")).code == "ok"
    assert scene.bytes_of("t.php") == PHP.replace(b"say('%s');", b"say(\xe2\x80\x98%s\xe2\x80\x99);")


async def test_B044_look_alikes_match_and_no_quote_of_the_file_changes(scene):
    scene.put("t.php", PHP)
    done = await scene.do("edit", path="t.php", old="Carta d'identità", new="Carta d'oro")
    assert done.code == "ok"
    assert "look-alike" in done.text
    assert scene.bytes_of("t.php") == b"$t = 'Carta d\xe2\x80\x99oro';\nsay('%s');\n"


async def test_B044_a_lone_curly_quote_is_written(scene):
    await scene.do("write", path="q", content="\u201c")
    assert scene.bytes_of("q") == b"\xe2\x80\x9c"


async def test_B045_six_edits_of_one_turn_are_all_there(scene):
    scene.put("n", "".join(f"{n}\n" for n in range(1, 101)))
    words = {10: "TEN", 20: "TWENTY", 30: "THIRTY", 40: "FORTY", 50: "FIFTY", 60: "SIXTY"}
    for number, word in words.items():
        done = await scene.do("edit", path="n", old=f"\n{number}\n", new=f"\n{word}\n")
        assert done.code == "ok"
    assert scene.bytes_of("n").decode().split() == [words.get(n, str(n)) for n in range(1, 101)]


async def test_trailing_whitespace_is_bridged_for_whole_lines(scene):
    scene.put("a.py", "x = 1  \ny = 2\t\nz = 3\n")
    done = await scene.do("edit", path="a.py", old="x = 1\ny = 2\n", new="x = 1\ny = 5\n")
    assert "trailing whitespace" in done.text
    assert scene.bytes_of("a.py") == b"x = 1\ny = 5\nz = 3\n"


async def test_a_missing_final_line_end_stays_missing(scene):
    scene.put("a", "x\ny")
    await scene.do("edit", path="a", old="y\n", new="z\n")
    assert scene.bytes_of("a") == b"x\nz"


@pytest.mark.parametrize("given", ["", "        "])
async def test_indentation_is_shifted_as_a_whole(scene, given):
    scene.put("a.py", "def f():\n    if a:\n        b()\n    e()\n")
    old = f"{given}if a:\n{given}    b()\n{given}e()\n"
    new = f"{given}if a:\n{given}    c()\n\n{given}    d()\n{given}e()\n"
    done = await scene.do("edit", path="a.py", old=old, new=new)
    assert "indentation" in done.text
    assert scene.bytes_of("a.py") == b"def f():\n    if a:\n        c()\n\n        d()\n    e()\n"


async def test_indentation_that_differs_by_line_is_not_bridged(scene):
    scene.put("a.py", "def f():\n    if a:\n      b()\n")
    refused = await scene.do("edit", path="a.py", old="      if a:\n      b()\n", new="x")
    assert refused.code == "NO_MATCH"
    assert "indented with" in refused.text
    assert scene.bytes_of("a.py") == b"def f():\n    if a:\n      b()\n"


async def test_several_places_are_named(scene):
    scene.put("a", "foo\nbar\nfoo\nx foo\n")
    refused = await scene.do("edit", path="a", old="foo", new="baz")
    assert refused.code == "NOT_UNIQUE"
    assert "lines 1, 3, 4" in refused.text
    done = await scene.do("edit", path="a", old="foo", new="baz", all=True)
    assert "3 places" in done.text
    assert scene.bytes_of("a") == b"baz\nbar\nbaz\nx baz\n"


async def test_overlapping_places_are_not_unique(scene):
    scene.put("a", "aaa")
    assert (await scene.do("edit", path="a", old="aa", new="b")).code == "NOT_UNIQUE"


async def test_a_lenient_match_at_several_places_is_refused_even_for_all(scene):
    scene.put("a", "x = 1 \ny\nx = 1\t\n")
    refused = await scene.do("edit", path="a", old="x = 1\n", new="x = 2\n", all=True)
    assert refused.code == "NOT_UNIQUE"


async def test_the_nearest_lines_are_shown(scene):
    scene.put("a.py", "import os\n\ndef compute(alpha):\n\treturn alpha + 1\n\nprint(compute(3))\n")
    refused = await scene.do("edit", path="a.py", old="def compute(alpha):\n    return alpha + 2\n", new="x")
    assert refused.code == "NO_MATCH"
    assert "lines 3–4" in refused.text
    assert "3\tdef compute(alpha):" in refused.text
    assert "line 4" in refused.text


async def test_a_change_that_is_there_already_is_told(scene):
    scene.put("a.py", "one\ntwo = compute(2)\n")
    refused = await scene.do("edit", path="a.py", old="two = 2\n", new="two = compute(2)\n")
    assert refused.code == "ALREADY_APPLIED"
    assert "line 2" in refused.text


async def test_the_result_shows_the_region_and_the_mode_stays(scene):
    path = scene.put("run.sh", "".join(f"echo {n}\n" for n in range(1, 21)))
    path.chmod(0o755)
    done = await scene.do("edit", path="run.sh", old="echo 10\n", new="echo ten\n")
    assert done.text.splitlines()[1:] == [
        "7\techo 7",
        "8\techo 8",
        "9\techo 9",
        "10\techo ten",
        "11\techo 11",
        "12\techo 12",
        "13\techo 13",
    ]
    assert done.paths_changed == ("run.sh",)
    assert path.stat().st_mode & 0o777 == 0o755
    assert list(scene.folder.scratch.iterdir()) == []


async def test_a_missing_file_names_similar_ones(scene):
    scene.put("src/food.py", "x")
    scene.put("lib/foo.py", "x")
    missing = await scene.do("edit", path="src/foo.py", old="x", new="y")
    assert missing.code == "NOT_FOUND"
    assert "src/food.py" in missing.text
    assert "lib/foo.py" in missing.text


async def test_very_many_places_are_not_counted(scene):
    scene.put("a", "a" * 1_000_000)
    for every in (False, True):
        refused = await scene.do("edit", path="a", old="a", new="b", all=every)
        assert refused.code == "NOT_UNIQUE"
    assert "10,000 places" in refused.text


async def test_a_large_region_is_shown_at_its_ends(scene):
    scene.put("a", "x\n")
    done = await scene.do("edit", path="a", old="x\n", new="".join(f"{n}\n" for n in range(500)))
    assert len(done.text.splitlines()) == 42
    assert "460 lines" in done.text


async def test_deleting_everything_is_possible(scene):
    scene.put("a", "x\n")
    assert (await scene.do("edit", path="a", old="x\n", new="")).code == "ok"
    assert scene.bytes_of("a") == b""


LINES = st.lists(st.sampled_from(["a", "b", "  a", "\ta", "a ", "", "b'", "b’", "x = 1"]), min_size=1, max_size=8)


@given(LINES, LINES, LINES, st.sampled_from(["\n", "\r\n"]))
def test_an_edit_changes_only_places_that_read_like_the_old_text(lines, old, new, end):
    text, wanted, put = end.join(lines) + end, "\n".join(old), "\n".join(new)
    if not wanted:
        return
    found = find(text, wanted, new=put, is_all=False)
    if len(found.matches) != 1:
        return
    match = found.matches[0]
    after = replaced(text, found.matches)
    assert after == text[: match.start] + match.new + text[match.end :]

    def read(piece):
        return "".join(piece.replace("’", "'").split())

    start, stop = match.start, match.end
    context = text[max(0, start - len(wanted) * 2 - 4) : stop + len(wanted) * 2 + 4]
    assert read(wanted) in read(context)
    if not found.rung:
        assert text[start:stop] == wanted


@given(st.text("ab’'\n\r ", max_size=40), st.text("ab’'\n ", min_size=1, max_size=6))
def test_edits_never_fail_on_strange_texts(text, old):
    found = find(text, old, new="N", is_all=True)
    assert list(found.matches) == sorted(found.matches, key=lambda match: match.start)
    if found.matches and found.is_lossless:
        ends = [0, *(match.end for match in found.matches)]
        assert all(match.start >= end for match, end in zip(found.matches, ends, strict=False))


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (
            "if a:\n\tif b:\n\t\tc()\n",
            "    if b:\n        c()\n",
            "    if b:\n        d()\n",
            "if a:\n\tif b:\n\t\td()\n",
        ),
        ("if a:\n\tc()\n", "    c()\n", "    if b:\n        c()\n", "if a:\n\tif b:\n\t\tc()\n"),
        (
            "if a:\n  if b:\n    c()\n",
            "if a:\n\tif b:\n\t\tc()",
            "if a:\n\tif b:\n\t\td()",
            "if a:\n  if b:\n    d()\n",
        ),
    ],
)
async def test_tabs_are_bridged_for_spaces_where_one_unit_fits_all_lines(scene, before, old, new, after):
    scene.put("a.py", before)
    done = await scene.do("edit", path="a.py", old=old, new=new)
    assert "the file's tabs or spaces" in done.text
    assert scene.bytes_of("a.py").decode() == after


@pytest.mark.parametrize(
    ("before", "old", "new"),
    [
        ("if a:\n\tif b:\n\t\tc()\n", "    if b:\n      c()\n", "x\n"),
        ("if a:\n\tc()\n", "    c()\n", "      d()\n"),
        ("if a:\n \tc()\n", "    c()\n", "    d()\n"),
    ],
)
async def test_tabs_and_spaces_without_one_unit_are_not_bridged(scene, before, old, new):
    scene.put("a.py", before)
    assert (await scene.do("edit", path="a.py", old=old, new=new)).code == "NO_MATCH"
    assert scene.bytes_of("a.py").decode() == before


async def test_B045_a_planned_edit_is_made_anew_if_the_file_changed_before_it_runs(scene):
    scene.put("a.py", "one\ntwo\n")
    call, _ = await scene.begin("edit", path="a.py", old="two", new="2")
    scene.put("a.py", "ONE\nmore\ntwo\n")
    done = await scene.tools["edit"].run(call, Intent(effect="checkable"))
    assert (done.code, scene.bytes_of("a.py")) == ("ok", b"ONE\nmore\n2\n")


async def test_an_edit_of_a_file_that_others_changed_is_not_taken_for_the_next_commands_work(scene):
    scene.put("a.py", "one\ntwo\n")
    await scene.do("read", path="a.py")
    scene.put("a.py", "ONE\ntwo\n")
    assert "had changed since" in (await scene.do("edit", path="a.py", old="two", new="2")).text
    assert "are changed now" not in (await scene.do("bash", command="true")).text
    assert (await scene.do("write", path="a.py", content="x")).code == "STALE"
