"""Files with recorded runs: in the corpus' schema, also compressed, folders of them, and ATIF trajectories."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO, cast

from xnagent.core.text import Json
from xnagent.errors import UsageError
from xnagent.lab import atif, corpus
from xnagent.lab.threads import Run

CORPUS_ENDINGS: Final = (".jsonl", ".jsonl.gz")


def read_runs(path: Path) -> Iterator[Run]:
    """The runs of a file, or of all corpus files of a folder. Raises UsageError, which names file and line."""
    if not path.is_dir():
        yield from _runs_of_file(path)
        return
    files = [file for file in sorted(path.iterdir()) if file.name.endswith(CORPUS_ENDINGS)]
    if not files:
        raise _unreadable(path, "no .jsonl and no .jsonl.gz is in this folder")
    for file in files:
        yield from _runs_of_file(file)


def _runs_of_file(path: Path) -> Iterator[Run]:
    try:
        if path.name.endswith(CORPUS_ENDINGS):
            yield from _corpus(path)
        else:
            yield _trajectory(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise _unreadable(path, str(reason)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, "it is no UTF-8 text") from error


def _corpus(path: Path) -> Iterator[Run]:
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.isspace():
                yield _corpus_run(line, f"{path}:{number}")


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast("TextIO", gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")


def _corpus_run(line: str, place: str) -> Run:
    record = _parsed(line, place)
    if not isinstance(record, dict) or not corpus.is_corpus(record):
        raise _unreadable(place, "no run in the corpus' schema (an object with `messages`)")
    return corpus.run_of(record)


def _trajectory(path: Path) -> Run:
    record = _parsed(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(record, dict) or not atif.is_atif(record):
        raise _unreadable(path, "no ATIF trajectory (an object with `steps`)")
    return atif.run_of(record, name=path.stem)


def _parsed(text: str, place: str) -> Json:
    try:
        parsed: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(place, f"no JSON ({error})") from error
    return parsed


def _unreadable(place: object, reason: str) -> UsageError:
    return UsageError(f"RUN_UNREADABLE: {place}: {reason}; `xnagent lab --help` tells what can be replayed")
