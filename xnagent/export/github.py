"""What GitHub Actions is told: a summary in Markdown, outputs for later steps, annotations. All of it is inert."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from xnagent.core.board import Run, Task
from xnagent.core.state import SessionState
from xnagent.core.text import Json
from xnagent.inspect.plain import count, line, money, seconds, share, visible

SUMMARY_BYTES: Final = 64 * 1024
"""Of one session: a step's summary may have 1 MiB, with whatever else the step wrote there."""
LISTED: Final = 50
CELL_CHARACTERS: Final = 200
TEXT_CHARACTERS: Final = 4_000
MESSAGE_CHARACTERS: Final = 1_000
CUT: Final = "\n\n… (cut)\n"
_MARKUP: Final = re.compile(r"[^A-Za-z0-9\s,;/()%?'’…–—-]", re.ASCII)
"""Whatever could mean something in Markdown, HTML or GitHub's own notations (`@name`, `#1`, `:emoji:`, links)."""
_SIGNS: Final = {"completed": "✅", "partial": "🟡", "blocked": "❓"}

Record = Mapping[str, Json]


def inert(text: str, limit: int = CELL_CHARACTERS) -> str:
    """The text on one line, as it is read: every sign that could be markup is a character reference."""
    return _MARKUP.sub(lambda found: _reference(found[0]), line(text, limit))


def _reference(character: str) -> str:
    return character if character.isalnum() else f"&#{ord(character)};"


def summary(record: Record, state: SessionState | None = None) -> str:
    """A session in Markdown, from its final record and, for tasks and checks, its state."""
    parts = [_title(record), _table(("", ""), _facts(record)), _said(record)]
    if state is not None:
        parts += [_tasks(state), _checks(state)]
    parts.append(_files(record))
    return _bounded("\n\n".join(part for part in parts if part) + "\n\n")


def batch_summary(end: Record, jobs: Iterable[Record]) -> str:
    """A batch in Markdown: its totals, and a line for each of the jobs."""
    rows = [
        (
            inert(str(job["id"])),
            f"{_sign(job)} {inert(str(job['outcome']))}",
            money(_usage(job)["cost_usd"]),
            inert(_error(job)),
        )
        for job in jobs
    ]
    totals = ", ".join(
        [
            f"{end['completed']} of {end['total']} jobs completed",
            f"{end['failed']} did not",
            f"{end['unfinished']} unfinished",
            money(cast("float | None", end["cost_usd"])),
            f"{count(cast('int', end['tokens']))} tokens",
        ]
    )
    table = _table(("job", "outcome", "cost", "error"), rows) if rows else ""
    return _bounded(f"### xnagent batch\n\n{totals}\n\n{table}\n\n")


def outputs(record: Record) -> dict[str, str]:
    """What later steps may read. No text that a model wrote is in it: they may paste it into scripts."""
    workspace, usage = _workspace(record), _usage(record)
    return {
        "session": _word(record["session"]),
        "outcome": _word(record["outcome"]),
        "exit_code": _word(record["exit_code"]),
        "verified": _word(record["verified"]),
        "branch": _word(workspace["branch"]),
        "applied": _word(workspace["applied"]),
        "changed_files": str(len(workspace["changed_files"])),
        "requests": _word(usage["requests"]),
        "cost_usd": _word(usage["cost_usd"]),
    }


def batch_outputs(end: Record) -> dict[str, str]:
    """The same of a batch."""
    names = ("total", "completed", "failed", "unfinished", "exit_code", "cost_usd", "tokens")
    return {name: _word(end[name]) for name in names}


def output_text(values: Mapping[str, str], delimiter: str) -> str:
    """The lines for `GITHUB_OUTPUT`. The delimiter is random, so that no value can end its own block."""
    return "".join(f"{name}<<{delimiter}\n{value}\n{delimiter}\n" for name, value in values.items())


def command(name: str, message: str = "", **properties: str) -> str:
    """A workflow command as it stands on a line of its own, escaped as the runner unescapes it."""
    listed = ",".join(f"{key}={_escaped(value, more=True)}" for key, value in properties.items())
    return f"::{name}{' ' if listed else ''}{listed}::{_escaped(message)}"


