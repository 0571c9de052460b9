"""What the tests of the Python API share: a place, and options that lead to the scripted server."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xnagent
from tests.e2e.bench import Bench, Ended, make_repository
from xnagent.core.ids import SessionId
from xnagent.testing.server import ScriptedServer

KEY = "sk-made-up-4711-abcdef-0815"


@dataclass(frozen=True)
class Kit:
    """A repository and a home."""

    folder: Path

    @property
    def repository(self) -> Path:
        return self.folder / "repo"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def options(self, server: ScriptedServer, **more: Any) -> xnagent.Options:
        """Of a session against the server."""
        if not self.repository.exists():
            make_repository(self.repository)
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "MODEL_KEY": KEY}
        options: dict[str, Any] = {
            "home": self.home,
            "directory": self.repository,
            "environ": environ,
            "model": "m",
            "base_url": server.base_url,
            "api_key_env": "MODEL_KEY",
            "sandbox": "off",
            "prefix": "strict",
            "settings": {"retry.first_wait_seconds": 0.01, "retry.max_wait_seconds": 0.05},
        }
        return {**options, **more}

    def ended(self, session: str) -> Ended:
        """The session as its log tells it, with what must hold after every one."""
        bench = Bench(self.folder / f"look-{len(list(self.folder.iterdir()))}", session=SessionId(session))
        bench.host = type(bench.host)(home=self.home, environ=bench.host.environ)
        return bench.ended()


async def played(options: xnagent.Options, session: str | None = None) -> list[xnagent.Event]:
    """All events of a new session, or of the one that goes on."""
    async with xnagent.open(session, **options) as opened:
        return [event async for event in (opened.run("Make it so.") if session is None else opened.resume())]
