#!/usr/bin/env python
"""Many agents in one process: the share of what the model's latency alone allows, with durable logs.

200 agents make 20 steps each against a provider that answers after 50 ms (`many_server.py`, a process of its own). A
step is the product's own: limits, prefix check, the request in the log, HTTP, the reply in the log and synced to disk,
one call of a tool that does nothing. `--sessions` spreads the agents over that many sessions, each with its own file.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xnagent.agents.desk import Desk, Seat
from xnagent.agents.step import step
from xnagent.app.crew import make_manifest
from xnagent.app.host import SystemClock
from xnagent.config import Settings
from xnagent.config.entry import model_entry
from xnagent.core.events import SessionStarted
from xnagent.core.ids import AgentId, SessionId
from xnagent.core.items import UserText
from xnagent.core.retry import RetryPolicy
from xnagent.core.spine_events import SpineExtended, ToolStarted
from xnagent.core.text import Json
from xnagent.models.catalog import create_model
from xnagent.ports import Call, Intent, Outcome, Tool, ToolSpec, Workspace
from xnagent.store.sqlite import SessionStore
from xnagent.tools.toolbox import toolbox

TARGET: Final = 0.4
SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


class Nothing:
    """A tool without an effect."""

    @property
    def spec(self) -> ToolSpec:
        """What the model would be told."""
        return ToolSpec(name="nothing", description="Does nothing.", parameters=SCHEMA)

    async def intend(self, call: Call) -> Intent | Outcome:
        """Nothing."""
        return Intent(effect="pure")

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Nothing."""
        return Outcome(text="ok")

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """Run it again."""
        return None


class Nowhere:
    """The place of agents without a tree."""

    async def open(self) -> Workspace:
        """There is none."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much there is to do."""

    agents: int
    steps: int
    sessions: int
    latency_ms: float

    @property
    def ideal_seconds(self) -> float:
        """What the model's latency alone takes."""
        return self.steps * self.latency_ms / 1000


async def brief(desk: Desk, seat: Seat) -> None:
    """Tell an agent what to do."""
    message = UserText(text="Do nothing, again and again. " * 20, origin="harness")
    await desk.log.append(SpineExtended(agent=seat.agent, items=(message,), kind="brief"))


async def work(desk: Desk, seat: Seat, *, steps: int) -> None:
    """One agent."""
    await brief(desk, seat)
    for _ in range(steps):
        await step(desk, seat)


@asynccontextmanager
async def house(
    url: str, *, folder: Path, tool: Tool, sessions: int
) -> AsyncIterator[tuple[list[Desk], Callable[[int], Seat]]]:
    """A desk for each session, and what makes the seats at them."""
    settings = Settings.model_validate(
        {"planner": {"model": {"name": "m", "base_url": url}}, "limits": {"steps": 1_000_000}}
    )
    entry, clock, box = model_entry(settings, "worker"), SystemClock(), toolbox([tool])
    manifest = make_manifest("worker", entry, definitions=box.definitions)
    async with AsyncExitStack() as stack:
        model = create_model(entry, None)
        stack.push_async_callback(model.aclose)
        desks = []
        for number in range(sessions):
            name = SessionId(f"s-{number}")
            store = await SessionStore.create(folder / f"{name}.db", session=name, clock=clock)
            stack.push_async_callback(store.aclose)
            await store.append(SessionStarted(session=name, objective="x", base="c"), manifest)
            limits = settings.limits.to_limits()
            desks.append(Desk(log=store, clock=clock, limits=limits, retry=RetryPolicy(), prefix="strict"))

        def seat(number: int) -> Seat:
            return Seat(
                agent=AgentId(f"r{number + 1}"),
                model=model,
                manifest=manifest,
                price=None,
                policy=settings.spine.to_policy(),
                toolbox=box,
                place=Nowhere(),
                head_tokens=100,
                placed=frozenset(),
            )

        yield desks, seat


async def many(load: Load, url: str, *, folder: Path) -> float:
    """All agents; the seconds that they took."""
    async with house(url, folder=folder, tool=Nothing(), sessions=load.sessions) as (desks, seat):
        began = time.monotonic()
        async with anyio.create_task_group() as group:
            for number in range(load.agents):
                group.start_soon(partial(work, desks[number % len(desks)], seat(number), steps=load.steps))
        return time.monotonic() - began


@dataclass(slots=True, kw_only=True)
class Served:
    """A provider; what it did is known when it has ended."""

    url: str
    requests: int = 0
    first_at: float | None = None
    """When the first request was there, on the monotonic clock."""


@contextmanager
def provider(latency_ms: float, *arguments: str) -> Iterator[Served]:
    """`many_server.py` in a process of its own, until the end of the block."""
    command = [sys.executable, str(Path(__file__).with_name("many_server.py")), str(latency_ms), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        if server.stdin is None or server.stdout is None:
            raise RuntimeError
        served = Served(url=f"http://127.0.0.1:{int(server.stdout.readline())}/v1")
        yield served
        server.stdin.close()
        told = json.loads(server.stdout.readline())
        served.requests, served.first_at = told["requests"], told["first_at"]


def measure(load: Load) -> str:
    """One line: what was reached, and what it cost."""
    with provider(load.latency_ms) as served, tempfile.TemporaryDirectory() as folder:
        seconds = anyio.run(partial(many, load, served.url, folder=Path(folder)))
    requests = served.requests
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_ms = 1000 * (usage.ru_utime + usage.ru_stime) / requests
    share = load.ideal_seconds / seconds
    return (
        f"{load.agents} agents x {load.steps} steps, {load.sessions} session(s): {requests} in {seconds:.2f} s, "
        f"{share:.1%} of ideal (target {TARGET:.0%}), {cpu_ms:.2f} ms CPU a request, "
        f"peak {usage.ru_maxrss / 1024:.0f} MB\n"
    )


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    sys.stdout.write(measure(Load(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
