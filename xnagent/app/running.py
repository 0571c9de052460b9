"""Settings and a place in, a session run to its end out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from xnagent import __version__
from xnagent.agents.closing import error_of
from xnagent.app.boxing import choose
from xnagent.app.crew import check_models
from xnagent.app.given import check_given, given_event
from xnagent.app.hooks import begin, make_hooks, tell_end
from xnagent.app.host import Host
from xnagent.app.letters import Reception, discard_delivered, mailbox_of, messages_in, waiting_letters
from xnagent.app.places import Places, findings, logged, make_places, repository_of
from xnagent.app.project import ProjectReader
from xnagent.app.prospects import SessionProspects, session_prospects
from xnagent.app.servers import CHECKOUT, check_servers
from xnagent.app.staffing import staffed
from xnagent.config import Settings
from xnagent.config.entry import Role
from xnagent.config.secrets import check_checks, mask_for
from xnagent.core.commits import Base
from xnagent.core.events import (
    SessionInterrupted,
    SessionResumed,
    SessionSettled,
    SessionStarted,
    UserMessageAdded,
)
from xnagent.core.ids import SessionId
from xnagent.core.record import SIGNAL_EXIT_CODE
from xnagent.core.state import SessionState
from xnagent.core.values import dataclass
from xnagent.errors import Caught, PrefixBrokenError, StoreError, UsageError, WorkspaceError, XnagentError
from xnagent.orchestrator import Orchestrator
from xnagent.ports import Workspaces
from xnagent.store.codec import prepare
from xnagent.store.mailbox import Letter
from xnagent.store.place import idle_seconds, unsettled_seconds
from xnagent.store.placed import PlacedLog
from xnagent.workspaces.addresses import Address

CLOSING_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """A session to run."""

    objective: str
    repository: Path
    settings: Settings
    session: SessionId
    commit: str | None = None
    """Begin from this commit instead of the tree as it is."""
    address: Address | None = None
    """Where the repository was fetched from; `repository` is its mirror then, and `commit` is needed."""


class Stop:
    """A request from outside to stop. The first lets everything close in order; the second shortens that."""

    def __init__(self) -> None:
        self.event = SessionInterrupted(signal="SIGINT")
        """What the log says about it."""
        self.soft = anyio.Event()
        self.hard = anyio.Event()

    def request(self, signal: Literal["SIGINT", "SIGTERM"]) -> None:
        """Ask to stop; may be called from a signal handler's task."""
        self._stop(SessionInterrupted(signal=signal))

    def cancel(self, letter: Letter) -> None:
        """Ask to stop, because the letter says so."""
        self._stop(SessionInterrupted(signal="SIGINT", reason=letter.text, letter=letter.letter))

    def _stop(self, event: SessionInterrupted) -> None:
        if self.soft.is_set():
            self.hard.set()
            return
        self.event = event
        self.soft.set()


async def run_session(host: Host, spec: SessionSpec, *, stop: Stop) -> SessionState:
    """A new session from its objective to its end; the state returned is settled.

    Raises UsageError before anything is stored if it cannot begin, StoreError if its log cannot be written; where the
    store cannot be reached, before anything is made at all.
    """
    check_models(host, spec.settings)
    check_servers(spec.settings)
    given = given_event(host.tools)
    mask = mask_for(host.environ, spec.settings)
    check_checks(spec.settings.checks, mask)
    await anyio.to_thread.run_sync(choose, spec.settings.sandbox, host.environ)
    make_home(host)
    await anyio.to_thread.run_sync(host.sessions.check)
    places = make_places(host, spec.session, repository=spec.repository, settings=spec.settings)
    store = await PlacedLog.create_at(host.place(spec.session), session=spec.session, clock=host.clock, mask=mask)
    try:
        # Only whoever holds the session's file gets here: nobody else is in its work folder.
        with ThreadPoolExecutor(max_workers=1) as beside:  # git takes its time
            prepared = beside.submit(_prepared, host, spec.settings)
            base = await places.workspaces.begin(at=host.clock.now(), commit=spec.commit)
            prospects = await anyio.to_thread.run_sync(prepared.result)
        started = _started(spec, base, store=store)
        read = await _reader(host, store, places=places, settings=spec.settings).begin(base.commit)
        brought = () if read is None else (read,)
        forecast = prospects.session(spec.objective, brought=brought)
        frozen = () if given is None else (given,)
        await store.append(replace(started, forecast=forecast), *brought, *frozen, *findings(base))
        return await _drive(host, store, places=places, prospects=prospects, stop=stop)
    finally:
        if store.state.started is None:
            _forget(host, spec.session)
        await store.aclose()


