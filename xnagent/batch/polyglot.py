"""Exercises in the folders of Exercism's tracks, which Aider's polyglot benchmark has, as a file of jobs.

::

    FOLDER/LANGUAGE/exercises/practice/NAME/.meta/config.json     which files are the solution, which the tests
                                            .docs/instructions.md
    PLACE/LANGUAGE/NAME      a repository that begins without the tests; its results are branches of it
    PLACE/jobs.jsonl         a job for each

The tests are a commit that no branch or tag names; checks put it over the tree that they run in.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from xnagent.batch.results import Results
from xnagent.core.values import dataclass
from xnagent.errors import UsageError
from xnagent.workspaces.git import Git

PRACTICE: Final = ("exercises", "practice")
CONFIG: Final = PurePosixPath(".meta/config.json")
TEXTS: Final = ("introduction.md", "instructions.md", "instructions.append.md")
ASIDE: Final = frozenset({".meta", ".docs", ".approaches", ".articles", ".git"})
"""Folders that hold solutions or what the objective says already."""
HIDDEN: Final = ("test", "editor")
"""Lists of the configuration whose files are put in place only for checks; `editor` has what belongs to the tests."""
JOBS: Final = "jobs.jsonl"
TESTS_REF: Final = "refs/xnagent/tests"
DATE: Final = "946684800 +0000"
"""Of all commits, so that the same exercise is the same job."""
COMMANDS: Final[Mapping[str, str]] = {
    "python": "python3 -m pytest -q",
    "go": "go test ./...",
    "rust": "cargo test -- --include-ignored",
    "javascript": "npm test",
    "java": "./gradlew test",
    "cpp": "cmake -B build -DEXERCISM_RUN_ALL_TESTS=1 . && cmake --build build",
}
"""What runs an exercise's tests."""
SKIPPED: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "javascript": (re.compile(r"\bx(test|it)\("), r"\1("),
    "java": (re.compile(r'^[ \t]*@Disabled(\(".*?"\))?[ \t]*$', re.MULTILINE), ""),
}
"""How tests are marked that a learner is to switch on later, and what stands there instead."""
OBJECTIVE: Final = """\
{instructions}

---
Solve this exercise in {files}. Keep the names of what is there: its tests use them. Use the language's standard \
library only. The tests are not in the tree. They are put in place by this acceptance check, which also puts back \
every file but the solution; plan one task and give it exactly this check:

{check}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One folder, as it was read."""

    folder: Path
    language: str
    name: str
    solution: tuple[str, ...]
    hidden: tuple[str, ...]

    @property
    def job(self) -> str:
        """The job's id."""
        return f"{self.language}/{self.name}"


async def write_jobs(folder: Path, place: Path, *, environ: Mapping[str, str], checks: Sequence[str]) -> Path:
    """Make the repositories and the file of jobs in `place`; `checks` take the place of the language's command.

    Repositories that are there stay, with their results. Raises UsageError for folders that are no exercises,
    WorkspaceError where git fails.
    """
    exercises = [*_exercises(folder)]
    if not place.parent.is_dir():
        raise UsageError(
            f"RESULTS_UNWRITABLE: {place.parent}: there is no such folder; make it, or choose another --out"
        )
    if not exercises:
        raise UsageError(
            f"EXERCISES_EMPTY: {folder}: no LANGUAGE/{'/'.join(PRACTICE)}/NAME/{CONFIG}; name their folder"
        )
    commands = {exercise.language: " && ".join(checks) or _command(exercise.language) for exercise in exercises}
    lines = []
    for exercise in exercises:
        begin, tests = await _stage(exercise, place / exercise.job, environ=environ)
        check = f"git checkout -q {tests} -- . && {commands[exercise.language]}"
        line = {
            "id": exercise.job,
            "repo": exercise.job,
            "commit": begin,
            "objective": _objective(exercise, check=check),
            "checks": [check],
        }
        lines.append(json.dumps(line, ensure_ascii=False))
    jobs = place / JOBS
    jobs.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return jobs


def pass_rates(results: Results, jobs: Sequence[str]) -> dict[str, tuple[int, int]]:
    """By language: how many passed, of how many that have a result."""
    rates: dict[str, tuple[int, int]] = {}
    for job in sorted(set(jobs) & results.done.keys()):
        language = job.partition("/")[0]
        passed, total = rates.get(language, (0, 0))
        rates[language] = (passed + (results.done[job] == 0), total + 1)
    return rates


