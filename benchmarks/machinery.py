#!/usr/bin/env python
"""What the machinery of one agent costs, beside a raw loop that sends the same: ratios, in one run.

The raw loop keeps its history as bytes, appends to it, and posts it with httpx: no log, no limits, no checks. Both make
400 steps against the same provider (`many_server.py`); each answer asks for one call with 120 bytes of arguments, whose
result has 2 kB. CPU is that of the whole process, the writer's thread included.

    python benchmarks/machinery.py
    python benchmarks/machinery.py --steps 100 --runs 1
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.core import Row, delta_rows, rebase_rows, table
from benchmarks.idle import make_repository
from benchmarks.many import Nothing, brief, house, provider
from xnagent.agents.step import step
from xnagent.app.crew import make_manifest
from xnagent.core.ids import AgentId, CallId
from xnagent.core.items import AssistantText, ToolCall, ToolResult, UserText
from xnagent.core.prefix import find_break
from xnagent.core.spine import Spine, add_reply, add_result, extend
from xnagent.core.tokens import Usage
from xnagent.models.catalog import ModelEntry
from xnagent.models.chat import ChatEncoder
from xnagent.ports import Call, Intent, Outcome, ToolSpec

STEPS: Final = 400
EARLY: Final = slice(10, 30)
"""Steps around the 20th."""
LATE: Final = slice(-20, None)
RESULT: Final = "An ordinary line of a result, with words and numbers.\n" * 38
ARGUMENTS: Final = json.dumps({"n": 1, "pad": "x" * 100})
MESSAGE: Final = "Do nothing, again and again. " * 20
HEAD: Final = b'{"model":"m","stream":true,"messages":['

Child = Callable[[str, int], Coroutine[Any, Any, list[float]]]


class Talker(Nothing):
    """The tool whose result is long."""

    @property
    def spec(self) -> ToolSpec:
        """With the padding that the model sends."""
        number, pad = {"type": "integer"}, {"type": "string"}
        parameters = {"type": "object", "properties": {"n": number, "pad": pad}, "additionalProperties": False}
        return ToolSpec(name="nothing", description="Does nothing.", parameters=parameters)

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Talk; each time of something else."""
        return Outcome(text=f"{time.monotonic_ns()}\n{RESULT}")


async def ours(url: str, steps: int) -> list[float]:
    """CPU seconds of each of our steps."""
    with tempfile.TemporaryDirectory() as folder:
        async with house(url, folder=Path(folder), tool=Talker(), sessions=1) as (desks, seat):
            one = seat(0)
            await brief(desks[0], one)
            return await clocked(partial(step, desks[0], one), steps)


async def raw(url: str, steps: int) -> list[float]:
    """CPU seconds of each step of the raw loop."""
    history = [json.dumps({"role": "user", "content": MESSAGE}).encode()]

    async with httpx.AsyncClient(timeout=60) as client:

        async def one() -> None:
            body = b"".join((HEAD, b",".join(history), b"]}"))
            async with client.stream("POST", f"{url}/chat/completions", content=body) as response:
                text, call = answer_in(await response.aread())
            result = {"role": "tool", "tool_call_id": call["id"], "content": f"{time.monotonic_ns()}\n{RESULT}"}
            message = {"role": "assistant", "content": text, "tool_calls": [call]}
            history.extend(json.dumps(part).encode() for part in (message, result))

        return await clocked(one, steps)


