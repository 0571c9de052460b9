"""`xnagent serve` as a process of its own, sessions that are written while it runs, and a viewer of its streams."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from httpx_sse import ServerSentEvent, connect_sse

from tests.cli.harness import SECONDS, Shell
from tests.inspect.long import long_events
from xnagent.app.host import SystemClock
from xnagent.core.events import Event
from xnagent.core.ids import SessionId
from xnagent.store.place import Sessions
from xnagent.store.placed import PlacedLog


@dataclass
class Written:
    """A session that is live: this process holds it."""

    session: str
    log: PlacedLog
    portal: BlockingPortal
    happening: Iterator[Event]

    def go_on(self, events: int) -> int:
        """Store so many more; the place of the last one."""
        self.portal.call(self.log.append, *islice(self.happening, events))
        return self.log.last_seq

    def end(self) -> None:
        """Let go of it."""
        self.portal.call(self.log.aclose)


@contextmanager
def written(sessions: Sessions, session: str = "s-live", *, requests: int = 10, steps: int = 4) -> Iterator[Written]:
    """A long session, as far as it is told to go on."""
    with start_blocking_portal() as portal:
        place = sessions.place(session)

        async def create() -> PlacedLog:
            return await PlacedLog.create_at(place, session=SessionId(session), clock=SystemClock())

        made = Written(session=session, log=portal.call(create), portal=portal, happening=long_events(requests, steps))
        try:
            yield made
        finally:
            made.end()


@dataclass(kw_only=True)
class Served:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    url: str
    base: str
    token: str
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        self.client = httpx.Client(base_url=self.base, headers=headers, timeout=SECONDS, trust_env=False)

    @contextmanager
    def stream(self, path: str, *, last: str = "") -> Iterator[Iterator[ServerSentEvent]]:
        """An open stream."""
        headers = {"last-event-id": last} if last else {}
        with connect_sse(self.client, "GET", path, headers=headers) as source:
            yield (event for event in source.iter_sse() if event.data)

    def post(self, path: str, **content: object) -> dict[str, Any]:
        """An action of a page."""
        return self.client.post(path, json=content).json()


@contextmanager
def served(shell: Shell, *arguments: str) -> Iterator[Served]:
    """`xnagent serve` on a free port."""
    with shell.started("serve", "--port", "0", *arguments) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        assert url, process.communicate()
        base, _, token = url.partition("/?token=")
        server = Served(process=process, url=url, base=base, token=token)
        with server.client:
            yield server


@dataclass
class Got:
    """What a viewer of a session has."""

    records: list[dict[str, Any]] = field(default_factory=list)
    requests: dict[int, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    standing: dict[str, Any] = field(default_factory=dict)
    last: str = ""

    def take(self, event: ServerSentEvent) -> None:
        """As the page does it."""
        match event.event:
            case "news":
                first, *lines = event.data.split("\n")
                self.records += map(json.loads, lines)
                self.requests |= {one["request"]: one["html"] for one in json.loads(first)}
            case "parts":
                self.parts |= json.loads(event.data)
            case "standing":
                self.standing = json.loads(event.data)
            case other:
                raise AssertionError((other, event.data))
        self.last = event.id or self.last

    def until(self, events: Iterator[ServerSentEvent], condition: Any) -> None:
        """Take what comes until the condition holds."""
        while not condition(self):
            self.take(next(events))
