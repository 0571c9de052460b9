"""B071: no path leads out, and nothing blocks."""

import contextlib
import ctypes
import os
import socket
import stat
from threading import Event, Thread

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.scene import Scene
from xnagent.tools.outcome import RefusedError
from xnagent.tools.paths import locate

AT_FDCWD, RENAME_EXCHANGE = -100, 2


@pytest.fixture
def fenced(tmp_path):
    scene = Scene(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret").write_text("SECRET needle\n")
    (tmp_path / "ws-evil").mkdir()
    (tmp_path / "ws-evil/x").write_text("SECRET needle\n")
    (scene.root / "sub").mkdir()
    (scene.root / "outbox").symlink_to(tmp_path / "out")
    (scene.root / "leak").symlink_to(tmp_path / "out/secret")
    (scene.root / "new").symlink_to(tmp_path / "out/created")
    (scene.root / "up").symlink_to("..")
    return scene


OUTSIDE = [
    "outbox/secret",
    "outbox/x",
    "outbox",
    "leak",
    "new",
    "up/ws-evil/x",
    "../ws-evil/x",
    "sub/../../x",
    "..",
    "/etc/passwd",
    "~/.ssh/id_x",
    "~",
    "~root/x",
    "sub/../../ws-evil/x",
]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_B071_no_tool_goes_outside(fenced, tmp_path, path):
    refused = [
        await fenced.do("read", path=path),
        await fenced.do("write", path=path, content="PWNED"),
        await fenced.do("edit", path=path, old="SECRET", new="PWNED"),
        await fenced.do("grep", pattern="needle", path=path),
        await fenced.do("glob", pattern="**/*", path=path),
    ]
    assert [outcome.code for outcome in refused] == ["OUTSIDE"] * 5
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["secret"]
    assert [path.name for path in (tmp_path / "ws-evil").iterdir()] == ["x"]
    assert (tmp_path / "out/secret").read_text() == "SECRET needle\n"


async def test_B071_an_absolute_sibling_with_the_same_prefix_is_outside(fenced):
    assert (await fenced.do("read", path=f"{fenced.root}-evil/x")).code == "OUTSIDE"


async def test_B071_searches_do_not_follow_links_out(fenced):
    assert "SECRET" not in (await fenced.do("grep", pattern="needle")).text
    assert "secret" not in (await fenced.do("glob", pattern="**/*")).text
    assert (await fenced.do("glob", pattern="../**")).code == "OUTSIDE"
    assert (await fenced.do("glob", pattern="/etc/*")).code == "OUTSIDE"


async def test_B071_links_inside_work(fenced):
    fenced.put("sub/real.txt", "hello\n")
    (fenced.root / "alias").symlink_to("sub/real.txt")
    (fenced.root / "room").symlink_to("sub")
    assert (await fenced.do("read", path="alias")).text == "1\thello"
    assert (await fenced.do("edit", path="room/real.txt", old="hello", new="bye")).code == "ok"
    assert (fenced.root / "alias").is_symlink()
    assert fenced.bytes_of("sub/real.txt") == b"bye\n"
    assert (await fenced.do("write", path="room/fresh", content="x")).paths_changed == ("sub/fresh",)


async def test_B071_a_root_that_is_a_link_works(fenced, tmp_path):
    fenced.put("a", "x\n")
    (tmp_path / "link").symlink_to(fenced.root)
    fenced.folder.root = tmp_path / "link"
    for path in ["a", str(tmp_path / "link/a"), str(tmp_path / "ws/a"), "sub/../a", "./a"]:
        assert (await fenced.do("read", path=path)).text == "1\tx"
    assert (await fenced.do("glob", pattern=f"{tmp_path}/link/*")).code in {"ok", "OUTSIDE"}


@pytest.mark.parametrize("path", ["a\0b", "", "   "])
async def test_B071_paths_that_are_none(fenced, path):
    assert (await fenced.do("read", path=path)).code == "BAD_ARGS"
    assert (await fenced.do("write", path=path, content="x")).code == "BAD_ARGS"


async def test_B071_a_very_long_name_is_an_answer(fenced):
    assert (await fenced.do("read", path="x" * 5000)).code in {"BAD_ARGS", "NOT_FOUND"}
    assert (await fenced.do("write", path="x" * 300, content="x")).code in {"BAD_ARGS", "FAILED"}
    assert (await fenced.do("read", path="\ud800")).code == "NOT_FOUND"


async def test_special_files_never_block(fenced):
    os.mkfifo(fenced.root / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(fenced.root / "sock"))
    (fenced.root / "loop").symlink_to("loop")
    with anyio.fail_after(10):
        for name, kind in [("pipe", "FIFO"), ("sock", "socket"), ("loop", "symbolic link")]:
            refused = await fenced.do("read", path=name)
            assert refused.code == "NOT_TEXT"
            assert kind in refused.text
            assert (await fenced.do("write", path=name, content="x")).code == "NOT_TEXT"
            assert (await fenced.do("edit", path=name, old="x", new="y")).code == "NOT_TEXT"
            assert (await fenced.do("grep", pattern="x", path=name)).code == "NOT_TEXT"
        assert (await fenced.do("grep", pattern="x")).code == "ok"
    server.close()


async def test_links_that_lead_nowhere_are_answers(fenced):
    for number in range(1_200):
        (fenced.root / f"l{number}").symlink_to(f"l{number + 1}")
    (fenced.root / "strange").symlink_to("bad\udcff")
    assert (await fenced.do("read", path="l0")).code in {"OUTSIDE", "NOT_FOUND"}
    assert (await fenced.do("write", path="strange", content="x")).code == "BAD_ARGS"
    assert (await fenced.do("read", path=".")).code == "ok"


NAMES = st.sampled_from(["..", ".", "sub", "outbox", "up", "leak", "~", "x", "ws", "ws-evil", "", "secret"])


@given(st.lists(NAMES, max_size=7), st.booleans())
def test_B071_a_located_place_is_inside(tmp_path_factory, names, absolute):
    base = tmp_path_factory.getbasetemp() / "fence"
    if not base.exists():
        base.mkdir()
        (base / "ws/sub").mkdir(parents=True)
        (base / "ws-evil").mkdir()
        (base / "ws/up").symlink_to("..")
        (base / "ws/outbox").symlink_to(base / "ws-evil")
        (base / "ws/leak").symlink_to("/etc/hostname")
    path = "/".join(names)
    path = f"{base}/ws/{path}" if absolute else path
    with contextlib.suppress(RefusedError):
        place = locate(base / "ws", path)
        _assert_inside(place, base, path)


def _assert_inside(place, base, path):
    real = os.path.realpath(base / "ws" / path)
    assert os.path.commonpath([real, os.path.realpath(base / "ws")]) == os.path.realpath(base / "ws")
    assert place.full == real


async def test_B071_a_folder_that_becomes_a_link_meanwhile_is_no_way_out(fenced, tmp_path):
    """Somebody swaps a folder for a link to the outside, in one step, again and again while the tools work in it."""
    (fenced.root / "sub/f").write_text("inside needle\n")
    (tmp_path / "out/f").write_text("OUTSIDE needle\n")
    (fenced.root / "link").symlink_to(tmp_path / "out")
    exchange, done = ctypes.CDLL(None).renameat2, Event()

    def swap():
        names = [os.fsencode(fenced.root / name) for name in ("sub", "link")]
        while not done.is_set():
            exchange(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)

    swapper = Thread(target=swap)
    swapper.start()
    try:
        texts = []
        for number in range(150):
            texts.append((await fenced.do("read", path="sub/f")).text)
            await fenced.do("edit", path="sub/f", old="needle", new=f"needle {number}")
            await fenced.do("write", path=f"sub/new{number}", content="x")
    finally:
        done.set()
        swapper.join()
    assert not [text for text in texts if "OUTSIDE needle" in text]
    assert [text for text in texts if "inside needle" in text]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["f", "secret"]
    assert (tmp_path / "out/f").read_text() == "OUTSIDE needle\n"


async def test_B071_a_hard_link_is_parted_and_what_it_shared_is_untouched(fenced, tmp_path):
    os.link(tmp_path / "out/secret", fenced.root / "shared")
    await fenced.do("read", path="shared")
    assert (await fenced.do("edit", path="shared", old="SECRET", new="PWNED")).code == "ok"
    assert (await fenced.do("write", path="shared", content="PWNED")).code == "ok"
    assert (tmp_path / "out/secret").read_text() == "SECRET needle\n"


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "x" * 251 + ".txt", f"{'d' * 255}/{'f' * 255}"])
async def test_B071_the_longest_names_work(fenced, name):
    assert (await fenced.do("write", path=name, content="one\n")).code == "ok"
    assert (await fenced.do("edit", path=name, old="one", new="two")).code == "ok"
    assert (await fenced.do("read", path=name)).text == "1\ttwo"
    assert "two" in (await fenced.do("grep", pattern="two", path=name)).text


@pytest.mark.skipif(os.geteuid() != 0, reason="missing facility: only root can make device files")
async def test_devices_are_not_opened(fenced):
    os.mknod(fenced.root / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    with anyio.fail_after(10):
        for tool, more in [("read", {}), ("write", {"content": "x"}), ("edit", {"old": "x", "new": "y"})]:
            refused = await fenced.do(tool, path="zero", **more)
            assert (refused.code, "character device" in refused.text) == ("NOT_TEXT", True)
