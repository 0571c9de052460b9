"""What the outside must provide: all contracts on one page.

Everything here is given to the agents and the orchestrator; nothing here calls them. Methods that can block are async;
they raise the errors of `xnagent.errors` and let cancellation through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from xnagent.core.commits import Applied, Base, Conflict, Merged, Taken, TreeSave
from xnagent.core.events import Event, Stored
from xnagent.core.ids import AgentId, CallId, RunId, Ticket
from xnagent.core.items import ReplyItem
from xnagent.core.spine import Spine
from xnagent.core.spine_events import EffectClass, ManifestRecorded, ToolStarted
from xnagent.core.state import SessionState
from xnagent.core.text import Json
from xnagent.core.tokens import Usage
from xnagent.core.trees import TreeLog
from xnagent.core.values import dataclass


class Clock(Protocol):
    """Time, so that tests can own it."""

    def now(self) -> str:
        """UTC as ISO 8601 with milliseconds and `Z`."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class Artifacts(Protocol):
    """Content stored by its hash in the session's file."""

    def put(self, data: bytes, *, is_verbatim: bool = False) -> Ticket:
        """Store the content and return its ticket; durable at the latest with the next durable append.

        Secrets in it are masked; `is_verbatim` keeps every byte, for what must be usable as it is (a patch).
        """

    async def get(self, ticket: Ticket) -> bytes | None:
        """The content, also if it was put a moment ago; None if there is none."""


class History(Protocol):
    """What agents did, read back from the log."""

    async def history(self, agent: AgentId) -> tuple[Stored, ...]:
        """The ReplyReceived and ToolFinished events of an agent, in order."""


class Log(Artifacts, History, Protocol):
    """The session's log, opened for writing by the one process that holds it."""

    @property
    def last_seq(self) -> int:
        """Place of the newest folded event; 0 if there is none."""

    async def wait(self, *, after: int) -> int:
        """Wait until `last_seq` is greater than `after`; returns it."""

    @property
    def state(self) -> SessionState:
        """The log folded, up to the last committed append."""

    @property
    def ahead(self) -> SessionState:
        """The log folded, up to the newest append of all: what an event that is appended now is folded onto.

        What is computed from state and appended at once (messages, rebases, outcomes of state tools) starts from this.
        """

    async def append(self, *events: Event, durable: bool = True) -> tuple[Stored, ...]:
        """Commit the events in one transaction, fold them, and return them with their places.

        Returns only after the commit (`durable`: also synced to disk). Concurrent appends are committed in the order
        of the calls. Raises StoreWriteError or StoreFencedError: nothing of it is stored, and the session must stop.
        """

    def submit(self, *events: Event, durable: bool = True) -> Awaitable[tuple[Stored, ...]]:
        """The same in two parts: `ahead` has the events when this returns; what it returns is awaited for the commit.

        For those who let others go on between the two. It has to be awaited.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request as bytes, ready to be sent."""

    content: bytes
    sha256: str
    """Hex digest of the content."""
    segments: Sequence[bytes]
    """Head (system and tools as rendered) and then one piece for each group of items; the same objects as in the
    request before, where nothing changed."""
    lineage: str = ""
    """The chain of requests that it belongs to, by its name within the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer of a model."""

    items: tuple[ReplyItem, ...]
    """Call ids as the provider sent them: possibly empty or not unique."""
    usage: Usage
    finish: str
    """`stop`, `tool_calls`, `length` or `content_filter`."""
    first_token_seconds: float | None = None
    note: str = ""
    """What was odd about the usage, for people."""


