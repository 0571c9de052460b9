"""A PostgreSQL server of the tests' own: in a folder of its own, reached by its unix socket, with fsync on.

The folder is in memory where there is room: what these tests end is the server, not the machine.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "fsync": "on",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}
INITIAL = ("--locale=C", "-E", "UTF8", "--wal-segsize=1")
START_SECONDS = 40
MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 29


def why_not() -> str | None:
    """Why no server can be started here."""
    found = shutil.which("initdb")
    if not PROGRAMS and found is None:
        return "PostgreSQL's programs are not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and (shutil.which("setpriv") is None or _account() is None):
        return "PostgreSQL refuses to run as root, and there is no setpriv or no other account"
    return None


def _account() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


class Server:
    """One server; `crash` and `start` as often as a test likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        initdb = str(PROGRAMS[-1]) if PROGRAMS else shutil.which("initdb")
        self.programs = Path(initdb).resolve().parent
        self._own()
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "xn", "-N", *INITIAL)

    def _own(self) -> None:
        if os.geteuid() == 0:
            account = _account()
            os.chown(self.folder, account.pw_uid, account.pw_gid)

    def _line(self, program: str, *arguments: str) -> list[str]:
        line = [str(self.programs / program), *arguments]
        if os.geteuid() != 0:
            return line
        account = _account()
        ids = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--pdeathsig=QUIT"]
        return ["setpriv", *ids, *line]

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            self._line(program, *arguments), cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        line = self._line("postgres", "-D", str(self.folder / "data"), "-k", str(self.folder), *settings)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                line, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        ready = [str(self.programs / "pg_isready"), "-q", "-h", str(self.folder), "-U", "xn", "-d", "postgres"]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)

    def crash(self) -> None:
        """End it at once without writing anything out, as `pg_ctl stop -m immediate` does."""
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def psql(self, statement: str, database: str = "postgres") -> str:
        """One statement's answer as text."""
        return self._run("psql", "-h", str(self.folder), "-U", "xn", "-d", database, "-Atqc", statement)

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.psql(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str) -> str:
        return f"postgresql://xn@/{name}?host={self.folder}"


def _roomy() -> Path | None:
    """Memory, if it has room for a server; else wherever temporary files go."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free > ROOM_BYTES else None
    except OSError:
        return None


@contextmanager
def running(parent: Path | None = None) -> Iterator[Server]:
    """A server that is gone afterwards, with its folder."""
    folder = Path(tempfile.mkdtemp(prefix="xnagent-pg-", dir=parent or _roomy()))
    server = Server(folder)
    try:
        server.start()
        yield server
    finally:
        if server._process is not None and server._process.poll() is None:
            server.crash()
        shutil.rmtree(folder, ignore_errors=True)
