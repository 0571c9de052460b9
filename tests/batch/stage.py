"""What a monkey campaign's batches run on: an engine with its workers and its server, a store with its server."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests import database, temporal_server
from xnagent.app.host import Host
from xnagent.app.stores import sessions_at
from xnagent.config import StoreSettings

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("local", "temporal")
STORES = ("sqlite", "postgresql")
LEASES = 3
AWAY_SECONDS = 1.0
"""How long a killed server stays away."""


def children_of(number: int) -> list[int]:
    """The processes that a process began, in any of its threads."""
    found: list[int] = []
    for place in Path(f"/proc/{number}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, place.read_text().split())
    return found


@dataclass(kw_only=True)
class Stage:
    """The servers, for all rounds."""

    engine: temporal_server.Server | None
    store: database.Server | None

    @contextmanager
    def scene(self, folder: Path, *, workers: int, at_once: int, lease_seconds: float) -> Iterator["Cast"]:
        """What one round needs; nothing of it is left."""
        url = "" if self.store is None else self.store.database()
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        cast = Cast(
            stage=self,
            folder=folder,
            environ=environ | (environ_of(url, lease_seconds) if url else {}),
            url=url,
            slots=[at_once // workers + (number < at_once % workers) for number in range(workers)],
            lease_seconds=lease_seconds,
        )
        try:
            yield cast
        finally:
            cast.end()


def environ_of(url: str, lease_seconds: float) -> dict[str, str]:
    """The store, for its processes. They are frozen for longer than a lease of a job, so those of logs are longer."""
    return {"XNAGENT_STORE__URL": url, "XNAGENT_STORE__LEASE_SECONDS": str(LEASES * lease_seconds)}


@dataclass(kw_only=True)
class Cast:
    """The processes of one round."""

    stage: Stage
    folder: Path
    environ: dict[str, str]
    url: str
    slots: list[int]
    lease_seconds: float
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def host(self) -> Host:
        """How the sessions are read afterwards."""
        store = StoreSettings(url=self.url)
        return Host(home=self.home, environ={}, store=sessions_at(store, home=self.home))

    @property
    def home(self) -> Path:
        """The home of the batch."""
        return self.folder / "home"

    @property
    def are_apart(self) -> bool:
        """Whether each worker has a home of its own, as on a machine of its own: with a shared store."""
        return bool(self.url) and self.stage.engine is not None

    def home_of(self, worker: int) -> Path:
        """Where a worker keeps its folders."""
        return self.folder / f"home-{worker}" if self.are_apart else self.home

    def options(self) -> list[str]:
        """What the command of the batch says about its engine."""
        options = ["--lease-seconds", str(self.lease_seconds), "-j", str(sum(self.slots))]
        if self.stage.engine is None:
            return [*options, "--engine", "local", "--processes", str(len(self.slots))]
        return [*options, *self._address()]

    def _address(self) -> list[str]:
        assert self.stage.engine is not None
        return ["--engine", "temporal", "--address", self.stage.engine.address, "--task-queue", str(self.folder)]

    def tend(self) -> None:
        """Begin workers that are not there, where the batch does not do that."""
        if self.stage.engine is None:
            return
        for number, slots in enumerate(self.slots):
            if number not in self.running or self.running[number].poll() is not None:
                line = ["worker", *self._address(), "--home", str(self.home_of(number)), "-j", str(slots)]
                line += ["--lease-seconds", str(self.lease_seconds), "--sharers", str(len(self.slots))]
                self.running[number] = self.start(line)

    def start(self, line: Sequence[str]) -> subprocess.Popen[bytes]:
        """A process of xnagent's."""
        with (self.folder / "stderr").open("ab") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "xnagent", *line],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=self.environ,
                cwd=self.folder,
            )

    def workers(self, batch: int) -> list[int]:
        """Those that can be killed."""
        if self.stage.engine is None:
            return children_of(batch)
        return [process.pid for process in self.running.values() if process.poll() is None]

    def strike_server(self) -> None:
        """Kill the engine's server; it comes back a moment later, at the same address, with what it had written."""
        assert self.stage.engine is not None
        self.stage.engine.crash()
        time.sleep(AWAY_SECONDS)
        self.stage.engine.start()

    def end(self) -> None:
        """Kill what is left."""
        for process in self.running.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def staged(engine: str, store: str) -> Iterator[Stage]:
    """Start what the engine and the store need. Raises RuntimeError if it is not installed."""
    with ExitStack() as stack:
        found = Stage(engine=None, store=None)
        for wanted, module in ((engine == "temporal", temporal_server), (store == "postgresql", database)):
            if wanted and (reason := module.why_not()) is not None:
                raise RuntimeError(reason)
        if engine == "temporal":
            found.engine = stack.enter_context(temporal_server.server())
        if store == "postgresql":
            found.store = stack.enter_context(database.running())
        yield found
