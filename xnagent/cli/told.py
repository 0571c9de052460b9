"""Events as lines for people, without what a terminal would obey."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xnagent.core import events as ev
from xnagent.core import mcp_events as mcp
from xnagent.core import project_events as pe
from xnagent.core import spine_events as sp
from xnagent.core import summary_events as su
from xnagent.core.hook_events import HookRan
from xnagent.core.limits import spent_tokens, spent_usd
from xnagent.core.state import SessionState, active_runs, steps_of
from xnagent.core.text import Json, canonical, first_line
from xnagent.inspect.plain import count, line, money, seconds, share

ENVELOPE: Final = frozenset({"type", "session", "seq", "at"})


def milestone(event: ev.Event) -> str | None:
    """A line for what a person who looks now and then wants to have seen; None for everything else."""
    match event:
        case ev.TaskAdded():
            return f"task {event.task}: {event.title}"
        case ev.RunLaunched():
            return f"run {event.run} begins"
        case ev.RunSettled():
            why = f": {event.reason}" if event.reason else ""
            return f"run {event.run} {event.status}{why}"
        case ev.CheckFinished(run=None):
            verdict = "passed" if event.evidence.has_passed else "failed"
            verdict = f"{verdict} on its second try (flaky)" if event.evidence.is_flaky else verdict
            return f"check {verdict}: {event.evidence.command}"
        case ev.LimitReached():
            return f"limit: {event.detail}"
        case ev.SessionInterrupted():
            return _stopping(event)
        case ev.UserMessageAdded():
            return f"message {event.message}: {event.text}"
        case _:
            return _trouble(event)


def _stopping(event: ev.SessionInterrupted) -> str:
    if not event.letter:
        return f"{event.signal}: stopping; again: stop at once"
    return f"cancelled{': ' if event.reason else ''}{event.reason}: stopping"


def _trouble(event: ev.Event) -> str | None:
    match event:
        case sp.ToolFinished(code=sp.DENIED):
            return f"{event.agent} {event.label}"
        case sp.SpineRebased() | su.SummaryFailed():
            return _shortening(event)
        case sp.ModelReplaced():
            return (
                f"{event.agent} goes on with {event.model} in place of {event.replaced} ({event.cause}): "
                f"{event.lost_tokens:,} cached tokens lost, sending them again costs {money(event.price_usd)}"
            )
        case sp.RequestRetried():
            return f"{event.agent} request {event.request}: {event.fault}, again in {event.wait_seconds:.0f} s"
        case sp.RequestFailed():
            return f"{event.agent} request {event.request} failed: {event.fault}: {event.detail}"
        case sp.ToolsChanged():
            return (
                f"{event.agent} goes on with other tools ({_tools(event)}): {event.lost_tokens:,} cached tokens lost, "
                f"which costs {money(event.lost_usd)} more than from the cache"
            )
        case sp.PrefixBroken():
            return (
                f"{event.agent} request {event.request} broke the prefix at {event.segment}: about "
                f"{event.lost_tokens:,} cached tokens lost, {money(event.lost_usd)} more than from the cache: "
                f"{event.detail}"
            )
        case _:
            return _skipped(event)


def _skipped(event: ev.Event) -> str | None:
    if isinstance(event, mcp.McpToolsFrozen):
        return "; ".join(_missing(event)) or None
    if isinstance(event, mcp.McpServerChanged):
        return f"MCP server {event.server} changed; this session goes on with what it began with: {event.detail}"
    if isinstance(event, pe.ProjectRead | pe.SkillsChanged) and event.skipped:
        return f"skipped: {'; '.join(event.skipped)}"
    return _hooked(event) if isinstance(event, HookRan) else None


def _hooked(event: HookRan) -> str | None:
    """A denied call has its own line."""
    if event.verdict == "passed" or (event.verdict == "denied" and event.on == "before_tool"):
        return None
    ended = "did not end" if event.exit_code is None else f"exit code {event.exit_code}"
    told = f": {first_line(event.detail)}" if event.detail else ""
    return f"hook {event.on} {event.verdict} ({ended}): {line(event.command, 80)}{told}"


def _missing(event: mcp.McpToolsFrozen) -> Iterator[str]:
    for one in event.servers:
        if one.fault:
            yield f"no tools of MCP server {one.server}: {one.fault}"
        if one.skipped:
            yield f"skipped of MCP server {one.server}: {'; '.join(one.skipped)}"


def _shortening(event: sp.SpineRebased | su.SummaryFailed) -> str:
    if isinstance(event, sp.SpineRebased):
        return f"{event.agent} rebased ({event.cause}): {event.tokens_before:,} to {event.tokens_after:,} tokens"
    last = "; no more are tried in this run" if event.is_last else ""
    return f"{event.agent} summary {event.round} failed ({event.fault}): {event.detail}{last}"


def _tools(event: sp.ToolsChanged) -> str:
    return ", ".join([*(f"-{name}" for name in event.removed), *(f"+{name}" for name in event.added)]) or "redefined"


def usage_line(event: sp.ReplyReceived) -> str:
    """What one request used, as the provider reported it (M120)."""
    usage = event.usage
    cached = f"{count(usage.cached_tokens)} cached, {share(usage.cached_tokens, usage.input_tokens)}"
    return (
        f"{event.agent} request {event.request}: {event.finish}, in {count(usage.input_tokens)} ({cached}), "
        f"out {count(usage.output_tokens)}, {money(event.cost_usd)}, {seconds(event.duration_seconds)}"
    )


def detail_line(record: dict[str, Json]) -> str:
    """Any event on one line."""
    rest = {key: value for key, value in record.items() if key not in ENVELOPE}
    return line(f"{record['seq']} {record['type']} {canonical(rest)}", 200)


def standing(state: SessionState) -> str:
    """Where the session is, on one line."""
    planner, worker = steps_of(state)
    tasks = [task for task in state.board.tasks.values() if task.status != "dropped"]
    done = sum(task.status == "completed" for task in tasks)
    return (
        f"{done}/{len(tasks)} tasks, {len(active_runs(state))} runs at work, steps {planner} + {worker}, "
        f"{spent_tokens(state):,} tokens, {money(spent_usd(state))}"
    )
