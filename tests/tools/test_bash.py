"""B030, B035 to B039: commands in a real shell, and their outcomes after a crash."""

import json
import re
import tracemalloc

import anyio
import pytest

from tests.tools.scene import PlainShell
from xnagent.errors import WorkspaceError
from xnagent.ports import Finished
from xnagent.tools.bash import BashTool, spool_name

LIMIT = 12_000


async def test_B035_standard_input_is_empty(scene):
    asked = await scene.do("bash", command='read -p "y/N " a; echo "got=[$a] rc=$?"')
    assert "got=[] rc=1" in asked.text
    lines = ["cat <<'EOF' > f", "hello", "EOF", "python3 -c 'print(repr(__import__(\"sys\").stdin.read()))'"]
    assert (await scene.do("bash", command="\n".join(lines))).text.startswith("''\n")
    assert scene.bytes_of("f") == b"hello\n"


@pytest.mark.parametrize(
    ("command", "seen", "notice"),
    [
        (r"printf 'head\xff\xf0tail\n'", "head\ufffd\ufffdtail", "not valid UTF-8"),
        (r"printf 'a\x00b\n'", "a\ufffdb", "NUL"),
        (r"printf '\xe9t\xe9\n'", "\ufffdt\ufffd", "not valid UTF-8"),
        ("head -c 4096 /dev/urandom", "binary output", "4,096 bytes"),
    ],
)
async def test_B036_output_that_is_no_text(scene, command, seen, notice):
    done = await scene.do("bash", command=command)
    assert seen in done.text
    assert notice in done.text
    assert done.exit_code == 0
    json.dumps(done.text, ensure_ascii=False).encode()


async def test_B036_real_utf8_has_no_notice(scene):
    done = await scene.do("bash", command="printf 'naïve \\xf0\\x9f\\x98\\x80 \\xef\\xbf\\xbd\\n'")
    assert "not valid" not in done.text


@pytest.mark.parametrize(
    "command",
    ["yes | head -c 20000000", "head -c 20000000 /dev/zero | tr '\\0' x", "seq 1 400000", "yes é | head -c 3000001"],
)
async def test_B037_B030_much_output_is_bounded(scene, command):
    scene.put("one.min.js", "x" * 2_000_000)
    tracemalloc.start()
    done = await scene.do("bash", command=command)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(done.text) <= LIMIT + 100
    assert max(map(len, done.text.splitlines())) <= 2_000
    assert peak < 64_000_000
    assert "omitted" in done.text or "more characters" in done.text
    assert done.artifact is not None
    assert done.artifact in done.text
    assert re.search(r"\[exit 0 \| \d+\.\d s\]$", done.text)


async def test_B030_T23_head_tail_and_the_whole_by_ticket(scene):
    done = await scene.do("bash", command="seq 1 400000")
    assert done.text.startswith("1\n2\n3\n")
    assert "\n400000\n[exit 0" in done.text
    kept = scene.artifacts.kept[done.artifact]
    assert kept == "".join(f"{n}\n" for n in range(1, 400_001)).encode()
    page = await scene.do("read", path=done.artifact, offset=200_000, limit=2)
    assert page.text == "200000\t200000\n200001\t200001\n[lines 200000–200001 of 400000; continue with offset=200002]"
    head, tail = re.split(r"\n\[… .* omitted", done.text)[0], done.text.rpartition("…]\n")[2]
    assert 0.35 < len(head) / (len(head) + len(tail)) < 0.45


async def test_B037_omitted_bytes_of_the_spool_are_told(scene):
    class Capped(PlainShell):
        async def run(self, workspace, command):
            spool = workspace.scratch / "s"
            spool.write_bytes(b"start\nend\n")
            return Finished(exit_code=0, output=spool, duration_seconds=1, ending="exit", omitted_bytes=5_000_000)

    scene.tools["bash"] = BashTool(shell=Capped())
    done = await scene.do("bash", command="x")
    assert "5,000,000 bytes omitted" in done.text
    assert "start" in done.text


