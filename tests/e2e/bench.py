"""What the end-to-end tests share: a repository, a scripted server, sessions, and what must hold after every one."""

import atexit
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import anyio

from xnagent.app.host import Host
from xnagent.app.replay import replay_session, request_bytes
from xnagent.app.running import SessionSpec, Stop, resume_session, run_session
from xnagent.config import Settings
from xnagent.config.entry import Role
from xnagent.core.board import ACTIVE_RUN
from xnagent.core.delta import apply_to_view
from xnagent.core.events import SessionSettled, Stored
from xnagent.core.fold import fold_all
from xnagent.core.hook_events import HookRan
from xnagent.core.ids import PLANNER, SessionId
from xnagent.core.items import UserText, closed_groups, is_balanced
from xnagent.core.record import final_record
from xnagent.core.spine_events import ReplyReceived, RequestStarted, SpineExtended, SpineRebased, ToolFinished
from xnagent.core.state import SessionState
from xnagent.core.text import canonical
from xnagent.core.view import Document, view
from xnagent.store.codec import unpack
from xnagent.store.place import Sessions
from xnagent.store.sessions import session_path
from xnagent.testing.script import ReplySpec, Rule, Script, ScriptedCall, Section
from xnagent.testing.server import ScriptedServer

SESSION = SessionId("s-bench")
FILES = {"a.py": "x = 1\n", "b.py": "y = 1\n", "README.md": "A small thing.\n"}


def call(name: str, arguments: str | None = None, /, *, call_id: str | None = None, **fields: Any) -> ScriptedCall:
    """A tool call; `arguments` is the string as it is sent."""
    return ScriptedCall(name=name, arguments=fields if arguments is None else arguments, id=call_id)


def reply(*calls: ScriptedCall, text: str = "", **fields: Any) -> ReplySpec:
    return ReplySpec(text=text, calls=calls, **fields)


def on(*when: str, calls: Iterable[ScriptedCall] = (), text: str = "", times: int = 1, **fields: Any) -> Rule:
    """A rule: the answer when all of `when` is new."""
    return Rule(reply=reply(*calls, text=text, **fields), when=when, times=times)


def task(name: str, **fields: Any) -> dict[str, Any]:
    """A task as `plan` takes it."""
    return {"id": name, "title": f"Do {name}", "objective": f"Make {name} true.", **fields}


def plan(*tasks: dict[str, Any], **fields: Any) -> ScriptedCall:
    return call("plan", tasks=list(tasks), **fields)


def delegate(*names: str, **fields: Any) -> list[ScriptedCall]:
    return [call("delegate", task=name, **fields) for name in names]


def start(*tasks: dict[str, Any]) -> Rule:
    """Plan the tasks and delegate all of them."""
    return on("<state>", calls=[plan(*tasks), *delegate(*(one["id"] for one in tasks))])


def finish(*when: str, outcome: str = "completed", summary: str = "All done.", **fields: Any) -> Rule:
    return on(*when, calls=[call("finish", outcome=outcome, summary=summary, **fields)])


def submit(*when: str, status: str = "completed", summary: str = "Did it.", **fields: Any) -> Rule:
    return on(*when, calls=[call("submit", status=status, summary=summary, **fields)])


def bash(command: str, *when: str, times: int = 1, **fields: Any) -> Rule:
    return on(*when, calls=[call("bash", command=command, **fields)], times=times)


def write(path: str, content: str, *when: str) -> Rule:
    return on(*when, calls=[call("write", path=path, content=content)])


def scripted(
    *planner: Rule, workers: Mapping[str, Iterable[Rule]] | None = None, wait: str | None = "Waiting."
) -> Script:
    """A script; workers are named by their task, `task#2` is its second run."""
    sections = []
    for name, rules in (workers or {}).items():
        wanted, _, attempt = name.partition("#")
        number = int(attempt) if attempt else None
        sections.append(Section(rules=tuple(rules), match=f'<task id="{wanted}"', attempt=number))
    return Script(planner=(Section(rules=planner, wait=wait),), worker=tuple(sections))


