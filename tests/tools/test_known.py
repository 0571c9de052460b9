"""What a model knows of its files, and that a command which changes them is noticed by content (B046, B4)."""

import os

import pytest


async def told(scene, command: str) -> list[str]:
    done = await scene.do("bash", command=command)
    return [line for line in done.text.splitlines() if line.startswith("[files that you had seen")]


async def test_B046_a_command_that_changes_known_files_says_so_once(scene):
    for name in ("a.py", "b.py", "c.py"):
        scene.put(name, "x = 1\n")
    await scene.do("read", path="a.py")
    await scene.do("read", path="b.py")
    assert await told(scene, "sed -i s/1/2/ a.py c.py") == ["[files that you had seen are changed now: a.py]"]
    assert await told(scene, "true") == []
    assert await told(scene, "rm b.py") == ["[files that you had seen are changed now: b.py]"]


async def test_B046_a_file_that_was_only_touched_is_not_changed(scene):
    scene.put("a.py", "x = 1\n")
    await scene.do("read", path="a.py")
    assert await told(scene, "touch a.py; cp a.py b.py; mv b.py a.py") == []
    assert (await scene.do("write", path="a.py", content="x = 3\n")).code == "ok"


async def test_B046_the_refusal_of_a_stale_write_names_the_command(scene):
    scene.put("a.py", "x = 1\ny = 1\n")
    await scene.do("read", path="a.py")
    await scene.do("bash", command="sed -i s/y/z/ a.py")
    refused = await scene.do("write", path="a.py", content="x = 3\n")
    assert refused.code == "STALE"
    assert "changed since you last saw it (by bash at step 0); nothing was written. Changed line 2:" in refused.text
    assert scene.bytes_of("a.py") == b"x = 1\nz = 1\n"
    await scene.do("read", path="a.py")
    assert (await scene.do("write", path="a.py", content="x = 3\n")).code == "ok"


async def test_B046_size_and_times_may_be_the_same(scene):
    path = scene.put("a.py", "x = 1\n")
    await scene.do("read", path="a.py")
    before = path.stat()
    command = f"printf 'x = 2\\n' > a.py; touch -d @{before.st_mtime_ns / 1e9:.9f} a.py"
    assert await told(scene, command) == ["[files that you had seen are changed now: a.py]"]
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (await scene.do("write", path="a.py", content="y\n")).code == "STALE"


@pytest.mark.parametrize("kind", ["mkfifo a.py", "ln -s /etc/passwd a.py", "mkdir a.py"])
async def test_what_has_become_no_file_is_changed_and_not_waited_for(scene, kind):
    scene.put("a.py", "x = 1\n")
    await scene.do("read", path="a.py")
    assert await told(scene, f"rm a.py; {kind}") == ["[files that you had seen are changed now: a.py]"]


async def test_many_changed_files_are_counted(scene):
    for number in range(13):
        scene.put(f"f{number:02}", "x\n")
        await scene.do("read", path=f"f{number:02}")
    [line] = await told(scene, "for f in f*; do echo y > $f; done")
    assert line.endswith("f08, f09 and 3 more]")
    done = await scene.do("bash", command="for f in f*; do echo z > $f; done")
    assert len(done.paths_changed) == 13
