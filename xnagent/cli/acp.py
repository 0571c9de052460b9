"""`xnagent acp`: an agent for editors, over stdin and stdout."""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, cast

import anyio
import anyio.abc

from xnagent.api.options import Chosen
from xnagent.cli.console import Console
from xnagent.cli.hosting import explicit, host_of
from xnagent.cli.run import start_logging
from xnagent.cli.standing import until_signalled
from xnagent.errors import UsageError

SERVING: Final = "xnagent.acp.serving"
"""Loaded only when it is used: the protocol's SDK is an extra."""

STDIN: Final = 0


class _Serving(Protocol):
    async def serve(
        self, chosen: Chosen, descriptor: int, *, write: Callable[[bytes], None], stop: anyio.Event
    ) -> None: ...


def execute(arguments: Namespace, console: Console) -> int:
    """Answer one editor until it goes (0), or until a signal comes."""
    serving = _serving()
    start_logging(arguments, console)
    files = tuple(Path(file) for file in arguments.config)
    chosen = Chosen(host=host_of(arguments), explicit=tuple(explicit(arguments)), files=files, directory=".")
    chosen.settings()

    async def answer(stop: anyio.Event) -> None:
        await serving.serve(chosen, STDIN, write=console.raw, stop=stop)

    return anyio.run(until_signalled, answer)


def _serving() -> _Serving:
    try:
        return cast("_Serving", importlib.import_module(SERVING))
    except ImportError as error:
        raise UsageError(
            f"ACP_EXTRA_MISSING: the protocol's SDK cannot be loaded ({error}); "
            "install it with: pip install 'xnagent[acp]'"
        ) from error