async def clocked(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> list[float]:
    """CPU seconds of the process for each."""
    seconds = []
    for _ in range(count):
        began = time.process_time()
        await work()
        seconds.append(time.process_time() - began)
    return seconds


def answer_in(stream: bytes) -> tuple[str, Mapping[str, Any]]:
    """The text and the call of a stream of events, without any of the care that real providers need."""
    events = [json.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: {")]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    text = "".join(delta.get("content") or "" for delta in deltas)
    return text, next(call for delta in deltas for call in delta.get("tool_calls", ()))


def building(steps: int) -> list[float]:
    """Seconds that it takes to make each of so many requests, each longer than the one before: no network, no log."""
    encoder, manifest = ChatEncoder(), make_manifest("worker", ModelEntry(name="m"), definitions="[]")
    spine = extend(Spine(agent=AgentId("r1")), (UserText(text=MESSAGE, origin="harness"),))
    sent: Sequence[bytes] = ()
    seconds = []
    for number in range(steps):
        began = time.perf_counter()
        body = encoder.encode(manifest, spine)
        if find_break(sent, body.segments) is not None:
            raise RuntimeError
        seconds.append(time.perf_counter() - began)
        sent, call = body.segments, ToolCall(call_id=CallId(f"c{number}"), name="nothing", arguments=ARGUMENTS)
        spine = add_reply(spine, (AssistantText(text="Next."), call), usage=Usage())
        spine = add_result(spine, ToolResult(call_id=call.call_id, text=f"{number}\n{RESULT}"))
    return seconds


CHILDREN: Final[Mapping[str, Child]] = {"ours": ours, "raw": raw}


def bare(code: str) -> list[str]:
    """One start, with byte code and files there as after an installation: to the first request; processors.

    Neither is installed with xnagent; a development environment has both.
    """
    return [sys.executable, "-c", f"import runpy, sys; sys.modules['click'] = sys.modules['trio'] = None; {code}"]


def run_child(name: str, steps: int) -> dict[str, Any]:
    """A loop in a process of its own: CPU of each step, and the most memory."""
    with provider(0.0, ARGUMENTS) as served:
        command = [*bare(f"runpy.run_path({__file__!r}, run_name='__main__')"), "--child", name]
        command += ["--url", served.url, "--steps", str(steps)]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(out)
    return found


def be_child(name: str, url: str, *, steps: int) -> None:
    """What the child does."""
    seconds = anyio.run(partial(CHILDREN[name], url, steps))
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"seconds": seconds, "mb": most_mb}))


def step_rows(steps: int, runs: int) -> Iterator[Row]:
    """A step beside the raw loop's, early and late."""
    found = [(run_child("ours", steps), run_child("raw", steps)) for _ in range(runs)]
    means = [(statistics.fmean(mine["seconds"]), statistics.fmean(other["seconds"])) for mine, other in found]
    yield Row(name=f"CPU of a step, mean of {steps}", unit="ms", values=[1e3 * mine for mine, _ in means])
    yield Row(name="the same, raw loop", unit="ms", values=[1e3 * other for _, other in means])
    ratios = [mine / other for mine, other in means]
    yield Row(name="CPU of a step / raw loop", unit="x", values=ratios, target=3.0)
    for name, number, target in (("ours", 0, 1.5), ("raw loop", 1, None)):
        growth = [late_by_early(pair[number]["seconds"]) for pair in found]
        yield Row(name=f"last steps / steps around the 20th, {name}", unit="x", values=growth, target=target)
    yield Row(name=f"memory after {steps} steps", unit="MB", values=[mine["mb"] for mine, _ in found], target=60.0)


def late_by_early(seconds: Sequence[float]) -> float:
    """How a step grows."""
    return statistics.median(seconds[LATE]) / statistics.median(seconds[EARLY])


def building_rows(steps: int, runs: int) -> Iterator[Row]:
    """Making a request: rendering, hashing, joining, comparing with the one before."""
    found = [building(steps) for _ in range(runs)]
    late = [1e3 * statistics.median(seconds[LATE]) for seconds in found]
    yield Row(name=f"making request {steps}", unit="ms", values=late)
    growth = [late_by_early(seconds) for seconds in found]
    yield Row(name="making a request, late / early", unit="x", values=growth)


def start_rows(runs: int) -> Iterator[Row]:
    """`xnagent run` in a new process, until the provider has its first request."""
    found = [start_seconds() for _ in range(runs)]
    yield Row(name="first request after the start", unit="s", values=[wall for wall, _ in found], target=0.5)
    yield Row(name="processor time of a start and an end", unit="s", values=[cpu for _, cpu in found])


def start_seconds() -> tuple[float, float]:
    """One start, byte code and files are there as they are after an installation: to the first request; processors.

    The second number is of the whole process and its children: on a busy machine it is the one to trust.
    """
    with provider(0.0) as served, tempfile.TemporaryDirectory() as folder:
        repository = make_repository(Path(folder, "repository"))
        environ = {"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPATH": str(Path(__file__).parent.parent)}
        start = bare("runpy.run_module('xnagent', run_name='__main__')")
        command = [*start, "run", "Do it.", "--base-url", served.url, "--model", "m"]
        used = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        began = time.monotonic()
        with subprocess.Popen(
            [*command, "--max-steps", "1"],
            cwd=repository,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            process.wait(60)
        used = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - used
    return (served.first_at or float("inf")) - began, used


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        be_child(options.child, options.url, steps=options.steps)
        return
    rows = [*step_rows(options.steps, options.runs), *building_rows(options.steps, options.runs)]
    rows += [*start_rows(options.runs), *rebase_rows(options.runs), *delta_rows(options.runs)]
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