def annotation(record: Record) -> str | None:
    """The command that shows what went wrong; None: nothing did."""
    if not record["exit_code"]:
        return None
    told = _error(record) or str(record["summary"] or "")
    kind = "warning" if record["outcome"] in {"partial", "blocked", "interrupted"} else "error"
    text = f"{record['outcome']} (exit code {record['exit_code']})" + (f": {told}" if told else "")
    return command(kind, visible(text[:MESSAGE_CHARACTERS], keep="\n"), title="xnagent")


def _escaped(text: str, *, more: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if more else text


def _word(value: object) -> str:
    """A value as scripts read it; unknown is empty."""
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return visible(text)


def _title(record: Record) -> str:
    verified = " and verified" if record["verified"] else ", not verified" if record["verified"] is False else ""
    outcome = inert(str(record["outcome"]))
    return f"### {_sign(record)} xnagent: {outcome}{verified if outcome == 'completed' else ''}"


def _sign(record: Record) -> str:
    return _SIGNS.get(str(record["outcome"]), "❌")


def _facts(record: Record) -> list[tuple[str, str]]:
    usage, workspace = _usage(record), _workspace(record)
    tasks, runs = cast("dict[str, int]", record["tasks"]), cast("dict[str, int]", record["runs"])
    applied = "applied to the checkout" if workspace["applied"] else "not applied"
    branch = f", branch {inert(str(workspace['branch']))}" if workspace["branch"] else ""
    return [
        ("session", inert(str(record["session"] or "none"))),
        ("exit code", str(record["exit_code"])),
        ("tasks", f"{tasks['completed']} of {tasks['total']} completed, {runs['total']} runs"),
        ("cost", f"{money(usage['cost_usd'])} for {count(usage['requests'])} requests"),
        ("tokens", _tokens(usage)),
        ("time", seconds(cast("float", record["duration_seconds"]))),
        ("result", f"{applied}{branch}" if workspace["changed_files"] else "no changes"),
    ]


def _tokens(usage: Mapping[str, Any]) -> str:
    whole, cached = usage["input_tokens"], usage["cached_tokens"]
    return f"in {count(whole)} ({share(cached, whole)} cached), out {count(usage['output_tokens'])}"


def _said(record: Record) -> str:
    told = [
        ("Error", _error(record)),
        ("Summary", str(record["summary"] or "")),
        ("Question", str(record["question"] or "")),
    ]
    return "\n\n".join(f"**{title}:** {inert(text, TEXT_CHARACTERS)}" for title, text in told if text)


def _tasks(state: SessionState) -> str:
    rows = [_task(task, state) for task in state.board.tasks.values()]
    return _table(("task", "status", "checks", "runs", "title"), rows[:LISTED]) if rows else ""


def _task(task: Task, state: SessionState) -> tuple[str, ...]:
    runs = [state.board.runs[run] for run in task.runs if run in state.board.runs]
    return (inert(task.task), task.status, _passed(runs[-1]) if runs else "", str(len(runs)), inert(task.title))


def _passed(run: Run) -> str:
    passed = sum(evidence.has_passed for evidence in run.evidence)
    return f"{passed} of {len(run.evidence)} passed" if run.evidence else ""


def _checks(state: SessionState) -> str:
    rows = [
        (inert(evidence.command), "passed" if evidence.has_passed else f"failed, {_ended(evidence.exit_code)}")
        for evidence in state.checks.values()
    ]
    return _table(("check of the whole", "outcome"), rows[:LISTED]) if rows else ""


def _ended(exit_code: int | None) -> str:
    return "did not end" if exit_code is None else f"exit code {exit_code}"


def _files(record: Record) -> str:
    files = _workspace(record)["changed_files"]
    if not files:
        return ""
    shown = "\n".join(f"- {inert(str(file))}" for file in files[:LISTED])
    more = f"\n- and {len(files) - LISTED} more" if len(files) > LISTED else ""
    return f"<details><summary>{len(files)} changed files</summary>\n\n{shown}{more}\n\n</details>"


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = tuple(titles)
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _bounded(text: str) -> str:
    data = text.encode()
    if len(data) <= SUMMARY_BYTES:
        return text
    return data[: SUMMARY_BYTES - len(CUT.encode())].decode("utf-8", "ignore").rpartition("\n")[0] + CUT


def _error(record: Record) -> str:
    error = cast("dict[str, str] | None", record["error"])
    return "" if error is None else error["message"]


def _usage(record: Record) -> dict[str, Any]:
    return cast("dict[str, Any]", record["usage"])


def _workspace(record: Record) -> dict[str, Any]:
    return cast("dict[str, Any]", record["workspace"])
