"""What a checkpoint shows in short: tasks that are over and the runs that led there.

A spine's base holds such records as archived; the board itself never does. An archived record stands for the whole one
as long as that one does not change, so a delta after a rebase does not tell again what was shortened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from xnagent.core.board import ACTIVE_RUN, Board, Run, Task

Key = TypeVar("Key")
Record = TypeVar("Record", Task, Run)


def archived(board: Board) -> Board:
    """The board with everything in short that is over: completed and dropped tasks, and runs that were superseded."""
    over = {name for name, task in board.tasks.items() if task.status in {"completed", "dropped"}}
    newest = {task.runs[-1] for task in board.tasks.values() if task.runs}
    tasks = {name: replace(task, is_archived=True) if name in over else task for name, task in board.tasks.items()}
    runs = {
        name: replace(run, is_archived=True)
        if run.status not in ACTIVE_RUN and (run.task in over or name not in newest)
        else run
        for name, run in board.runs.items()
    }
    return replace(board, tasks=tasks, runs=runs)


def carried(base: Board, board: Board) -> Board:
    """The board as a model knows it that was told `base` and then every change up to `board`."""
    return replace(board, tasks=_carried(base.tasks, board.tasks), runs=_carried(base.runs, board.runs))


def _carried(base: Mapping[Key, Record], records: Mapping[Key, Record]) -> Mapping[Key, Record]:
    short = {key: old for key, old in base.items() if old.is_archived and key in records and is_same(old, records[key])}
    return {**records, **short} if short else records


def is_same(before: object, record: object) -> bool:
    """Whether nothing has to be told: the same object, or the archived form of what it still is."""
    if before is record:
        return True
    return isinstance(before, Task | Run) and before.is_archived and replace(before, is_archived=False) == record
