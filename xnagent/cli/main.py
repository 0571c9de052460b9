"""`xnagent …`: find the command, run it, and turn whatever happens into an exit code."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn, Protocol, cast

from xnagent.batch.failure import TerminatedError, exit_code_of, failure_record, message_of
from xnagent.cli.arguments import COMMANDS, parse
from xnagent.cli.console import Console, Output, claimed_stdout, flushed
from xnagent.cli.secrecy import shut_memory
from xnagent.cli.signals import heeded_signals
from xnagent.core.masking import mask_of
from xnagent.core.secrets import known_secrets
from xnagent.errors import Caught, UsageError

SESSION_COMMANDS: Final = frozenset({"run", "resume", "batch"})
"""Their exit codes tell how sessions ended, whatever became of what they print."""
OUTPUT_LOST: Final = 1
NATIVE: Final = "temporalio.bridge"


class CommandModule(Protocol):
    """What every module of a command offers."""

    def execute(self, arguments: Namespace, console: Console) -> int:
        """Do it and return the exit code."""


def main() -> int:
    """The console script. From here on a signal can't change the exit code any more, however long the exit takes."""
    shut_memory()
    code = run(sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if NATIVE in sys.modules:
        _leave(code)
    return code


def _leave(code: int) -> NoReturn:
    """End with everything written, and without taking Python down.

    The Temporal client has threads of its own; one that still wants the interpreter then aborts the process.
    """
    logging.shutdown()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run(given: Sequence[str]) -> int:
    """Execute a command line. Returns the exit code (CONTRACT, "Exit codes")."""
    try:
        arguments = parse(given)
    except UsageError as error:
        return _refuse(error, given)
    except SystemExit as told:
        return flushed(_asked_for(told))
    with claimed_stdout() as descriptor:
        console = Console(descriptor, output=_output(arguments), verbosity=_verbosity(arguments))
        console.mask = mask_of(known_secrets(os.environ))
        with Caught(BaseException) as caught, _termination():
            code = _command(arguments.command).execute(arguments, console)
            return _delivered(code, arguments.command, console=console)
        return _report(cast("BaseException", caught.error), console)


def _delivered(code: int, command: str, *, console: Console) -> int:
    """The exit code. Output that did not fit is told; it is a failure where output is all that the command makes."""
    if console.lost is None:
        return code
    is_session = command in SESSION_COMMANDS
    advice = "; nothing else is lost, `xnagent sessions` and `inspect` show it" if is_session else ""
    console.warn(f"xnagent: STDOUT_FAILED: {console.lost.strerror}: the output is not whole{advice}")
    return code if is_session else code or OUTPUT_LOST


def _refuse(error: UsageError, given: Sequence[str]) -> int:
    with claimed_stdout() as descriptor:
        console = Console(descriptor, output=_guessed_output(given))
        console.mask = mask_of(known_secrets(os.environ))
        return _report(error, console)


def _command(name: str) -> CommandModule:
    try:
        with _uncollected():
            return cast("CommandModule", importlib.import_module(COMMANDS[name].module))
    except ModuleNotFoundError as error:
        if error.name != COMMANDS[name].module:
            raise
        raise UsageError(f"NOT_AVAILABLE: xnagent {name} is not available yet in this version") from error


@contextmanager
def _uncollected() -> Iterator[None]:
    """Load modules without looking for garbage among them, then or later: there is none, and looking takes a while."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _output(arguments: Namespace) -> Output:
    chosen: Output = getattr(arguments, "output", "text")
    return "json" if chosen == "text" and getattr(arguments, "json", False) else chosen


def _guessed_output(given: Sequence[str]) -> Output:
    """What the arguments ask for, although they could not be parsed."""
    joined = "\0".join(given).replace("--output=", "--output\0")
    if "--output\0jsonl" in joined:
        return "jsonl"
    return "json" if "--output\0json" in joined or "--json" in given else "text"


def _verbosity(arguments: Namespace) -> int:
    return -1 if getattr(arguments, "quiet", False) else int(getattr(arguments, "verbose", False))


@contextmanager
def _termination() -> Iterator[None]:
    """SIGTERM and SIGHUP end a command that has no better answer, as SIGINT does."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise TerminatedError

    numbers = [number for number in heeded_signals() if number != signal.SIGINT]
    before = {number: signal.signal(number, terminate) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is terminate:
                signal.signal(number, handler)


def _report(error: BaseException, console: Console) -> int:
    """The error on stderr, with a final record on stdout where one is expected, and its exit code."""
    if isinstance(error, SystemExit):
        return _asked_for(error)
    if console.verbosity > 0:
        console.warn("".join(traceback.format_exception(error)).rstrip())
    console.warn(f"xnagent: {message_of(error)}")
    if console.output != "text" and not console.has_final:
        console.record(failure_record(error))
    return exit_code_of(error)


def _asked_for(told: SystemExit) -> int:
    return told.code if isinstance(told.code, int) else 1