@cache
def _template(files: tuple[tuple[str, str], ...]) -> Path:
    folder = Path(mkdtemp(prefix="xnagent-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git("init", "-q", "-b", "main", folder=folder)
    git("add", "-A", folder=folder)
    git("commit", "-q", "-m", "first", folder=folder)
    return folder


def git(*arguments: str, folder: Path) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout


def make_repository(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """A git repository with one commit."""
    shutil.copytree(_template(tuple(sorted(files.items()))), folder)
    return folder


def server_settings(url: str, **fields: Any) -> Settings:
    """Settings of a session against the server; nested keys are joined by `__`."""
    data: dict[str, Any] = {
        "planner": {"model": {"name": "m", "base_url": url}},
        "retry": {"first_wait_seconds": 0.01, "max_wait_seconds": 0.05, "max_attempts": 3},
        "timeouts": {"idle_seconds": 20, "progress_seconds": 20},
        "limits": {"deadline_seconds": 50},
        "check_timeout_seconds": 20,
        "prefix": "strict",
        "sandbox": {"mode": "off"},
    }
    for key, value in fields.items():
        *tables, last = key.split("__")
        table = data
        for name in tables:
            table = table.setdefault(name, {})
        table[last] = value
    return Settings.model_validate(data)


@dataclass(frozen=True)
class Ended:
    """A session that came to an end."""

    state: SessionState
    events: tuple[Stored, ...]
    path: Path

    @property
    def record(self) -> dict[str, Any]:
        return final_record(self.state)

    @property
    def code(self) -> int:
        assert self.state.settled is not None
        return self.state.settled.exit_code

    @property
    def outcome(self) -> str:
        assert self.state.settled is not None
        return self.state.settled.outcome

    def of(self, kind: type) -> list[Any]:
        """The events of one type."""
        return [stored.event for stored in self.events if isinstance(stored.event, kind)]

    def results(self, agent: str = PLANNER, tool: str | None = None) -> list[ToolFinished]:
        return [e for e in self.of(ToolFinished) if e.agent == agent and tool in {None, e.tool}]

    def replies(self, agent: str = PLANNER) -> list[ReplyReceived]:
        return [e for e in self.of(ReplyReceived) if e.agent == agent]

    def told(self, agent: str = PLANNER, kind: str = "delta") -> list[str]:
        """The texts of the messages that xnagent wrote."""
        return [item.text for e in self.of(SpineExtended) if (e.agent, e.kind) == (agent, kind) for item in e.items]

    def run(self, name: str) -> Any:
        return {str(key): run for key, run in self.state.board.runs.items()}[name]

    def task(self, name: str) -> Any:
        return {str(key): one for key, one in self.state.board.tasks.items()}[name]


@dataclass
class Bench:
    """One place where sessions are run."""

    folder: Path
    files: Mapping[str, str] = field(default_factory=lambda: FILES)
    session: SessionId = SESSION
    store: Sessions | None = None

    def __post_init__(self) -> None:
        self.repository = make_repository(self.folder / "repo", self.files)
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        self.host = Host(home=self.folder / "home", environ=environ, store=self.store)

    @property
    def path(self) -> Path:
        return session_path(self.host.home, self.session)

    async def run(
        self,
        server: ScriptedServer,
        objective: str = "Make it so.",
        *,
        stop: Stop | None = None,
        seconds: float = 55,
        **settings: Any,
    ) -> Ended:
        """A new session; afterwards everything that must hold after every session is checked."""
        spec = SessionSpec(
            objective=objective,
            repository=self.repository,
            settings=server_settings(server.base_url, **settings),
            session=self.session,
        )
        with anyio.fail_after(seconds):
            await run_session(self.host, spec, stop=stop or Stop())
        return self.ended(server)

    async def resume(
        self,
        server: ScriptedServer,
        message: str | None = None,
        *,
        stop: Stop | None = None,
        chosen: Sequence[Role] = (),
        **settings: Any,
    ) -> Ended:
        """The session, taken up again, and checked."""
        made = server_settings(server.base_url, **settings)
        stop = stop or Stop()
        with anyio.fail_after(55):
            await resume_session(self.host, self.session, settings=made, message=message, stop=stop, chosen=chosen)
        return self.ended(server)

    def ended(self, server: ScriptedServer | None = None) -> Ended:
        """The session as its log tells it."""
        events = tuple(self.host.place(self.session).events())
        ended = Ended(state=fold_all(stored.event for stored in events), events=events, path=self.path)
        check_ended(ended, self)
        if server is not None:
            assert not server.problems, server.problems
            check_sent(ended, server)
        return ended

    def read(self, name: str) -> str:
        return (self.repository / name).read_text()

    def flag(self, name: str) -> str:
        """A command that says to others that this place was reached."""
        return f"touch '{self.folder / name}.flag'"

    def wait_for(self, name: str) -> str:
        """A command that waits for the flag, for 20 seconds at most."""
        return _until(f"[ -e '{self.folder / name}.flag' ]")

    def wait_for_merge(self) -> str:
        """A command that waits until something was merged since the run's base."""
        head = f"git --git-dir='{self.work('integration.git')}' rev-parse integration"
        return _until(f'[ "$({head})" != "$(git rev-parse HEAD)" ]')

    def work(self, *parts: str) -> Path:
        return self.host.work_folder(self.session).joinpath(*parts)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, 40 seconds at most."""
    for _ in range(800):
        if condition():
            return
        await anyio.sleep(0.05)
    raise TimeoutError("it did not happen")


def _until(condition: str) -> str:
    return f"for n in $(seq 400); do {condition} && break; sleep 0.05; done"


def check_ended(ended: Ended, bench: Bench) -> None:
    """What holds after every session."""
    replayed = replay_session(bench.host, bench.session)
    assert replayed.problems == []
    assert replayed.requests == len(ended.of(RequestStarted))
    state = ended.state
    assert state.settled is not None
    own = [stored.event for stored in ended.events if not isinstance(stored.event, HookRan)]
    assert isinstance(own[-1], SessionSettled)
    assert not [run.run for run in state.board.runs.values() if run.status == "working"]
    if state.settled.outcome in {"completed", "failed", "partial", "blocked"}:
        assert not [run.run for run in state.board.runs.values() if run.status in ACTIVE_RUN]
    for spine in state.spines.values():
        closed = spine.items if not spine.is_open else sum(closed_groups(spine.items)[:-1], ())
        assert is_balanced(closed), f"the history of {spine.agent} is not balanced"
        assert not spine.is_open, f"{spine.agent} has open calls"
    assert not state.started_tools
    check_told(ended)
    assert (state.settled.exit_code == 0) == (state.settled.outcome == "completed")


def check_told(ended: Ended) -> None:
    """I2: what the Planner was told, put together, is what it is remembered to have been told."""
    told: Document = {}
    for event in _messages(ended):
        told = _with_message(told, event)
    base = ended.state.spines[PLANNER].base if PLANNER in ended.state.spines else None
    if base is not None:
        assert canonical(told) == canonical(view(base))


def _messages(ended: Ended) -> list[SpineExtended | SpineRebased]:
    kinds = (SpineExtended, SpineRebased)
    return [stored.event for stored in ended.events if isinstance(stored.event, kinds)]


def _with_message(told: Document, event: SpineExtended | SpineRebased) -> Document:
    if event.agent != PLANNER or getattr(event, "kind", "delta") not in {"baseline", "delta"}:
        return told
    texts = [item.text for item in event.items if isinstance(item, UserText)]
    text = next((text for text in texts if "<state>\n" in text), texts[0])
    if "<state>\n" in text:
        return json.loads(re.search(r"<state>\n(.*)\n</state>", text, re.DOTALL)[1])
    return apply_to_view(told, [json.loads(line) for line in text.splitlines() if line.startswith('{"op"')])


def check_sent(ended: Ended, server: ScriptedServer) -> None:
    """Every request in the log can be rebuilt, and everything that the server got was in the log."""
    logged = {event.sha256 for event in ended.of(RequestStarted)}
    received = {sha256(body).hexdigest() for body in server.bodies}
    assert received <= logged
    last = ended.of(RequestStarted)[-1:]
    for event in last:
        assert sha256(request_bytes(ended.events, event.request)).hexdigest() == event.sha256


def rewrite(path: Path, kind: str, old: str, new: str, *, number: int = 0) -> None:
    """Change the stored text of one event of a type, as only somebody outside could."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT seq, enc, payload FROM events WHERE type = ? ORDER BY seq", (kind,)
        ).fetchall()
        seq, encoding, payload = rows[number]
        text = unpack(encoding, payload, what="").decode()
        assert old in text
        connection.execute(
            "UPDATE events SET enc = 'raw', payload = ? WHERE seq = ?", (text.replace(old, new).encode(), seq)
        )
        connection.commit()
