"""A model server on the loopback whose model is a script: for tests, the demo and a shell.

    python -m xnagent.testing.server SCRIPT.toml --port 8080 --wire-dialect anthropic --chaos-seed 1 --chaos-rate 0.3

It speaks Chat Completions, Responses and Messages, streamed or whole. It refuses what the provider would refuse, in
its words; checks the rules of the house (pairs of calls and results, exact prefixes); simulates the provider's cache;
fails when it is told or drawn to; and says in the end which requests the script did not expect and which rules were
never used.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self, TypedDict, Unpack

from xnagent.testing.answer import Answer
from xnagent.testing.cache import Books, CacheRules
from xnagent.testing.chaos import Chaos
from xnagent.testing.choice import Brain
from xnagent.testing.handler import HTML, HttpServer
from xnagent.testing.mind import Mind, Setup
from xnagent.testing.providers import PROVIDERS, Provider, choose_provider
from xnagent.testing.reading import Wire
from xnagent.testing.received import Received
from xnagent.testing.script import ReplySpec, Script, load_script, parse_script

__all__ = ["HTML", "Exchange", "Options", "ScriptedServer", "Timepiece", "main"]


class Timepiece(Protocol):
    """What the server reads the time from; `doubles.FakeClock` is one."""

    def now(self) -> str:
        """UTC as ISO 8601, for dates in headers."""
        ...

    def monotonic(self) -> float:
        """Seconds, for the cache."""
        ...


class _RealTime:
    def now(self) -> str:
        return datetime.now(UTC).isoformat()

    def monotonic(self) -> float:
        return time.monotonic()


class Options(TypedDict, total=False):
    """How a server behaves, beside what it says."""

    brain: Brain | None
    """Answers in place of the script."""
    provider: Provider | str | None
    """One of `providers.PROVIDERS`; None: on the chat wire nobody in particular, on the others their makers."""
    cache: CacheRules | None
    """In place of the provider's."""
    strict: bool
    """A request that neither extends its predecessor nor is a declared rebase is a problem (the default)."""
    require_reasoning: bool
    """Reasoning must come back on the chat wire, whoever the provider is."""
    chaos: Chaos | None
    """Troubles drawn from a seed."""
    clock: Timepiece | None
    port: int
    """0 takes a free one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request as it was answered."""

    request: Received
    headers: Mapping[str, str]
    spec: ReplySpec
    is_whole: bool
    """It got a whole answer."""


class ScriptedServer:
    """Starts on entering, stops on leaving; `check()` says what went wrong."""

    def __init__(
        self, script: Script | Mapping[str, Any] | str | Path | None = None, **options: Unpack[Options]
    ) -> None:
        """A script, the data of one, or its file. KeyError: unknown provider."""
        choose_provider("chat", options.get("provider"), cache=None)
        self._clock = options.get("clock") or _RealTime()
        self._mind = Mind(_as_script(script), _setup(options), clock=self._clock.monotonic)
        self._lock = threading.Lock()
        self.exchanges: list[Exchange] = []
        self.stopping = threading.Event()
        self._http = HttpServer(("127.0.0.1", options.get("port", 0)), self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.close_connections()
        self._http.server_close()
        self._thread.join(timeout=5)

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def problems(self) -> list[str]:
        """What was wrong with requests so far."""
        return self._mind.problems

    @property
    def books(self) -> Books:
        """Totals of the whole answers, each counted once."""
        return self._mind.ledger.books

    @property
    def reported(self) -> Books:
        """Totals of those whose usage was sent: what a client can know."""
        return self._mind.ledger.reported

    @property
    def bodies(self) -> list[bytes]:
        """All bodies received, in order."""
        return [exchange.request.body for exchange in self.exchanges]

    def count(self, what: str) -> int:
        """`extensions`, `rebases`, `breaks`, `resends`, `overflows`, and of the chaos `faults` and `quirks`."""
        return self._mind.counts[what]

    def today(self) -> datetime:
        """The date for headers."""
        return datetime.fromisoformat(self._clock.now()).astimezone(UTC)

    def check(self, *, leftovers: bool = True) -> None:
        """Raise AssertionError with everything that was wrong: problems, and rules that were not used."""
        found = [*self.problems, *(self._mind.conversations.leftovers() if leftovers else ())]
        if found:
            raise AssertionError("\n".join(["the scripted server saw problems:", *found]))

    def take(
        self, body: bytes, headers: Mapping[str, str], *, wire: Wire = "chat"
    ) -> tuple[Received, ReplySpec, Answer | None]:
        """Decide on one request."""
        request = Received(body, wire)
        with self._lock:
            try:
                spec, answer = self._mind.answer(request)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                problem = f"the request cannot be read: {type(error).__name__}: {error}"
                spec, answer = self._mind.refuse(problem, request), None
            is_whole = answer is not None and spec.fault is None
            self.exchanges.append(Exchange(request=request, headers=headers, spec=spec, is_whole=is_whole))
        return request, spec, answer


def _setup(options: Options) -> Setup:
    return Setup(
        brain=options.get("brain"),
        provider=options.get("provider"),
        cache=options.get("cache"),
        strict=options.get("strict", True),
        require_reasoning=options.get("require_reasoning", False),
        chaos=options.get("chaos"),
    )


def _as_script(script: Script | Mapping[str, Any] | str | Path | None) -> Script:
    if script is None or isinstance(script, Script):
        return script or Script()
    return parse_script(script) if isinstance(script, Mapping) else load_script(script)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a script until interrupted; the address is the first line of stdout, problems go to stderr."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        script = load_script(options.script)
    except (OSError, ValueError, TypeError) as error:
        parser.error(f"{options.script} is no script that can be read: {error}")
    provider = PROVIDERS[options.wire_dialect] if options.wire_dialect else None
    if options.window_tokens:
        provider = replace(provider or PROVIDERS["generic"], window_tokens=options.window_tokens)
    chaos = None if options.chaos_seed is None else Chaos(seed=options.chaos_seed, rate=options.chaos_rate)
    with ScriptedServer(script, port=options.port, provider=provider, chaos=chaos) as server:
        sys.stdout.write(server.base_url + "\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("".join(problem + "\n" for problem in server.problems))
    return 1 if server.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="xnagent.testing.server", description="Serve a scripted model.")
    parser.add_argument("script", type=Path, help="a TOML or JSON script")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--wire-dialect", choices=sorted(PROVIDERS), help="which provider it is")
    parser.add_argument("--window-tokens", type=int, default=0, help="refuse longer prompts")
    parser.add_argument("--chaos-seed", type=int, help="draw troubles from this seed")
    parser.add_argument("--chaos-rate", type=float, default=0.2, help="share of the attempts that have one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
