"""`xnagent replay`: make a session's requests again from its log and compare them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from xnagent.app.replay import replay_session
from xnagent.cli.console import Console
from xnagent.cli.options import host_of

DIFFERS = 1


def execute(arguments: Namespace, console: Console) -> int:
    """0 if everything came out the same, else 1 with what did not."""
    found = replay_session(host_of(arguments), arguments.session)
    if console.output != "text":
        console.record({"type": "replay", "session": arguments.session, **asdict(found)})
    else:
        made = f"{found.requests} requests, {found.messages} messages, {found.rebases} rebases, {found.calls} calls"
        verdict = f"{len(found.problems)} differ" if found.problems else "all the same, byte for byte"
        lines = [f"{made}: {verdict}", *found.changed, *found.problems]
        console.answer("\n".join(lines))
    return DIFFERS if found.problems else 0
