"""SWE-bench: its instances as jobs, and the file of predictions that its harness reads."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from xnagent.app.host import Host
from xnagent.batch.jobs import Job
from xnagent.batch.results import write_synced
from xnagent.core.ids import Ticket
from xnagent.core.text import Json, clean
from xnagent.errors import StoreWriteError, UsageError
from xnagent.export.swebench import prediction

NEEDED: Final = ("instance_id", "repo", "base_commit", "problem_statement")
"""What is read of a line. The rest, the solution and its tests among it, is not looked at and never sent."""
ENDING: Final = ".jsonl"
GITHUB: Final = "https://github.com"
OBJECTIVE: Final = """\
Resolve the issue below in this repository ({repo}). Change its source code so that the issue is fixed for good. Tests \
that you add or change are not part of the result.

{issue}"""
_REPOSITORY: Final = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+", re.ASCII)

Record = Mapping[str, Json]


def results_beside(predictions: Path) -> Path:
    """Where the ordinary results of such a batch are. Raises UsageError for a name that the harness would refuse."""
    if predictions.suffix != ENDING:
        raise UsageError(f"USAGE: SWE-bench reads predictions from a file that ends with {ENDING}; rename --out")
    return predictions.with_name(f"{predictions.stem}.results{ENDING}")


def job_fields(folder: Path | None) -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    """What turns an instance into the fields of a job; repositories are in `folder`, else at GitHub."""

    def fields_of(instance: Mapping[str, Any], where: str) -> dict[str, Any]:
        found = {name: _text(instance, name, where=where) for name in NEEDED}
        return {
            "id": found["instance_id"],
            "repo": _repository(found["repo"], folder, where=where),
            "commit": found["base_commit"],
            "objective": OBJECTIVE.format(repo=found["repo"], issue=found["problem_statement"]),
        }

    return fields_of


def _text(instance: Mapping[str, Any], name: str, *, where: str) -> str:
    value = instance.get(name)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(
            f'INSTANCE_MALFORMED: {where}: "{name}" is missing or no text; a line of SWE-bench has {", ".join(NEEDED)}'
        )
    return value


def _repository(name: str, folder: Path | None, *, where: str) -> str:
    if not _REPOSITORY.fullmatch(name):
        raise UsageError(f'INSTANCE_MALFORMED: {where}: "repo" must be OWNER/NAME, not {name!r}')
    if folder is None:
        return f"{GITHUB}/{name}"
    place = folder / name.replace("/", "__")
    if not place.is_dir():
        raise UsageError(f"NO_FOLDER: {where}: {place}: there is no such folder; clone {name} there")
    return str(place)


@dataclass(slots=True, kw_only=True)
class Predictions:
    """The file, open until the block ends. Made from results and sessions: what is missing is added again."""

    path: Path
    host: Host
    jobs: Mapping[str, Job]
    descriptor: int = -1
    lines: Counter[str] = field(default_factory=Counter)
    """How many predictions an instance has; the last one counts for the harness, too."""

    def __enter__(self) -> Self:
        """Open it; a last line that was not written whole is dropped. Raises UsageError."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self.descriptor = os.open(self.path, flags, 0o644)
            content = self.path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            os.ftruncate(self.descriptor, len(whole))
        except OSError as error:
            raise UsageError(f"PREDICTIONS_UNWRITABLE: {self.path}: {error.strerror}; choose another --out") from error
        for line in whole.splitlines():
            found = _parsed(line)
            self.lines[str(found.get("instance_id"))] += 1
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close it."""
        os.close(self.descriptor)

    def catch_up(self, results: Path, lines: Mapping[str, int]) -> list[str]:
        """Add what was not written when a batch was killed; says what could not be had."""
        missing = {job for job in self.jobs if lines.get(job, 0) > self.lines[job]}
        if not missing:
            return []
        records = [found for line in results.read_bytes().splitlines() if (found := _parsed(line)).get("id") in missing]
        newest = {str(record["id"]): record for record in records}
        return [problem for record in newest.values() if (problem := self.add(record)) is not None]

    def add(self, record: Record) -> str | None:
        """The prediction of a job that came to its end, on the disk when this returns. Raises StoreWriteError.

        Says why it is empty, if the session's patch can't be had.
        """
        instance = str(record["id"])
        patch, problem = self._patch(record)
        model = self.jobs[instance].settings.planner.model.name if instance in self.jobs else None
        made = prediction(instance, model=model or "", patch=patch)
        try:
            write_synced(self.descriptor, clean(json.dumps(made, ensure_ascii=False)).encode() + b"\n")
        except OSError as error:
            raise StoreWriteError(
                f"PREDICTIONS_WRITE_FAILED: {self.path}: {error.strerror}; free space and run it again"
            ) from error
        self.lines[instance] += 1
        return problem

    def _patch(self, record: Record) -> tuple[bytes | None, str | None]:
        ticket = cast("dict[str, str | None]", record["workspace"])["patch"]
        if ticket is None:
            return None, None
        place = self.host.place(str(record["session"]))
        patch = place.artifact(Ticket(ticket)) if place.exists() else None
        lost = f"PREDICTION_LOST: {record['id']}: its session is not in this store; its prediction is empty"
        return patch, lost if patch is None else None


def by_name(jobs: Iterable[Job]) -> dict[str, Job]:
    """The jobs by their ids."""
    return {job.job: job for job in jobs}


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
