"""The user's hooks, put together for a session: they are the host's, and no session brings its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from xnagent.agents.hooking import Hooks, hook_refusal
from xnagent.app.host import Host
from xnagent.config import Settings
from xnagent.config.secrets import mask_for
from xnagent.core.events import LimitReached
from xnagent.core.hooks import Hook, merged_of, of_merge, of_run, of_session
from xnagent.core.ids import RunId
from xnagent.core.masking import Mask
from xnagent.core.permissions import Asked
from xnagent.core.values import dataclass
from xnagent.ports import Call
from xnagent.store.placed import PlacedLog
from xnagent.tools.guard import asked_of
from xnagent.tools.mcp.deferred import INVOKE
from xnagent.workspaces.addresses import is_address
from xnagent.workspaces.hook_processes import HookProcesses

FOREIGN: Final = "mcp__"
CLOSING_SECONDS: Final = 10.0
"""For what is said of a run that is stopped."""
ENDED: Final = frozenset({"completed", "failed", "cancelled"})


def make_hooks(host: Host, log: PlacedLog, *, settings: Settings, repository: Path) -> Hooks | None:
    """Those of the host; None where there are none, and nothing is different then.

    They run in the user's folder; where the repository came by its address, in xnagent's own.
    """
    if not host.hooks:
        return None
    named = "" if log.state.started is None else log.state.started.repository
    folder, mask = host.home if is_address(named) else repository, mask_for(host.environ, settings)
    environment = HookEnvironment(environ=host.environ, mask=mask)
    return Hooks(
        log=log,
        hooks=host.hooks,
        launcher=HookProcesses(folder=folder, environment=environment.of, clock=host.clock),
        look=look,
        mask=mask,
        repository=named,
    )


def look(tool: str, call: Call) -> Asked | None:
    """A call as rules see it; one that goes through `mcp_invoke` is a call of the tool that it names."""
    name = str(call.arguments["tool"]) if tool == INVOKE.name else tool
    return Asked(tool=name) if name.startswith(FOREIGN) else asked_of(tool, call)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEnvironment:
    """What hooks find in their environment: the user's, without secrets that they do not name."""

    environ: Mapping[str, str]
    mask: Mask

    def of(self, hook: Hook) -> dict[str, str]:
        """The whole environment of one hook."""
        return {
            name: value for name, value in self.environ.items() if name in hook.env or self.mask.text(value) == value
        }


async def begin(hooks: Hooks | None, log: PlacedLog, *, stop: anyio.Event) -> None:
    """Ask before this process takes the session up; refused, the session ends as at a limit, and can be resumed."""

    async def ask() -> None:
        reason = await hook_refusal(hooks, "session_start", make=lambda: of_session(log.state, "session_start"))
        if reason:
            await log.append(LimitReached(limit="hook", detail=reason))

    if hooks is not None and hooks.has("session_start"):
        await _unless(stop, ask)


async def tell_end(hooks: Hooks | None, log: PlacedLog, *, stop: anyio.Event) -> None:
    """Say that the session is settled."""

    async def tell() -> None:
        await hook_refusal(hooks, "session_end", make=lambda: of_session(log.state, "session_end"))

    if hooks is not None and hooks.has("session_end"):
        await _unless(stop, tell)


async def around_run(hooks: Hooks | None, run: RunId, *, drive: Callable[[RunId], Awaitable[None]]) -> None:
    """Drive a run, and say so when it has come to its end; one that has not begun has none."""
    if hooks is None:
        await drive(run)
        return
    try:
        await drive(run)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(CLOSING_SECONDS, shield=True):
            await _tell_run(hooks, run)
        raise
    await _unhurried(partial(_tell_run, hooks, run))


async def _unhurried(work: Callable[[], Awaitable[None]]) -> None:
    """Do the work; cancelled, it has a little time yet: a run's end is what lets the Planner finish."""
    scope = anyio.CancelScope(shield=True)
    async with anyio.create_task_group() as group:

        async def act() -> None:
            with scope:
                await work()
            group.cancel_scope.cancel()

        group.start_soon(act)
        try:
            await anyio.sleep_forever()
        finally:
            scope.deadline = anyio.current_time() + CLOSING_SECONDS


async def _tell_run(hooks: Hooks, run: RunId) -> None:
    state = hooks.log.state
    known = state.board.runs[run]
    if known.status not in ENDED or known.base is None:
        return
    patch = await hooks.log.get(known.patch) if hooks.has("after_merge") and known.patch is not None else None
    merge = merged_of(state, run, patch=patch or b"")
    if merge is not None:
        await hook_refusal(hooks, "after_merge", make=lambda: of_merge(state, merge, on="after_merge"))
    await hook_refusal(hooks, "after_run", make=lambda: of_run(state, run, on="after_run"))


async def _unless(stop: anyio.Event, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, or break it off when somebody wants to stop."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            await stop.wait()
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await work()
        group.cancel_scope.cancel()