class Model(Protocol):
    """Something that answers a request: one wire, one endpoint, one model name."""

    def encode(self, manifest: ManifestRecorded, spine: Spine) -> Body:
        """The request's bytes, a pure function of manifest and items; what was rendered before is reused."""

    async def send(self, body: Body) -> Reply:
        """One attempt. Raises ModelError; a reply is returned only if the stream came to its proper end."""

    async def aclose(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What the model is told about a tool."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    """JSON Schema of an object, strict: no additional properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a call is about to do, recorded before it begins."""

    effect: EffectClass
    spool: str | None = None
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a call came to. A failure is an outcome, not an exception."""

    text: str
    """What the model reads."""
    code: str = "ok"
    """`ok` or an error code in capitals (`NOT_FOUND`)."""
    label: str = ""
    """What a person reads: one line."""
    events: tuple[Event, ...] = ()
    """What it changes in the state; committed together with the result."""
    artifact: Ticket | None = None
    """The whole of a text that was cut."""
    paths_read: tuple[str, ...] = ()
    paths_changed: tuple[str, ...] = ()
    seen: tuple[tuple[str, str], ...] = ()
    """Files whose content the model knows now, with its SHA-256: what a later write is held against."""
    pages: tuple[tuple[str, str], ...] = ()
    """Pages that the text shows whole (`path:first-last`), with the SHA-256 of what it shows."""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call with what the tool may use."""

    agent: AgentId
    call_id: CallId
    arguments: Mapping[str, Any]
    """Parsed, and valid against the tool's schema."""
    state: SessionState
    artifacts: Artifacts
    history: History
    workspace: Workspace | None = None


class Tool(Protocol):
    """One tool."""

    @property
    def spec(self) -> ToolSpec:
        """Its definition; always the same bytes."""

    async def intend(self, call: Call) -> Intent | Outcome:
        """What the call will do; an Outcome where it cannot be done at all. Changes nothing."""

    async def run(self, call: Call, intent: Intent) -> Outcome:
        """Do it."""

    async def reconcile(self, call: Call, started: ToolStarted) -> Outcome | None:
        """After a crash between start and result: the outcome if it is known or can't be; None: run it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A call that names a tool and fits its schema."""

    tool: Tool
    arguments: Mapping[str, Any]


class Toolbox(Protocol):
    """The tools of one agent, frozen for its life."""

    @property
    def definitions(self) -> str:
        """All specs as canonical JSON, sorted by name: the same bytes in every process."""

    def parse(self, name: str, arguments: str) -> Parsed | Outcome:
        """The tool and its arguments; an Outcome that tells the model what is wrong where they don't fit."""

    def with_tools(self, tools: Sequence[Tool]) -> Toolbox:
        """A toolbox with more tools."""


class Workspace(Protocol):
    """The tree that a run may change."""

    @property
    def root(self) -> Path:
        """Its folder; no symlink in the path."""

    @property
    def scratch(self) -> Path:
        """A private folder of the run outside the tree: spools, temporary files; it outlives the process."""


class Workspaces(Protocol):
    """The repositories of one session: integration, one for each run, and the user's checkout, which is only read."""

    async def begin(self, *, at: str, commit: str | None = None) -> Base:
        """Take the user's tree, uncommitted and untracked work included, without touching index, stash or hooks.

        `at` dates the commits, so that the same tree gives the same commit. With `commit`, begin from that commit.
        """

    async def reset(self, head: str) -> None:
        """After a crash: make the integration head what the log says."""

    async def open_run(self, run: RunId, base: str) -> Workspace:
        """A repository of its own at the commit; the one that is there already, if the run goes on."""

    async def take(self, run: RunId, base: str) -> Taken:
        """What the run changed since its base. Runs nothing that the tree could configure."""

    async def merge(self, *, head: str, base: str, commit: str, message: str) -> Merged | Conflict:
        """Merge a run's commit into the head."""

    async def advance(self, commit: str) -> None:
        """Make a merged commit the integration head."""

    async def checkout(self, commit: str, name: str) -> Workspace:
        """A fresh tree of the commit for checks."""

    async def discard(self, name: str) -> None:
        """Remove a run's repository or a checkout."""

    async def apply(self, *, base: str, head: str, wanted: bool) -> Applied:
        """Bring the result to the user: the branch, and with `wanted` also the files, if that loses nothing."""

    async def read(self, commit: str, path: str) -> bytes | None:
        """A file as it is in a commit; None if it is not there."""


class Trees(Protocol):
    """The trees of runs, kept in the log and made again from it."""

    async def holds(self, run: RunId, base: str, *, tree: TreeLog) -> bool:
        """Whether the run's tree is there, begun from that commit, and no other place went on with it since."""

    async def save(self, run: RunId, base: str, *, since: str | None) -> TreeSave:
        """The run's tree, against an earlier save if that is still known. Runs nothing that the tree could configure.

        WorkspaceError where it cannot be read or is too large.
        """

    async def rebuild(self, run: RunId, base: str, *, patches: Sequence[bytes]) -> str:
        """The commit that the patches, one after another, make of the base. WorkspaceError if they do not apply."""

    async def restore(self, run: RunId, base: str, *, commit: str, spools: Sequence[str], times: int = 1) -> Workspace:
        """Make the run's repository again at its base, with the tree of the commit; for how many times now.

        Commands of these spools count as begun and not ended.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A shell command to run in a workspace."""

    command: str
    timeout_seconds: float
    spool: str
    """Name of the files in `scratch` that keep output and exit status; unique in the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a command ended."""

    exit_code: int | None
    """None: it did not end by itself."""
    output: Path
    """The spool with the whole output (up to the limit)."""
    duration_seconds: float
    ending: str
    """`exit`, `timeout`, `signal`, `left-background` (it ended and left processes, which were killed)."""
    omitted_bytes: int = 0
    """Output beyond what the spool keeps."""


class Shell(Protocol):
    """Runs commands as process groups: no stdin, scrubbed environment, a time limit, nothing left behind."""

    async def run(self, workspace: Workspace, command: Command) -> Finished:
        """Run it to its end. Cancelled: the whole tree is killed first."""

    async def recover(self, workspace: Workspace, spool: str) -> Finished | None:
        """After a crash: stop what still runs and say how it ended; None if it never began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A program to talk to in a workspace."""

    name: str
    """Names it in messages and marks its processes."""
    line: tuple[str, ...]
    passed: tuple[str, ...] = ()
    """Variables that it gets beside what commands get."""


class Running(Protocol):
    """A service that runs."""

    async def send(self, data: bytes) -> None:
        """To its input. Raises an error of anyio's streams if it is gone."""

    async def receive(self) -> bytes:
        """What it wrote to its output next. Raises an error of anyio's streams if it is gone."""

    async def told(self) -> str:
        """The end of what it wrote to its error output, and why it was stopped, if it was."""


class Services(Protocol):
    """Runs services where a run's commands run: the same box, limits and environment."""

    def start(self, workspace: Workspace, service: Service) -> AbstractAsyncContextManager[Running]:
        """Run it until the context ends; then it and all its processes are gone, also if this process is killed.

        Raises WorkspaceError if it cannot be started.
        """
