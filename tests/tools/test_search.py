"""B072, B030: grep with and without ripgrep, and glob."""

import io
import json
import os
import shutil

import anyio
import pytest

from tests.tools.scene import Scene
from xnagent.tools import walk
from xnagent.tools.grep import GrepTool

RIPGREP = shutil.which("rg")


@pytest.fixture(params=[pytest.param("rg", marks=pytest.mark.skipif(not RIPGREP, reason="no ripgrep")), "walker"])
def scene(request, tmp_path):
    return Scene(tmp_path, ripgrep=RIPGREP if request.param == "rg" else None)


@pytest.fixture
def trap(scene):
    scene.put("p.sh", '#!/bin/sh\ntouch PWNED\ncat "$1"\n').chmod(0o755)
    scene.put("f.txt", "usage: app --help\n-needle\n--pre=./p.sh\n-f/etc/hostname\n")
    return scene


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("--pre=./p.sh", "f.txt:3:--pre=./p.sh"),
        ("--help", "f.txt:1:usage: app --help"),
        ("-needle", "f.txt:2:-needle"),
        ("-f/etc/hostname", "f.txt:4:-f/etc/hostname"),
        ("-e", "f.txt:1:usage"),
    ],
)
async def test_B072_a_pattern_is_never_an_option(trap, pattern, line):
    found = await trap.do("grep", pattern=pattern)
    if pattern == "-e":
        assert found.text.startswith("[no match")
    else:
        assert found.text == line
    assert not (trap.root / "PWNED").exists()


async def test_B072_path_and_glob_are_names(trap):
    assert (await trap.do("grep", pattern="needle", path="--pre=./p.sh")).code == "NOT_FOUND"
    assert (await trap.do("grep", pattern="needle", glob="--pre=./p.sh")).text.startswith("[no match")
    assert (await trap.do("glob", pattern="--pre=./p.sh")).text.startswith("[nothing matches")
    trap.put("-f", "needle\n")
    assert (await trap.do("grep", pattern="needle", path="-f")).text == "-f:1:needle"
    assert (await trap.do("grep", pattern="needle", glob="-f")).text == "-f:1:needle"
    assert not (trap.root / "PWNED").exists()


async def test_results_are_sorted_and_the_same_with_either_program(scene):
    scene.put("b.py", "x\nfoo\ny\n")
    scene.put("a/z.py", b"foo bar\r\nq\r\n")
    scene.put(".hidden", "foo\n")
    scene.put(".git/config", "foo\n")
    scene.put("build/out.py", "foo\n")
    scene.put("a/skip.log", "foo\n")
    scene.put(".gitignore", "build/\n*.log\n")
    scene.put("bin", b"foo\0\n")
    assert (await scene.do("grep", pattern="foo")).text == ".hidden:1:foo\na/z.py:1:foo bar\nb.py:2:foo"
    assert (await scene.do("grep", pattern="bar$")).text == "a/z.py:1:foo bar"
    assert (await scene.do("grep", pattern="foo", glob="*.py")).text == "a/z.py:1:foo bar\nb.py:2:foo"
    assert (await scene.do("grep", pattern="foo", glob="a/**/*.{py,js}")).text == "a/z.py:1:foo bar"
    assert (await scene.do("grep", pattern="foo", glob="!*.py")).text == ".hidden:1:foo"
    assert (await scene.do("grep", pattern="foo", path="build")).text == "build/out.py:1:foo"
    assert (await scene.do("grep", pattern="foo", path="a")).text == "a/z.py:1:foo bar"
    assert (await scene.do("grep", pattern="foo", path="b.py", context=1)).text == "b.py-1-x\nb.py:2:foo\nb.py-3-y"
    assert (await scene.do("grep", pattern="FOO")).text.startswith("[no match in the workspace")
    assert (await scene.do("grep", pattern="(?i)FOO", path="b.py")).text == "b.py:2:foo"


