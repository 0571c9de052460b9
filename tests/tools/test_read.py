"""M107, B030, B041: reading files, directories and artifacts in pages."""

import pytest

from tests.tools.scene import Scene


async def test_lines_are_numbered_and_paged(scene):
    scene.put("a", "".join(f"line {n}\n" for n in range(1, 951)))
    first = await scene.do("read", path="a", limit=200)
    assert first.text.startswith("1\tline 1\n2\tline 2\n")
    assert first.text.endswith("[lines 1–200 of 950; continue with offset=201]")
    last = await scene.do("read", path="a", offset=-2)
    assert last.text == "949\tline 949\n950\tline 950\n[lines 949–950 of 950; end]"
    assert last.paths_read == ("a",)
    beyond = await scene.do("read", path="a", offset=951)
    assert beyond.code == "BAD_ARGS"
    assert "950 lines" in beyond.text


async def test_a_page_has_at_most_2000_lines_and_50000_bytes(scene):
    scene.put("many", "x\n" * 5_000)
    assert "[lines 1–2000 of 5000; continue with offset=2001]" in (await scene.do("read", path="many")).text
    scene.put("wide", "é" * 900 + "\n" + ("é" * 900 + "\n") * 99)
    wide = await scene.do("read", path="wide")
    assert len(wide.text.encode()) < 51_000
    assert "continue with offset=28" in wide.text


async def test_B030_a_file_of_one_line(scene):
    scene.put("one.min.js", "a" + "x" * 1_999_998 + "z")
    done = await scene.do("read", path="one.min.js")
    assert len(done.text) < 2_200
    assert done.text.startswith("1\tax")
    assert "more characters" in done.text
    assert "xz\n[line 1 is cut; see up to 48,000 characters" in done.text
    more = await scene.do("read", path="one.min.js", limit=1)
    assert 47_000 < len(more.text) < 49_000


async def test_M107_T21_an_artifact_is_read_as_text_not_as_another_ticket(scene):
    ticket = scene.artifacts.put("".join(f"{n} é\n" for n in range(5_000)).encode())
    done = await scene.do("read", path=ticket, limit=2)
    assert done.text.startswith("1\t0 é\n2\t1 é\n[lines 1–2 of 5000")
    assert done.artifact is None
    assert (await scene.do("read", file=f"{ticket}.", offset=-1)).text.startswith("5000\t4999 é")


@pytest.mark.parametrize("ticket", ["artifact:0123456789abcdef", "artifact:nothing"])
async def test_T22_a_missing_artifact_says_what_to_do(scene, ticket):
    missing = await scene.do("read", path=ticket)
    assert missing.code == "NOT_FOUND"


async def test_odd_files_are_named_for_what_they_are(scene):
    scene.put("empty", "")
    scene.put("crlf", b"a\r\nb\r\n")
    scene.put("pic.png", b"\x89PNG\0\0")
    scene.put("latin", b"caf\xe9\n")
    scene.put("wide.txt", "\ufeffhéllo\n".encode("utf-16-le"))
    assert (await scene.do("read", path="empty")).text == "[empty is empty]"
    assert (await scene.do("read", path="crlf")).text == "1\ta\n2\tb\n[CRLF line ends; edit keeps them]"
    assert (await scene.do("read", path="wide.txt")).text.startswith("1\théllo\n")
    binary = await scene.do("read", path="pic.png")
    assert binary.code == "NOT_TEXT"
    assert "6 bytes" in binary.text
    latin = await scene.do("read", path="latin")
    assert latin.code == "NOT_TEXT"
    assert "iconv" in latin.text


async def test_a_directory_is_listed(scene):
    scene.put("d/b", "x")
    scene.put("d/a/c", "x")
    (scene.root / "d/l").symlink_to("b")
    assert (await scene.do("read", path="d")).text == "d/ (3 entries)\na/\nb\nl -> b"
    for n in range(250):
        scene.put(f"many/{n:03}", "")
    many = await scene.do("read", path="many/")
    assert "[50 more entries; narrow with glob]" in many.text
    (scene.root / "none").mkdir()
    assert (await scene.do("read", path="none")).text == "[none/ is empty]"


async def test_a_very_large_file_is_left_to_other_tools(scene):
    with (scene.root / "huge").open("wb") as file:
        file.truncate(40_000_000)
    refused = await scene.do("read", path="huge")
    assert refused.code == "TOO_LARGE"
    assert "grep" in refused.text


async def test_the_planner_reads_paths_and_tickets(tmp_path):
    scene = Scene(tmp_path, role="planner")
    scene.put("src/a.py", "x = 1\n")
    assert sorted(scene.tools) == ["glob", "grep", "read"]
    assert (await scene.do("read", target="src/a.py")).text == "1\tx = 1"
    assert (await scene.do("read", path="src/a.py")).text == "1\tx = 1"
    ticket = scene.artifacts.put(b"evidence\n")
    scene.folder = None
    assert (await scene.do("read", target=ticket)).text == "1\tevidence"
    assert (await scene.do("read", target="src/a.py")).code == "NO_WORKSPACE"
    assert (await scene.do("grep", pattern="x")).code == "NO_WORKSPACE"
