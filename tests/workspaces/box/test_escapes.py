"""A command that wants out: every attempt in `attempts.py`, in every kind of box that works here."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.workspaces.box.conftest import Ground

HERE = Path(__file__).parent
SECRET = "sk-canary-5d1f"
CONSEQUENCES = "nothing outside changed"
NAMES = [
    line.split("def ")[1].split("(")[0]
    for line in (HERE / "attempts.py").read_text().splitlines()
    if line.startswith("    def ") and "def _" not in line
]
WEAKNESSES = {
    "landlock": {
        "change_mode_outside": "modes and times are not guarded",
        "command_lines_of_others": "processes are not hidden",
        "git_config": "what may be written can't have parts that may not",
        "git_hooks": "what may be written can't have parts that may not",
        "move_git_aside": "what may be written can't have parts that may not",
    }
}
"""What a kind of box is documented not to hold (`landlock.py`)."""


class Outside:
    """What must not be reached."""

    def __init__(self, folder: Path, stack: ExitStack):
        self.folder = folder
        self.canary, self.home, self.checkout = folder / "canary", folder / "home", folder / "checkout"
        for place in (self.canary, self.home / ".ssh", self.checkout, folder / "objects" / "info", folder / "bin"):
            place.mkdir(parents=True)
        for file in (self.canary / "file", self.home / ".ssh" / "id_x", self.checkout / "private.txt"):
            file.write_text(SECRET)
        environ = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": SECRET}
        line = [sys.executable, "-c", "import time; time.sleep(120)", SECRET]
        self.victim = stack.enter_context(subprocess.Popen(line, env=environ))
        stack.callback(self.victim.kill)
        self.tcp = self._listening(stack, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self.udp = self._listening(stack, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self.abstract = f"xnagent-{os.getpid()}-{time.monotonic_ns()}"
        self._listening(stack, socket.SOCK_STREAM, f"\0{self.abstract}")
        self.socket = f"/tmp/xn-{os.getpid()}-{time.monotonic_ns()}.sock"
        self._listening(stack, socket.SOCK_STREAM, self.socket)
        stack.callback(os.unlink, self.socket)
        os.link(self.socket, folder / "bin" / "s")
        self.before = self.print()

    def _listening(self, stack, kind, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        server = stack.enter_context(socket.socket(family, kind))
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        server.setblocking(False)
        return server

    def print(self):
        """The content of everything that must stay as it is."""
        files = [path for place in (self.canary, self.home, self.checkout) for path in sorted(place.rglob("*"))]
        return [(str(path), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files if path.is_file()]

    def changes(self):
        """What is not as it was, in words."""
        found = [] if self.print() == self.before else ["files"]
        found += ["scratch"] if list(self.folder.parent.rglob("escaped")) else []
        found += ["the victim"] if self.victim.poll() is not None else []
        for name, server, receive in (
            ("udp", self.udp, lambda s: s.recv(100)),
            ("tcp", self.tcp, lambda s: s.accept()),
        ):
            try:
                got = receive(server)
            except BlockingIOError:
                continue
            found.append(name)
            if name == "tcp":
                got[0].close()
        return found

    def facts(self, ground):
        return {
            "canary": str(self.canary),
            "secret": SECRET,
            "user": os.geteuid(),
            "home": str(self.home),
            "checkout": str(self.checkout),
            "scratch": str(ground.tree.scratch),
            "objects": str(self.folder / "objects"),
            "victim": self.victim.pid,
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "abstract": self.abstract,
            "socket": str(self.folder / "bin" / "s"),
        }


@pytest.fixture(scope="module")
def outcomes(kind, python, tmp_path_factory):
    """What came of each attempt: "" if it was stopped."""
    with ExitStack() as stack:
        ground = Ground(tmp_path_factory.mktemp(kind), kind)
        outside = Outside(ground.folder / "outside", stack)
        ground.environ = {**ground.environ, "PATH": f"{ground.environ['PATH']}:{outside.folder / 'bin'}"}
        subprocess.run(["git", "init", "-q", "--template=", str(ground.tree.root)], check=True)
        (ground.tree.root / ".git" / "hooks").mkdir()
        shutil.copy(HERE / "attempts.py", ground.tree.root)
        (ground.tree.root / "facts.json").write_text(json.dumps(outside.facts(ground)))
        (ground.tree.scratch / "c0.out").write_text(SECRET)
        shell = ground.shell(objects=(outside.folder / "objects",), hidden=(outside.home, outside.checkout))
        finished, output = ground.together(f"{python} attempts.py facts.json", shell=shell, timeout_seconds=50)
        assert finished.exit_code == 0, output
        found = {line[0]: line[1] for line in map(json.loads, output.splitlines())}
        found[CONSEQUENCES] = ", ".join(outside.changes())
        return found


@pytest.mark.parametrize("name", [*NAMES, CONSEQUENCES])
def test_B071_B073_B074_an_attempt_to_get_out_is_stopped(name, kind, outcomes):
    if name in WEAKNESSES.get(kind, {}):
        assert outcomes[name], f"it is held after all: {name} is no weakness of {kind} any more"
    else:
        assert outcomes[name] == ""


UNBOXED = [
    "read_outside",
    "write_through_dots",
    "write_through_a_link",
    "read_the_home",
    "environment_of_others",
    "tcp_to_the_host",
    "abstract_socket",
    "pathname_socket_in_a_visible_folder",
    "git_hooks",
    "setuid_file",
]


def test_the_attempts_get_out_where_nothing_stops_them(tmp_path, python):
    with ExitStack() as stack:
        outside, ground = Outside(tmp_path / "outside", stack), Ground(tmp_path / "ground", "none")
        subprocess.run(["git", "init", "-q", "--template=", str(ground.tree.root)], check=True)
        (ground.tree.root / ".git" / "hooks").mkdir()
        facts = ground.tree.root / "facts.json"
        facts.write_text(json.dumps(outside.facts(ground)))
        names = json.dumps(UNBOXED)
        code = f"import json, attempts; a = attempts.Attempts(json.load(open('facts.json'))); \
print(json.dumps([n for n in {names} if not getattr(a, n)()]))"
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([python, "-c", code], cwd=ground.tree.root, env=environ, capture_output=True, check=True)
        assert json.loads(done.stdout) == []
        assert outside.changes() == ["files", "tcp"]