async def test_B037_progress_collapses(scene):
    command = "for i in $(seq 1 20000); do printf '\\r%d%%' $i; done; echo; echo end"
    done = await scene.do("bash", command=command)
    assert done.text.startswith("20000%\nend\n[exit 0")


async def test_B037_a_timeout_is_told(scene):
    with anyio.fail_after(20):
        done = await scene.do("bash", command="yes", timeout_seconds=1)
    assert done.code == "ok"
    assert done.exit_code is None
    assert done.text.endswith("[timed out after 1 s; raise timeout_seconds (max 600) or split the work]")
    assert len(done.text) <= LIMIT + 100


async def test_escape_sequences_are_taken_out(scene):
    command = r"printf '\033[1;31mred\033[0m \033]0;title\007x\033(B a\bb\n'"
    assert (await scene.do("bash", command=command)).text.startswith("red x b\n")


async def test_B039_the_description_is_true(scene):
    (scene.root / "sub").mkdir()
    await scene.do("bash", command="cd sub && export FOO=1 && f() { echo hi; } && pwd")
    done = await scene.do("bash", command='pwd; echo "FOO=[$FOO]"; type f')
    assert done.text.startswith(f"{scene.root}\nFOO=[]\n")
    assert done.exit_code == 1
    described = scene.tools["bash"].spec.description
    assert "Each call is a new shell in the workspace root" in described
    assert "cd, variables and functions do not last to the next call" in described


async def test_background_processes_end_with_the_shell(scene):
    with anyio.fail_after(20):
        done = await scene.do("bash", command="sleep 300 & echo done")
    assert re.search(r"^done\n\[exit 0 \| .* s \| background processes were ended with the shell\]$", done.text)


async def test_an_exit_code_is_data(scene):
    done = await scene.do("bash", command="echo oops >&2; exit 3")
    assert (done.code, done.exit_code) == ("ok", 3)
    assert re.fullmatch(r"oops\n\[exit 3 \| \d\.\d s\]", done.text)
    silent = await scene.do("bash", command="true")
    assert re.fullmatch(r"\[exit 0 \| \d\.\d s\]", silent.text)


async def test_a_shell_that_cannot_run_is_an_answer(scene):
    class Broken(PlainShell):
        async def run(self, workspace, command):
            raise WorkspaceError("neither bash nor sh is on the PATH; install bash")

    scene.tools["bash"] = BashTool(shell=Broken())
    done = await scene.do("bash", command="true")
    assert done.code == "FAILED"
    assert "install bash" in done.text


@pytest.mark.parametrize("command", ["", "  \n", "a\0b"])
async def test_no_command_is_refused(scene, command):
    assert (await scene.do("bash", command=command)).code == "BAD_ARGS"
    assert scene.shell.ran == []


async def test_after_a_crash_a_finished_command_has_its_real_outcome(scene):
    call, started = await scene.begin("bash", command="echo made; exit 4")
    assert await scene.tools["bash"].reconcile(call, started) is None
    (scene.folder.scratch / f"{started.spool}.out").write_text("made\n")
    (scene.folder.scratch / f"{started.spool}.rc").write_text("4")
    done = await scene.tools["bash"].reconcile(call, started)
    assert (done.code, done.exit_code) == ("ok", 4)
    assert done.text.startswith("made\n[exit 4")
    assert scene.shell.ran == []


async def test_after_a_crash_an_unknown_outcome_is_told_and_not_repeated(scene):
    call, started = await scene.begin("bash", command="sleep 100")
    (scene.folder.scratch / f"{started.spool}.out").write_text("half\n" * 10_000)
    unknown = await scene.tools["bash"].reconcile(call, started)
    assert unknown.code == "INTERRUPTED"
    assert "It was not repeated" in unknown.text
    assert "half" in unknown.text
    assert len(unknown.text) < 5_000
    assert unknown.artifact is not None
    assert scene.shell.ran == []


def test_spool_names_are_safe_and_differ():
    names = [spool_name(call, step) for call in ("a/b", "a:b", "../x", "", "é" * 300, "call_0") for step in (1, 2)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name) for name in names)
