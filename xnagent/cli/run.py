"""`xnagent run`: one session to its end."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from xnagent.app.boxing import Choice, choose
from xnagent.app.host import Host
from xnagent.app.running import SessionSpec, run_session
from xnagent.cli.console import Console
from xnagent.cli.dry_run import tell_session
from xnagent.cli.follow import Follower
from xnagent.cli.hosting import acting_host_of
from xnagent.cli.options import folder_of, models_of, settings_of
from xnagent.cli.session import drive
from xnagent.config import Settings
from xnagent.config.entry import Role
from xnagent.config.secrets import mask_for
from xnagent.core.rebase import Room
from xnagent.core.text import clean
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry
from xnagent.store.sessions import new_session_id
from xnagent.telemetry import set_up_logging

STDIN: Final = "-"


def execute(arguments: Namespace, console: Console) -> int:
    """Check everything that can be checked, then run."""
    objective = objective_of(arguments)
    repository = folder_of(arguments)
    host = acting_host_of(arguments)
    settings = settings_of(arguments, host, repository=repository)
    if getattr(arguments, "dry_run", False):
        models_of(settings, host)
        console.mask = mask_for(host.environ, settings)
        return tell_session(host, settings, objective=objective, console=console)
    with ThreadPoolExecutor(max_workers=1) as beside:  # to try a box takes a moment
        box = beside.submit(choose, settings.sandbox, host.environ)
        chains = models_of(settings, host)
        console.mask = mask_for(host.environ, settings)
        start_logging(arguments, console)
        announce(settings, chains, box=box.result(), console=console)
    if not getattr(arguments, "ephemeral", False):
        return _run(host, _spec(objective, repository, settings=settings, host=host), console=console)
    with tempfile.TemporaryDirectory(prefix="xnagent-", ignore_cleanup_errors=True) as folder:
        host = replace(host, home=Path(folder), store=None)
        return _run(host, _spec(objective, repository, settings=settings, host=host), console=console)


def _spec(objective: str, repository: Path, *, settings: Settings, host: Host) -> SessionSpec:
    session = new_session_id(host.clock)
    return SessionSpec(objective=objective, repository=repository, settings=settings, session=session)


def _run(host: Host, spec: SessionSpec, *, console: Console) -> int:
    console.say(f"session {spec.session}")
    follower = Follower(host.place(spec.session), spec.session, console=console)
    return drive(partial(run_session, host, spec), follower, console=console)


def objective_of(arguments: Namespace) -> str:
    """The objective from the command line, a file, or stdin if `-` asks for it. Raises UsageError if there is none."""
    given: str | None = getattr(arguments, "objective", None)
    file: str | None = getattr(arguments, "file", None)
    if given is not None and file is not None:
        raise UsageError("USAGE: an objective and -f FILE; give one of them")
    if file is not None or given == STDIN:
        text = clean(read_source(file or STDIN))
    elif given is not None:
        text = clean(given)
    else:
        raise UsageError('USAGE: no objective; write xnagent run "what to do", or - to read it from stdin, or -f FILE')
    if not text.strip():
        raise UsageError("OBJECTIVE_EMPTY: the objective is empty; say what to do")
    return text


def read_source(source: str) -> str:
    """The text of stdin (`-`) or a file. Raises UsageError if it cannot be read."""
    if source == STDIN:
        return "" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8-sig", "replace")
    try:
        return Path(source).read_bytes().decode("utf-8-sig", "replace")
    except (OSError, ValueError) as error:
        raise UsageError(f"FILE_UNREADABLE: {source}: {getattr(error, 'strerror', None) or error}") from error


def start_logging(arguments: Namespace, console: Console) -> None:
    """Logs to stderr or `--log-file`."""
    file = getattr(arguments, "log_file", None)
    set_up_logging(verbosity=console.verbosity, file=None if file is None else Path(file), mask=console.mask)


def announce(settings: Settings, chains: Mapping[Role, Sequence[ModelEntry]], *, box: Choice, console: Console) -> None:
    """Say once where commands run, which models answer, and when spines are rebased (M53)."""
    console.say(box.told)
    for role, (entry, *others) in chains.items():
        room = Room(window_tokens=entry.window_tokens, max_output_tokens=entry.max_output_tokens, head_tokens=0)
        share, usable = settings.spine.soft_share, room.usable_tokens
        price = "" if entry.price else ", price not known: costs are null"
        known = "" if entry.source else " (assumed unless you set it)"
        then = "".join(f", then {other.name}" for other in others)
        console.say(
            f"{role}: {entry.name}{then}, window {entry.window_tokens:,}{known}, room for {usable:,} tokens, "
            f"rebase at {share:.0%} of it ({int(share * usable):,}){price}"
        )