async def test_context_groups_are_separated(scene):
    scene.put("a", "".join(f"{n}\n" for n in range(1, 21)))
    found = await scene.do("grep", pattern="^(3|15|16)$", context=1)
    assert found.text.split("\n") == [
        "a-2-2",
        "a:3:3",
        "a-4-4",
        "--",
        "a-14-14",
        "a:15:15",
        "a:16:16",
        "a-17-17",
    ]


NAMES = ["a", "a.txt", "a-b/c", "aa/b/c", "b/a", "b/a.py", "b.py", "é/x", "Z", "ab/x y", "zz/a/b/c", "zz/a.b", "a b"]


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("most", [5_000, 0])
async def test_the_order_is_that_of_a_sorted_search_however_many_threads_search(tmp_path, context, most):
    if RIPGREP is None:
        pytest.skip("missing facility: ripgrep")
    scene = Scene(tmp_path)
    scene.tools["grep"] = GrepTool(ripgrep=RIPGREP, max_sorted=most)
    for name in NAMES:
        scene.put(name, "".join(f"line {n}\n" if n % 7 else f"needle {n}\n" for n in range(1, 30)))
    found = await scene.do("grep", pattern="needle", context=context)
    options = ["--sort=path", "--hidden", "-n", "--no-heading", "--no-config", f"--context={context}"]
    command = [RIPGREP, *options, "needle", "./"]
    plain = await anyio.run_process(command, cwd=scene.root, env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"})
    wanted = [line.removeprefix("./") for line in plain.stdout.decode().splitlines()]
    assert found.text.splitlines() == wanted


async def test_B030_one_long_line(scene):
    scene.put("one.min.js", "x" * 2_000_000)
    scene.put("wide.txt", "é" * 5_000 + "needle" + "y" * 5_000 + "\n")
    found = await scene.do("grep", pattern="x", path="one.min.js")
    assert len(found.text) < 500
    assert "cut to 300 characters" in found.text
    around = await scene.do("grep", pattern="needle")
    line = around.text.split("\n")[0]
    assert "éneedley" in line
    assert len(line) <= 320


async def test_at_most_100_matches_are_shown(scene):
    scene.put("a", "foo\n" * 5_000)
    found = await scene.do("grep", pattern="foo")
    assert found.text.count("a:") == 100
    assert found.text.endswith("[the first 100 matches; there are more: narrow pattern, path or glob]")
    scene.put("a", "foo\n" * 100)
    assert "more" not in (await scene.do("grep", pattern="foo")).text


@pytest.mark.parametrize("pattern", ["foo(", "[z", "a{2,1}", "*x"])
async def test_a_bad_pattern_says_how_to_search_literally(scene, pattern):
    scene.put("a", f"say {pattern} here\n")
    refused = await scene.do("grep", pattern=pattern)
    assert refused.code == "BAD_ARGS"
    literal = refused.text.rpartition("pattern: ")[2]
    assert (await scene.do("grep", pattern=literal)).text == f"a:1:say {pattern} here"


async def test_an_artifact_can_be_searched(scene):
    ticket = scene.artifacts.put(b"one\ntwo ERROR\nthree\n")
    assert (await scene.do("grep", pattern="ERROR", path=ticket)).text == f"{ticket}:2:two ERROR"
    assert (await scene.do("grep", pattern="x", path="artifact:0123456789abcdef")).code == "NOT_FOUND"


async def test_a_repository_cannot_configure_the_search(scene):
    scene.put(".ripgreprc", "--pre=./p.sh\n")
    scene.put("p.sh", "#!/bin/sh\ntouch PWNED\n").chmod(0o755)
    scene.put("a", "foo\n")
    await scene.do("grep", pattern="foo")
    assert not (scene.root / "PWNED").exists()


async def test_a_pattern_that_never_ends_is_stopped(tmp_path):
    scene = Scene(tmp_path)
    scene.tools["grep"] = GrepTool(ripgrep=None, time_limit_seconds=1)
    scene.put("a", "a" * 60 + "!\n")
    with anyio.fail_after(15):
        found = await scene.do("grep", pattern="(a+)+$")
    assert "stopped after 1 s" in found.text


async def test_glob_finds_paths(scene):
    for name in ["a.py", "src/b.py", "src/x/c.py", "src/x/d.ts", ".env", ".git/x.py", "build/e.py"]:
        scene.put(name, "")
    scene.put(".gitignore", "/build\n")

    async def paths(pattern, **more):
        return (await scene.do("glob", pattern=pattern, **more)).text.split("\n")

    assert await paths("**/*.py") == ["a.py", "src/b.py", "src/x/c.py"]
    assert await paths("*.py") == ["a.py"]
    assert await paths("*") == [".env", ".gitignore", "a.py", "src/"]
    assert await paths("src/**") == ["src/b.py", "src/x/", "src/x/c.py", "src/x/d.ts"]
    assert await paths("**/*.{py,ts}", path="src") == ["src/b.py", "src/x/c.py", "src/x/d.ts"]
    assert await paths("./src/*/c.py") == ["src/x/c.py"]
    assert await paths(f"{scene.root}/src/*.py") == ["src/b.py"]
    assert await paths("build/*.py") == ["build/e.py", "[all of them are excluded by .gitignore]"]
    assert (await paths("c.py"))[0].endswith("`**/c.py` looks in all directories below]")
    assert (await scene.do("glob", pattern="*", path="a.py")).code == "NOT_DIRECTORY"
    assert (await scene.do("glob", pattern="*", path="nope")).code == "NOT_FOUND"


async def test_glob_is_bounded(scene):
    for n in range(210):
        scene.put(f"f{n:03}", "")
    found = (await scene.do("glob", pattern="f*")).text.split("\n")
    assert len(found) == 201
    assert found[0] == "f000"
    assert "there are more" in found[-1]
    scene.put("a" * 200, "")
    with anyio.fail_after(10):
        await scene.do("glob", pattern="/".join(["**"] * 12) + "/" + "*a" * 30 + "b")


def searched(root, **request):
    out = io.StringIO()
    code = walk.main(json.dumps({"root": str(root), "start": ".", "glob": None, "context": 0, **request}), out)
    return code, out.getvalue().replace("\0", "@").splitlines()


def test_the_walker_reads_ignore_files_of_every_folder(tmp_path):
    scene = Scene(tmp_path)
    ignores = "# comment\n\n*.log\n!keep.log\n/top\nnested/*.tmp\ncache/\n\\#odd\n"
    scene.put(".gitignore", ignores)
    scene.put("sub/.gitignore", "local\n")
    kept = ["a", "keep.log", "sub/top", "sub/x.tmp", "local", "cachefile", "sub/q/keep.log"]
    dropped = ["x.log", "top", "nested/x.tmp", "cache/a", "sub/cache/b", "sub/local", "sub/q/local", "#odd", ".git/a"]
    for name in kept + dropped:
        scene.put(name, "foo\n")
    code, lines = searched(scene.root, pattern="foo")
    assert code == 0
    assert sorted(lines) == sorted(f"./{name}@1:1:foo" for name in kept)
    assert searched(scene.root, pattern="foo", start="sub/q")[1] == ["./sub/q/keep.log@1:1:foo"]


def test_the_walker_writes_columns_context_and_separators(tmp_path):
    scene = Scene(tmp_path)
    scene.put("a", "1\n2\né hit\n4\n5\n6\n7\nhit\n".encode())
    assert searched(scene.root, pattern="hit", start="a", context=1)[1] == [
        "--",
        "./a@2-2",
        "./a@3:4:é hit",
        "./a@4-4",
        "--",
        "./a@7-7",
        "./a@8:1:hit",
    ]
    assert searched(scene.root, pattern="hit", glob="*.py")[1] == []
    assert searched(scene.root, pattern="(")[0] == 2


async def test_a_very_deep_tree_is_no_error(scene):
    try:
        await scene.do("bash", command="mkdir -p $(printf 'a/%.0s' {1..1500}) && echo foo > a/f")
        assert "a/" in (await scene.do("glob", pattern="**/*")).text
        assert (await scene.do("grep", pattern="foo")).text == "a/f:1:foo"
        assert (await scene.do("read", path="nope")).code == "NOT_FOUND"
    finally:
        await scene.do("bash", command="rm -rf a")
