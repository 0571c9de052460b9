#!/usr/bin/env python
"""16 Workers with one head, begun at once: how often the provider has to read the head, and what waiting for it costs.

Two whole sessions against a scripted provider with Anthropic's cache, whose entries can be read only some time after
they were written: one lets a call go first (`models/warming.py`), in the other nothing is known of the cache, and all
go at once. The ratio of the two times is what counts; it is told beside what each wrote.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xnagent.app.host import Host
from xnagent.app.running import SessionSpec, Stop, run_session
from xnagent.config import Settings
from xnagent.core.ids import PLANNER, SessionId
from xnagent.core.spine_events import ReplyReceived
from xnagent.core.text import Json
from xnagent.testing.cache import CacheRules
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec, ScriptedCall
from xnagent.testing.server import ScriptedServer

TARGET: Final = 1.1
PRICE: Final = {"input_usd": 3.0, "cached_usd": 0.3, "cache_write_usd": 3.75, "output_usd": 15.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much there is to do."""

    workers: int
    steps: int
    first_token_seconds: float
    visible_after_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a session took."""

    seconds: float
    heads_written: int
    heads_read: int


def call(name: str, **fields: Json) -> ScriptedCall:
    """A tool call."""
    return ScriptedCall(name=name, arguments=fields)


def session(load: Load, *, knows_cache: bool) -> Outcome:
    """One session to its end."""
    names = [f"t{number}" for number in range(1, load.workers + 1)]
    tasks = [{"id": name, "title": name, "objective": "Do it."} for name in names]

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker":
            last = call("submit", status="failed", summary="No.")
            step = call("glob", pattern=f"*{view.number}")
            chosen = last if view.number > load.steps else step
            return ReplySpec(calls=(chosen,), delay_seconds=load.first_token_seconds)
        if view.number == 1:
            return ReplySpec(calls=(call("plan", tasks=tasks), *(call("delegate", task=name) for name in names)))
        if str(view.messages).count("settled: failed") < load.workers:
            return ReplySpec(text="Waiting.")
        return ReplySpec(calls=(call("finish", outcome="failed", summary="Done."),))

    rules = CacheRules(
        minimum_tokens=1_024,
        units="breakpoints",
        dialect="anthropic",
        visible_after_seconds=load.visible_after_seconds,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedServer(brain=brain, provider="anthropic", cache=rules) as server,
    ):
        repository = Path(folder, "repo")
        repository.mkdir()
        (repository / "a.txt").write_text("a\n")
        settings = Settings.model_validate(
            {
                "planner": {"model": {"name": "m", "wire": "messages", "base_url": server.base_url}},
                "models": {"m": {"price": PRICE}} if knows_cache else {},
                "parallel": load.workers,
                "sandbox": {"mode": "off"},
            }
        )
        host = Host(home=Path(folder, "home"), environ={"PATH": os.environ["PATH"], "HOME": folder})
        spec = SessionSpec(objective="Do it.", repository=repository, settings=settings, session=SessionId("s-fan"))
        began = time.monotonic()
        anyio.run(lambda: run_session(host, spec, stop=Stop()))
        seconds = time.monotonic() - began
        events = [stored.event for stored in host.place(spec.session).events()]
    replies = [event for event in events if isinstance(event, ReplyReceived) and event.agent != PLANNER]
    firsts = list({reply.agent: reply for reply in reversed(replies)}.values())
    read = sum(bool(reply.usage.cached_tokens) for reply in firsts)
    return Outcome(seconds=seconds, heads_written=len(firsts) - read, heads_read=read)


def main() -> None:
    """Measure in turns; the least disturbed of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--steps", type=int, default=15, help="of each Worker, before it hands in")
    parser.add_argument("--first-token-seconds", type=float, default=1.0)
    parser.add_argument("--visible-after-seconds", type=float, default=0.8)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = vars(parser.parse_args())
    rounds = arguments.pop("rounds")
    load = Load(**arguments)
    pairs = [(session(load, knows_cache=False), session(load, knows_cache=True)) for _ in range(rounds)]
    naive, warmed = (min((pair[side] for pair in pairs), key=lambda one: one.seconds) for side in (0, 1))
    for name, one in (("at once", naive), ("one first", warmed)):
        sys.stdout.write(f"{name:>9}: {one.seconds:6.2f} s, heads written {one.heads_written}, read {one.heads_read}\n")
    ratio = warmed.seconds / naive.seconds
    sys.stdout.write(f"ratio of the times {ratio:.3f} (target {TARGET})\n")


if __name__ == "__main__":
    main()