def _prepared(host: Host, settings: Settings) -> SessionProspects:
    """What the first request needs and no repository has to be there for."""
    prepare()
    return session_prospects(host, settings)


def _reader(host: Host, store: PlacedLog, *, places: Places, settings: Settings) -> ProjectReader:
    return ProjectReader(places=places, artifacts=store, settings=settings, environ=host.environ)


def _started(spec: SessionSpec, base: Base, *, store: PlacedLog) -> SessionStarted:
    return SessionStarted(
        session=spec.session,
        objective=spec.objective,
        checks=spec.settings.checks,
        repository=str(spec.repository.absolute()) if spec.address is None else spec.address.text,
        base=base.commit,
        is_shadow=base.is_shadow,
        settings=spec.settings.model_dump_json(),
        version=__version__,
        snapshot=logged(base.snapshot, store),
    )


async def resume_session(
    host: Host,
    session: SessionId,
    *,
    settings: Settings,
    message: str | None,
    stop: Stop,
    chosen: Sequence[Role] = (),
) -> SessionState:
    """A session that was stopped, from where its log ends to its end.

    `chosen` are the roles whose model the user names anew: what was given up before may be tried again. A session that
    its Planner finished is not opened again without a message, given or waiting in its mailbox: its state is returned
    as it is. What is gone of its repositories is made again from the log, and fetched where it came by its address.
    """
    _check_home(host)
    mask = mask_for(host.environ, settings)
    store = await PlacedLog.open_at(host.place(session), clock=host.clock, mask=mask)
    try:
        state = store.state
        if state.started is None or state.started.base is None:
            raise UsageError(f"session {session} never began; run the objective again")
        mailbox = mailbox_of(host, session)
        said = _said(state, await waiting_letters(mailbox, state), message=message)
        if is_over(state) and not said:
            await _tidy_left(host, state, settings=settings)
            return state
        check_models(host, settings)
        check_servers(settings)
        check_given(state.given, host.tools, session=session)
        await anyio.to_thread.run_sync(choose, settings.sandbox, host.environ)
        repository = await repository_of(host, state.started)
        places = make_places(host, session, repository=repository, settings=settings)
        await places.take_up(state, store)
        place = host.place(session)
        lost = 0.0 if state.settled else await anyio.to_thread.run_sync(unsettled_seconds, place)
        idle = partial(idle_seconds, place, after=store.last_seq - 1, now=host.clock.now())
        resumed = SessionResumed(
            epoch=store.epoch,
            settings=settings.model_dump_json(),
            chosen=tuple(chosen),
            lost_seconds=lost,
            idle_seconds=await anyio.to_thread.run_sync(idle),
        )
        changed = await _reader(host, store, places=places, settings=settings).again(state)
        await store.append(resumed, *(() if changed is None else (changed,)), *said)
        await discard_delivered(mailbox, said)
        prospects = await anyio.to_thread.run_sync(session_prospects, host, settings)
        return await _drive(host, store, places=places, prospects=prospects, stop=stop)
    finally:
        await store.aclose()


def _said(state: SessionState, letters: tuple[Letter, ...], *, message: str | None) -> list[UserMessageAdded]:
    """What the user said since: letters first, then what this command brings."""
    said = messages_in(letters, state)
    if message is not None:
        number = len(state.board.messages) + len(said) + 1
        said.append(UserMessageAdded(message=f"m{number}", text=message))
    return said


def is_over(state: SessionState) -> bool:
    """Whether the session was settled by its Planner, so that nothing is left to go on with."""
    ends = {"completed", "failed", "partial", "blocked"}
    return state.settled is not None and state.settled.outcome in ends


