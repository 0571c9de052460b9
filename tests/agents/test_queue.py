"""Workers with overlapping edits through the real merge queue: a serial order, or a conflict that loses nothing (B051).

The oracle knows nothing of git: each run is a list of operations on a tree, and the final tree must be what the
operations of the merged runs make of the first one, one run after another, in some order.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path

import anyio
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from xnagent.agents.judging import Judge
from xnagent.agents.verifier import Verifier
from xnagent.app.host import SystemClock
from xnagent.core.events import RunLaunched, RunStarted, RunSubmitted, SessionStarted, TaskAdded
from xnagent.core.ids import RunId, SessionId, TaskId
from xnagent.store.sqlite import SessionStore
from xnagent.workspaces.repositories import SessionWorkspaces
from xnagent.workspaces.shell import ProcessShell

ENVIRON = {"PATH": os.environ["PATH"]}
NAMES = ("a", "b", "A", "d/c", "d/n\udcff", "n" * 200, "d/new", "d")
LINES = 12
KINDS = ("line", "line", "line", "bytes", "empty", "remove", "move", "mode", "link", "folder")

Tree = dict[str, tuple[str, bytes]]
"""Mode and content by path."""


class ImpossibleError(Exception):
    """The operation has no place in the tree."""


@dataclass(frozen=True)
class Edit:
    """One operation; `tag` makes what it writes its own."""

    kind: str
    path: str
    other: str
    line: int
    tag: str = ""

    def on(self, tree: Tree) -> Tree:
        new = dict(tree)
        if self.kind == "remove":
            new.pop(self.path, None)
        elif self.kind == "move":
            put(new, self.other, new.pop(self.path) if self.path in new else gone(new, self.other), is_new=True)
        elif self.kind == "line":
            mode, content = text_at(new, self.path)
            lines = content.split(b"\n")
            lines[self.line] = self.tag.encode()
            new[self.path] = (mode, b"\n".join(lines))
        elif self.kind == "mode":
            mode, content = new.get(self.path) or gone(new, self.path)
            if mode == "120000":
                raise ImpossibleError
            new[self.path] = ("100755", content)
        elif self.kind == "folder":
            new.pop(self.path, None) or gone(new, self.path)
            put(new, f"{self.path}/in", ("100644", self.tag.encode() * 9))
        else:
            kept = new.get(self.path, ("100644", b""))[0]
            mode = "120000" if self.kind == "link" else "100644" if kept == "120000" else kept
            content = {"bytes": b"\0" + self.tag.encode() * 99, "empty": b"", "link": b"a"}[self.kind]
            put(new, self.path, (mode if self.kind != "link" else "120000", content))
        return new


def gone(tree: Tree, path: str) -> tuple[str, bytes]:
    """Only to be reached where nothing is at the path; two runs may have moved the same file to the same place."""
    if path in tree:
        return tree.pop(path)
    raise ImpossibleError


def put(tree: Tree, path: str, entry: tuple[str, bytes], *, is_new: bool = False) -> None:
    above = [path[:place] for place, sign in enumerate(path) if sign == "/"]
    if any(folder in tree for folder in above) or any(name.startswith(f"{path}/") for name in tree):
        raise ImpossibleError
    if is_new and path in tree:
        raise ImpossibleError
    tree[path] = entry


def text_at(tree: Tree, path: str) -> tuple[str, bytes]:
    mode, content = tree.get(path, ("", b""))
    if content.count(b"\n") != LINES or mode == "120000":
        raise ImpossibleError
    return mode, content


def text_of(name: str) -> bytes:
    return "".join(f"{name[:20]} {number} {name[:20] * 3}\n" for number in range(LINES)).encode("utf-8", "replace")


START: Tree = {name: ("100644", text_of(name)) for name in ("a", "b", "d/c", "d/n\udcff", "n" * 200)}
edits = st.builds(
    Edit, st.sampled_from(KINDS), st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, LINES - 1)
)


@dataclass
class Attempt:
    """One Worker: when it begins and hands in, what it does."""

    wanted: list[Edit]
    opens: int
    stays: int
    is_checked: bool
    done: list[Edit] = field(default_factory=list)
    base: Tree = field(default_factory=dict)


attempts = st.builds(
    Attempt,
    st.lists(edits, min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from([False] * 4 + [True]),
)


def write(root: Path, tree: Tree, before: Iterable[str] = ()) -> None:
    for path in sorted(set(before) - set(tree), key=len, reverse=True):
        (root / path).unlink()
        above = (root / path).parent
        while above != root and not any(above.iterdir()):
            above.rmdir()
            above = above.parent
    for path, (mode, content) in tree.items():
        full = root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.unlink(missing_ok=True)
        if mode == "120000":
            full.symlink_to(content.decode())
        else:
            full.write_bytes(content)
            full.chmod(0o755 if mode == "100755" else 0o644)


def read(git_dir: Path, commit: str) -> Tree:
    def git(*arguments: str, stdin: bytes = b"") -> bytes:
        return subprocess.run(
            ["git", f"--git-dir={git_dir}", *arguments], input=stdin, capture_output=True, check=True
        ).stdout

    found: Tree = {}
    for entry in git("ls-tree", "-r", "-z", commit).split(b"\0")[:-1]:
        head, _, path = entry.partition(b"\t")
        mode, _, name = head.decode().split(" ")
        found[os.fsdecode(path)] = (mode, git("cat-file", "blob", name))
    return found


@given(wanted=st.lists(attempts, min_size=2, max_size=6))
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
def test_B051_what_workers_do_at_once_is_a_serial_order_or_a_conflict(wanted: list[Attempt]):
    with tempfile.TemporaryDirectory() as name:
        anyio.run(scenario, Path(name).resolve(), wanted)


async def scenario(place: Path, wanted: list[Attempt]) -> None:
    (place / "user").mkdir()
    write(place / "user", START)
    session = SessionId("s-1")
    store = await SessionStore.create(place / "s-1.db", session=session, clock=SystemClock())
    workspaces = SessionWorkspaces(place / "user", place / "work", session=session, environ=ENVIRON)
    verifier = Verifier(log=store, shell=ProcessShell(ENVIRON), workspaces=workspaces, timeout_seconds=60)
    try:
        base = (await workspaces.begin(at="2026-11-30T12:00:00Z")).commit
        await store.append(SessionStarted(session=session, objective="x", base=base))
        await work(
            Judge(log=store, workspaces=workspaces, verifier=verifier), wanted, git_dir=place / "work/integration.git"
        )
        await judged(store, wanted, git_dir=place / "work/integration.git")
    finally:
        await store.aclose()


async def work(judge: Judge, wanted: list[Attempt], *, git_dir: Path) -> None:
    for now in range(5):
        for number, attempt in enumerate(wanted):
            if attempt.opens == now:
                await begin(judge, attempt, number=number, git_dir=git_dir)
        async with anyio.create_task_group() as group:
            for number, attempt in enumerate(wanted):
                if attempt.opens + attempt.stays == now:
                    group.start_soon(judge.judge, RunId(f"r{number}"))


async def begin(judge: Judge, attempt: Attempt, *, number: int, git_dir: Path) -> None:
    log, run = judge.log, RunId(f"r{number}")
    started = log.state.started
    base = log.state.board.session.get("integration_head", started.base)
    checks = ("true",) if attempt.is_checked else ()
    await log.append(
        TaskAdded(task=TaskId(f"t{number}"), title="t", objective="o", checks=checks),
        RunStarted(run=run, task=TaskId(f"t{number}"), checks=checks),
        RunLaunched(run=run, base=base),
    )
    attempt.base = tree = read(git_dir, base)
    for place, edit in enumerate(attempt.wanted):
        tagged = Edit(edit.kind, edit.path, edit.other, edit.line, f"{run}.{place}")
        try:
            tree = tagged.on(tree)
        except ImpossibleError:
            continue
        attempt.done.append(tagged)
    write((await judge.workspaces.open_run(run, base)).root, tree, before=attempt.base)
    await log.append(RunSubmitted(run=run, status="completed", summary="done"))


async def judged(store: SessionStore, wanted: list[Attempt], *, git_dir: Path) -> None:
    board = store.state.board
    runs = [board.runs[RunId(f"r{number}")] for number in range(len(wanted))]
    head = board.session.get("integration_head", store.state.started.base)
    final = read(git_dir, head)
    merged = [attempt.done for attempt, run in zip(wanted, runs, strict=True) if run.status == "completed"]
    assert any(serial(order) == final for order in permutations(merged)), (merged, final)
    for attempt, run in zip(wanted, runs, strict=True):
        if run.status == "completed":
            continue
        event("conflict")
        assert run.status == "failed"
        assert run.conflicts, run.reason
        assert run.reason.startswith("merge conflict")
        changed = {path for edit in attempt.done for path in (edit.path, edit.other)}
        others = {path for edits in merged for edit in edits for path in (edit.path, edit.other)}
        assert changed & others or {path.split("/")[0] for path in changed} & {path.split("/")[0] for path in others}
        assert patched(git_dir, await store.get(run.patch), base=run.base) == result(attempt)


def serial(order: Iterable[list[Edit]]) -> Tree | None:
    tree = START
    try:
        for edits in order:
            for edit in edits:
                tree = edit.on(tree)
    except ImpossibleError:
        return None
    return tree


def result(attempt: Attempt) -> Tree:
    tree = attempt.base
    for edit in attempt.done:
        tree = edit.on(tree)
    return tree


def patched(git_dir: Path, patch: bytes | None, *, base: str) -> Tree:
    """What the stored patch of a run makes of the commit that it began from."""
    assert patch
    with tempfile.TemporaryDirectory() as folder:
        env = {**ENVIRON, "GIT_DIR": str(git_dir), "GIT_INDEX_FILE": f"{folder}/index"}

        def git(*arguments: str, stdin: bytes = b"") -> str:
            done = subprocess.run(["git", *arguments], input=stdin, env=env, capture_output=True, check=True)
            return done.stdout.decode().strip()

        git("read-tree", base)
        git("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch)
        return read(git_dir, git("write-tree"))
