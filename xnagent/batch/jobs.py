"""The file of jobs: checked whole before anything begins (CONTRACT, "Batch")."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from xnagent.app.crew import check_models
from xnagent.app.host import Host
from xnagent.batch.repositories import named_repository
from xnagent.config import Settings
from xnagent.config.load import with_settings
from xnagent.config.sources import Setting, check_names, from_table
from xnagent.core.text import clean
from xnagent.core.values import dataclass
from xnagent.errors import UsageError

KEYS: Final = ("id", "repo", "commit", "objective", "checks", "model", "limits", "priority")
ID_DIGITS: Final = 12
HIGHEST_PRIORITY: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One line, ready to be run."""

    job: str
    """Its id: the line's own, or `j-` and a hash of the line."""
    digest: str
    """Hash of the line."""
    objective: str
    repository: str
    """An absolute path, or an address without a password."""
    commit: str | None
    """Where it begins: an id, a tag, a branch; None: from the folder as it is, or from the default branch."""
    settings: Settings
    priority: int = 0
    """Jobs with a higher one begin first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a line does not say."""

    repository: Path
    settings: Settings
    translate: Callable[[Mapping[str, Any], str], dict[str, Any]] | None = None
    """Makes a job's fields of a line in another form, and knows its place for errors; None: lines are jobs."""


def read_jobs(path: Path, host: Host, *, defaults: Defaults) -> list[Job]:
    """All jobs. Raises UsageError that names file and line if anything is wrong with any of them."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"JOBS_UNREADABLE: {path}: {getattr(error, 'strerror', None) or error}") from error
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    numbered = [(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise UsageError(f"JOBS_EMPTY: {path} has no jobs; write one JSON object a line")
    places: dict[str, str] = {}
    jobs = []
    for where, line in numbered:
        job = _job(_fields(line, where, defaults=defaults), line, where=where, defaults=defaults)
        _check(job, host, where=where)
        if job.job in places:
            raise UsageError(
                f'JOB_TWICE: {where}: the id "{job.job}" is also that of {places[job.job]}; give each job its own "id"'
            )
        places[job.job] = where
        jobs.append(job)
    return jobs


def _fields(line: bytes, where: str, *, defaults: Defaults) -> Mapping[str, Any]:
    fields = _parse(line, where)
    if defaults.translate is not None:
        return defaults.translate(fields, where)
    check_names(fields, KEYS, where=where)
    return fields


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"JOB_MALFORMED: {where}: no JSON: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise UsageError(f'JOB_MALFORMED: {where}: not an object; write {{"objective": "…"}}')
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _job(fields: Mapping[str, Any], line: bytes, *, where: str, defaults: Defaults) -> Job:
    digest = sha256(line.strip()).hexdigest()
    objective = _text(fields, "objective", where=where)
    if objective is None:
        raise UsageError(f'JOB_MALFORMED: {where}: "objective" is missing')
    changes = _changes(fields, where, settings=defaults.settings)
    return Job(
        job=_text(fields, "id", where=where) or f"j-{digest[:ID_DIGITS]}",
        digest=digest,
        objective=objective,
        repository=named_repository(_text(fields, "repo", where=where), where=where, base=defaults.repository),
        commit=_text(fields, "commit", where=where),
        settings=with_settings(defaults.settings, changes) if changes else defaults.settings,
        priority=_priority(fields.get("priority", 0), where),
    )


def _priority(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > HIGHEST_PRIORITY:
        raise UsageError(f'JOB_MALFORMED: {where}: "priority" must be a whole number such as 1, not {value!r}')
    return value


def _text(fields: Mapping[str, Any], name: str, *, where: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f'JOB_MALFORMED: {where}: "{name}" must be a text that is not empty, not {value!r}')
    return clean(value)


def _changes(fields: Mapping[str, Any], where: str, *, settings: Settings) -> list[Setting]:
    changes = []
    if (model := _text(fields, "model", where=where)) is not None:
        changes += [Setting(path=(role, "model", "name"), value=model, origin=where) for role in ("planner", "worker")]
    if (limits := fields.get("limits")) is not None:
        if not isinstance(limits, dict):
            raise UsageError(f'JOB_MALFORMED: {where}: "limits" must be an object such as {{"usd": 2}}, not {limits!r}')
        changes += from_table(limits, ("limits",), origin=where)
    if (checks := fields.get("checks")) is not None:
        changes.append(Setting(path=("checks",), value=[*settings.checks, *_checks(checks, where)], origin=where))
    return changes


def _checks(value: object, where: str) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(check, str) and check.strip() for check in value):
        raise UsageError(f'JOB_MALFORMED: {where}: "checks" must be a list of commands, not {value!r}')
    return value


def _check(job: Job, host: Host, *, where: str) -> None:
    try:
        check_models(host, job.settings)
    except UsageError as error:
        raise UsageError(f"{error} ({where})") from error
