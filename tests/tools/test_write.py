"""B046 and the crash protocol of changes."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.tools.scene import Scene
from xnagent.ports import Intent


@pytest.mark.parametrize("keeps_time", [False, True])
async def test_B046_a_write_over_somebody_elses_change_is_refused(scene, keeps_time):
    path = scene.put("notes.md", "alpha\nbeta\n")
    await scene.do("read", path="notes.md")
    before = path.stat()
    theirs = "alpha\nBETA\n" if keeps_time else "alpha\nBETA-user\n"
    path.write_text(theirs)
    if keeps_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    refused = await scene.do("write", path="notes.md", content="alpha\nbeta\ngamma\n")
    assert refused.code == "STALE"
    assert "2\tBETA" in refused.text
    assert path.read_text() == theirs
    assert (await scene.do("write", path="notes.md", content="again")).code == "STALE"
    await scene.do("read", path="notes.md")
    assert (await scene.do("write", path="notes.md", content=theirs + "gamma\n")).code == "ok"
    assert path.read_text() == theirs + "gamma\n"


async def test_B046_an_edit_is_made_in_the_fresh_content(scene):
    path = scene.put("notes.md", "alpha\nbeta\n")
    await scene.do("read", path="notes.md")
    path.write_text("alpha\nBETA-user\n")
    done = await scene.do("edit", path="notes.md", old="alpha", new="ALPHA")
    assert done.code == "ok"
    assert "had changed" in done.text
    assert path.read_text() == "ALPHA\nBETA-user\n"
    assert (await scene.do("write", path="notes.md", content="alpha\nbeta\n")).code == "STALE"


async def test_a_file_that_was_never_read_is_not_replaced(scene):
    scene.put("a", "precious\n")
    refused = await scene.do("write", path="a", content="x")
    assert refused.code == "NOT_READ"
    assert scene.bytes_of("a") == b"precious\n"
    same = await scene.do("write", path="a", content="precious\n")
    assert same.code == "ok"
    assert "already" in same.text


async def test_a_change_by_bash_is_noticed_at_the_next_write(scene):
    await scene.do("write", path="a", content="one\n")
    await scene.do("bash", command="echo two >> a")
    refused = await scene.do("write", path="a", content="three\n")
    assert refused.code == "STALE"
    assert "2\ttwo" in refused.text


async def test_write_makes_folders_and_keeps_the_mode(scene):
    done = await scene.do("write", path="x/y/z.sh", content="echo hi\n")
    assert done.text == "Created x/y/z.sh (1 lines, 8 bytes)."
    (scene.root / "x/y/z.sh").chmod(0o750)
    await scene.do("write", path="x/y/z.sh", content="echo ho\n")
    assert (scene.root / "x/y/z.sh").stat().st_mode & 0o777 == 0o750
    assert scene.bytes_of("x/y/z.sh") == b"echo ho\n"


async def test_new_line_ends_are_told(scene):
    scene.put("a", b"x\r\ny\r\n")
    await scene.do("read", path="a")
    done = await scene.do("write", path="a", content="x\nz\n")
    assert scene.bytes_of("a") == b"x\nz\n"
    assert "LF now" in done.text


@pytest.mark.parametrize("path", ["d", "d/", ".", "f/x", ".git/config", "sub/.git/hooks/pre-commit"])
async def test_what_is_no_place_for_a_file_is_refused(scene, path):
    (scene.root / "d").mkdir()
    scene.put("f", "x")
    refused = await scene.do("write", path=path, content="x")
    assert refused.code in {"IS_DIRECTORY", "NOT_FOUND", "DENIED"}
    assert sorted(path.name for path in scene.root.iterdir()) == ["d", "f"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("write", {"path": "a", "content": "new\n"}), ("edit", {"path": "a", "old": "old", "new": "new"})],
)
async def test_after_a_crash_the_hashes_tell_what_happened(tmp_path, tool, arguments):
    scene = Scene(tmp_path)
    path = scene.put("a", "old\n")
    await scene.do("read", path="a")
    call, started = await scene.begin(tool, **arguments)
    later = Scene(tmp_path).tools[tool]
    assert await later.reconcile(call, started) is None
    path.write_text("new\n")
    done = await later.reconcile(call, started)
    assert (done.code, done.paths_changed) == ("ok", ("a",))
    path.write_text("half\n")
    unknown = await later.reconcile(call, started)
    assert unknown.code == "INTERRUPTED"
    assert path.read_text() == "half\n"


async def test_after_a_crash_a_new_file_is_recognised(scene):
    call, started = await scene.begin("write", path="n", content="x")
    assert started.before == "n absent"
    assert await scene.tools["write"].reconcile(call, started) is None
    await scene.tools["write"].run(call, Intent(effect="checkable"))
    assert (await scene.tools["write"].reconcile(call, started)).code == "ok"


@pytest.fixture
def other_file_system(scene):
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == scene.root.stat().st_dev:
        pytest.skip("needs a second file system")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


async def test_a_change_crosses_file_systems(scene, other_file_system):
    scene.folder.scratch = other_file_system
    scene.put("a", "y").chmod(0o640)
    assert (await scene.do("edit", path="a", old="y", new="x")).code == "ok"
    assert scene.bytes_of("a") == b"x"
    assert (scene.root / "a").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in scene.root.iterdir()] == ["a"]
    assert list(other_file_system.iterdir()) == []