def make_home(host: Host) -> None:
    """Sessions and repositories need a folder that can be written to; say so before anything begins."""
    try:
        host.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(host, error) from error
    _check_home(host)


def _check_home(host: Host) -> None:
    try:
        with tempfile.TemporaryFile(dir=host.home):
            pass
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(host, error) from error


def _unusable(host: Host, error: OSError) -> UsageError:
    return UsageError(
        f"HOME_UNUSABLE: {host.home} cannot be written to ({error.strerror}); choose another folder with --home"
    )


def _forget(host: Host, session: SessionId) -> None:
    shutil.rmtree(host.work_folder(session), ignore_errors=True)
    host.place(session).forget()


async def _drive(
    host: Host, store: PlacedLog, *, places: Places, prospects: SessionProspects, stop: Stop
) -> SessionState:
    """Run until the session is settled, whatever happens on the way; only a log that can't be written is raised."""
    settings = prospects.settings
    earlier, began = store.state.spent_seconds, host.clock.monotonic()
    hooks = make_hooks(host, store, settings=settings, repository=places.repository)
    ending = Caught(Exception)
    with ending:
        await begin(hooks, store, stop=stop.soft)
        async with staffed(host, store, places=places, prospects=prospects, earlier_seconds=earlier) as staff:
            orchestrator = Orchestrator(
                log=store,
                clock=host.clock,
                hands=staff,
                parallel=settings.parallel,
                deadline_seconds=settings.limits.deadline_seconds,
                limits=prospects.limits,
            )
            reception = Reception(log=store, mailbox=mailbox_of(host, store.session), stop=stop)
            keep = partial(places.spare.keep, owner=staff.owner)
            await _until_settled(store, orchestrator, stop=stop, beside=(reception.open, keep))
    if isinstance(ending.error, StoreError):
        raise ending.error
    if store.state.settled is None:
        settled = _unsettled(ending.error, store.state, stop=stop)
        seconds = round(earlier + host.clock.monotonic() - began, 3)
        await store.append(replace(settled, duration_seconds=seconds))
    await tell_end(hooks, store, stop=stop.hard)
    await _tidy(store.state, places.workspaces)
    return store.state


Work = Callable[[], Coroutine[object, object, None]]


def _unsettled(error: Exception | None, state: SessionState, *, stop: Stop) -> SessionSettled:
    """The end of a session that did not come to its own."""
    if error is None:
        kind, text = error_of(state)
        code = SIGNAL_EXIT_CODE[stop.event.signal]
        return SessionSettled(outcome="interrupted", exit_code=code, error_class=kind, error=text)
    return SessionSettled(
        outcome="prefix_broken" if isinstance(error, PrefixBrokenError) else "error",
        exit_code=error.exit_code if isinstance(error, XnagentError) else 1,
        error_class=type(error).__name__,
        error=str(error) or type(error).__name__,
    )


async def _until_settled(store: PlacedLog, orchestrator: Orchestrator, *, stop: Stop, beside: Sequence[Work]) -> None:
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            await stop.soft.wait()
            if store.ahead.settled is None:
                await store.append(stop.event)
            await stop.hard.wait()
            group.cancel_scope.cancel()

        group.start_soon(watch)
        for work in beside:
            group.start_soon(work)
        await orchestrator.run()
        group.cancel_scope.cancel()


async def _tidy_left(host: Host, state: SessionState, *, settings: Settings) -> None:
    """What a process left that was killed after the session's end."""
    repository = Path(state.started.repository if state.started else "")
    places = make_places(host, state.session, repository=repository, settings=settings)
    with suppress(WorkspaceError):
        await places.workspaces.reset(state.board.session.get("integration_head", ""))
    await _tidy(state, places.workspaces)


async def _tidy(state: SessionState, workspaces: Workspaces) -> None:
    """Remove the trees of runs that came to an end; what they changed is in the log."""
    settled = [run.run for run in state.board.runs.values() if run.status in {"completed", "failed", "cancelled"}]
    with anyio.move_on_after(CLOSING_SECONDS, shield=True):
        for name in [*settled, *(f"merge-{run}" for run in settled), "planner", "final", CHECKOUT]:
            try:
                await workspaces.discard(name)
            except WorkspaceError:
                continue