def _exercises(folder: Path) -> Iterator[Exercise]:
    for config in sorted(folder.glob(f"*/{'/'.join(PRACTICE)}/*/{CONFIG}")):
        exercise = config.parents[1]
        files = _files(config)
        yield Exercise(
            folder=exercise,
            language=exercise.parents[2].name,
            name=exercise.name,
            solution=_listed(files, "solution", where=config),
            hidden=tuple(name for kind in HIDDEN if kind in files for name in _listed(files, kind, where=config)),
        )


def _files(config: Path) -> Mapping[str, Any]:
    try:
        files = json.loads(config.read_bytes())["files"]
        if isinstance(files, dict) and files.get("solution") and files.get("test"):
            return files
    except (OSError, ValueError, RecursionError, LookupError, TypeError) as error:
        raise UsageError(f"EXERCISE_MALFORMED: {config}: cannot be read: {' '.join(str(error).split())}") from error
    raise UsageError(f'EXERCISE_MALFORMED: {config}: "files" must list "solution" and "test"')


def _listed(files: Mapping[str, Any], kind: str, *, where: Path) -> tuple[str, ...]:
    names = files[kind]
    if not isinstance(names, list) or not all(isinstance(name, str) and _is_inside(name) for name in names):
        raise UsageError(f'EXERCISE_MALFORMED: {where}: "{kind}" must be a list of files in the exercise\'s folder')
    return tuple(names)


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.parts[:1] != (".git",)


def _command(language: str) -> str:
    if language not in COMMANDS:
        raise UsageError(
            f"EXERCISE_COMMAND: how tests of {language} are run is not known (known: {', '.join(COMMANDS)}); "
            "say it with --check"
        )
    return COMMANDS[language]


def _objective(exercise: Exercise, *, check: str) -> str:
    texts = [exercise.folder / ".docs" / name for name in TEXTS]
    found = [text.read_text("utf-8", errors="replace").strip() for text in texts if text.is_file()]
    return OBJECTIVE.format(
        instructions="\n\n".join(found), files=", ".join(map(shlex.quote, exercise.solution)), check=check
    )


async def _stage(exercise: Exercise, place: Path, *, environ: Mapping[str, str]) -> tuple[str, str]:
    """The commits to begin with and of the tests; the exercise's repository is made or brought up to them."""
    git_dir = place / ".git"
    if not (git_dir / "HEAD").is_file():
        await Git(environ=environ).run("init", "--quiet", "--template=", "--initial-branch=main", str(place))
    with TemporaryDirectory(prefix="xnagent-exercise-") as name:
        tree, index = Path(name, "tree"), Path(name, "index")
        git = Git(environ=environ, git_dir=git_dir, work_tree=tree, index=index, date=DATE)
        _copy(exercise, tree, without=exercise.solution)
        tests = await _commit(git, "Everything but the solution")
        shutil.rmtree(tree)
        _copy(exercise, tree, without=exercise.hidden)
        begin = await _commit(git, "Begin")
    refs = f"update refs/heads/main {begin}\nupdate {TESTS_REF} {tests}\n"
    git = Git(environ=environ, git_dir=git_dir, work_tree=place)
    await git.run("update-ref", "--stdin", stdin=refs.encode())
    await git.run("reset", "--quiet", "--hard", begin)
    return begin, tests


def _copy(exercise: Exercise, tree: Path, *, without: Sequence[str]) -> None:
    tree.mkdir()
    left_out = {PurePosixPath(name) for name in without}
    skipped = SKIPPED.get(exercise.language)
    for source in sorted(exercise.folder.rglob("*")):
        path = PurePosixPath(source.relative_to(exercise.folder).as_posix())
        if path.parts[0] in ASIDE or path in left_out or source.is_symlink() or not source.is_file():
            continue
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        if skipped is not None and str(path) in exercise.hidden:
            text = source.read_text("utf-8", errors="replace")
            target.write_text(skipped[0].sub(skipped[1], text), encoding="utf-8")


async def _commit(git: Git, message: str) -> str:
    await git.run("add", "--all", "--force", ".")
    tree = (await git.run("write-tree")).output.decode().strip()
    return (await git.run("commit-tree", tree, "-m", message)).output.decode().strip()
