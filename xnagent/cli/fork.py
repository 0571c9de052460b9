"""`xnagent fork`: a new session that goes on from a point in another one's log."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from functools import partial

import anyio

from xnagent.app.forking import Fork, fork_session
from xnagent.cli import resume
from xnagent.cli.console import Console
from xnagent.cli.hosting import acting_host_of
from xnagent.cli.options import changed_settings, models_of
from xnagent.cli.resume import last_settings
from xnagent.config.flags import OPTION_KEYS
from xnagent.core.text import Json, clean
from xnagent.errors import UsageError
from xnagent.inspect.plain import count, line, money

SHOWN_CHARACTERS = 200


def execute(arguments: Namespace, console: Console) -> int:
    """Make it and print its id; with `--run` go on with it, and the exit code is the session's."""
    host = acting_host_of(arguments)
    messages = _messages(arguments)
    is_run = getattr(arguments, "run", False)
    if is_run:
        models_of(changed_settings(arguments, last_settings(host.place(arguments.session))), host)
    elif unused := [name for name in OPTION_KEYS if hasattr(arguments, name)]:
        option = f"--{unused[0].replace('_', '-')}"
        raise UsageError(f"USAGE: {option} is for a session that goes on: add --run, or give it to `xnagent resume`")
    fork = anyio.run(partial(fork_session, host, arguments.session, at=arguments.at, messages=messages))
    for text in _told(fork):
        console.say(text)
    if is_run:
        rest = {name: value for name, value in vars(arguments).items() if name not in {"message", "at", "run"}}
        return resume.execute(Namespace(**{**rest, "session": fork.session}), console)
    console.say(f"go on with it: xnagent resume {fork.session}")
    if console.output == "text":
        console.answer(fork.session)
    else:
        console.record(_record(fork, messages))
    return 0


def _messages(arguments: Namespace) -> list[str]:
    messages = [clean(text) for text in getattr(arguments, "message", [])]
    if not all(text.strip() for text in messages):
        raise UsageError("MESSAGE_EMPTY: a message is empty; say something or leave --message out")
    return messages


def _told(fork: Fork) -> Iterator[str]:
    requests, cost = fork.forked.requests, money(fork.forked.cost_usd)
    yield f"session {fork.session}: the first {count(fork.cut)} events of {fork.origin}, {fork.artifacts} artifacts"
    if requests:
        yield f"what these cost counts in it and against its limits: {requests} requests, {cost}"
    for run, steps in fork.lost.items():
        what = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
        yield line(
            f"{run}: what {what} changed in its tree is not in the log, and its Worker is told so; sessions with "
            f"workspace.save=always keep it",
            SHOWN_CHARACTERS,
        )


def _record(fork: Fork, messages: list[str]) -> dict[str, Json]:
    lost: dict[str, Json] = {run: list(steps) for run, steps in fork.lost.items()}
    return {
        "type": "fork",
        "session": fork.session,
        "origin": fork.origin,
        "at": fork.cut,
        "artifacts": fork.artifacts,
        "messages": len(messages),
        "inherited": {"requests": fork.forked.requests, "cost_usd": fork.forked.cost_usd},
        "lost_steps": lost,
        "resume": ["xnagent", "resume", fork.session],
    }
