"""The same boxes for an ordinary user, and what happens where there is none."""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from xnagent.workspaces.box.syscalls import ARCHITECTURES

ROOT = Path(__file__).parents[3]
USER = 54_321
IMPORTS = """
import os, sys, anyio, pytest, xnagent.workspaces.shell, tests.workspaces.box.conftest
assert os.access(sys.executable, os.X_OK)
"""
SEARCHED = os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("-packages"))])


def as_user(*line, environ=None, **options):
    wrapped = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *line]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": SEARCHED, "PYTHONDONTWRITEBYTECODE": "1", **(environ or {})}
    return subprocess.run(wrapped, env=environ, capture_output=True, text=True, check=False, cwd=ROOT, **options)


@pytest.fixture(scope="module")
def interpreter():
    """A Python that another user may run, with what the tests import."""
    if os.geteuid() != 0:
        pytest.skip("to become another user one must be root")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is missing; install util-linux")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if Path(candidate).exists() and as_user(candidate, "-c", IMPORTS).returncode == 0:
            return candidate
    return pytest.skip(f"no {version} that user {USER} may run, with this checkout and its packages")


@pytest.mark.timeout(180)
def test_an_ordinary_user_has_the_same_boxes(interpreter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    shared = Path("/var/tmp") / f"xnagent-{os.getpid()}-{folder.name}"
    shared.mkdir(mode=0o700)
    os.chown(shared, USER, USER)
    try:
        tests = ["tests/workspaces/box/test_escapes.py", "tests/workspaces/box/test_traps.py"]
        line = [
            interpreter,
            "-m",
            "pytest",
            "-q",
            "-n0",
            "-p",
            "no:cacheprovider",
            f"--basetemp={shared}/t",
            "-rs",
            "-k",
            "attempt or A6 or orchestrator",
        ]
        done = as_user(*line, *tests, environ={"HOME": str(shared), "TMPDIR": str(shared)}, timeout=170)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert "passed" in done.stdout
    finally:
        shutil.rmtree(shared, ignore_errors=True)


def refuse_landlock():
    """In a new process: its kernel does not know the first of Landlock's calls."""
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("<HBBI", *step) for step in steps)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Program(len(steps), program))) == 0


@pytest.fixture
def bare(tmp_path):
    """A command line in a place where nothing works: no bubblewrap on the PATH, no Landlock in the kernel."""
    if os.uname().machine not in ARCHITECTURES:
        pytest.skip(f"no filter for {os.uname().machine}")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "bash", "sh", "cat", "grep", "head", "tail", "dd", "mv", "sleep", "touch"):
        (programs / name).symlink_to(Path(shutil.which(name)).resolve())

    def run(*arguments):
        environ = {"PATH": str(programs), "HOME": str(tmp_path), "PYTHONPATH": SEARCHED}
        line = [sys.executable, "-m", "xnagent", *arguments]
        return subprocess.run(
            line, cwd=tmp_path, env=environ, capture_output=True, text=True, preexec_fn=refuse_landlock, check=False
        )

    return run


MODEL = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1")


def test_without_any_box_a_run_does_not_begin(bare, tmp_path):
    done = bare("run", "x", *MODEL, "--home", str(tmp_path / "home"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("xnagent: SANDBOX_UNAVAILABLE: no sandbox works here (bubblewrap: bwrap is not on")
    assert "landlock: this kernel does not offer it" in done.stderr
    assert "install bubblewrap, or pass --sandbox external" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "home").exists()


def test_a_doctor_says_what_is_missing(bare):
    done = bare("doctor", *MODEL)
    assert done.returncode == 2
    assert "SANDBOX_UNAVAILABLE" in done.stdout


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("auto", "warning: no sandbox works here"),
        ("off", "commands run unboxed, with your rights and your network"),
        ("external", "commands run in the box that you provide"),
    ],
)
def test_with_another_mode_it_is_said_how_commands_run(bare, mode, told):
    done = bare("run", "x", *MODEL, "--sandbox", mode, "-s", "retry.max_attempts=1")
    assert done.returncode == 8, done.stderr
    assert told in done.stderr


@pytest.mark.parametrize("mode", ["off", "external"])
def test_only_a_command_line_takes_the_box_away(bare, tmp_path, mode):
    (tmp_path / "c.toml").write_text(f"[sandbox]\nmode = '{mode}'\n")
    done = bare("run", "x", *MODEL, "--config", "c.toml")
    assert done.returncode == 2
    assert f'may be "{mode}" only on the command line; pass --sandbox {mode}' in done.stderr


def test_the_network_can_be_shut_without_a_box(bare):
    done = bare("run", "x", *MODEL, "--sandbox", "off", "--network", "off", "-s", "retry.max_attempts=1")
    assert "with your rights and no network" in done.stderr


def test_the_command_shuts_its_own_memory():
    code = (
        "import ctypes; from xnagent.cli.secrecy import shut_memory; shut_memory(); print(ctypes.CDLL(None).prctl(3))"
    )
    environ = {"PYTHONPATH": SEARCHED, "PATH": os.environ["PATH"]}
    assert subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True).stdout == b"0\n"
