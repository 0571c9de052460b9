"""Random edits by two runs and by the user: what comes out is everybody's work, or a conflict is reported."""

import tempfile
from pathlib import Path

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xnagent.core.commits import Conflict
from xnagent.workspaces.repositories import SessionWorkspaces

NAMES = ("a", "b", "d/c")
START = {"a": "1\n2\n3\n4\n5\n6\n7\n", "d/c": "c\n"}
contents = st.one_of(
    st.none(),
    st.just("new\n"),
    st.integers(0, 6).map(lambda line: "".join(f"{n}{'!' if n == line + 1 else ''}\n" for n in range(1, 8))),
)
edits = st.dictionaries(st.sampled_from(NAMES), contents, max_size=3)


def write(root, files):
    for name in NAMES:
        if name not in files:
            continue
        if files[name] is None:
            (root / name).unlink(missing_ok=True)
        else:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(files[name])


def read(root):
    return {name: (root / name).read_text() if (root / name).is_file() else None for name in NAMES}


def lines_of(text):
    return set() if text is None else set(text.splitlines())


@given(one=edits, two=edits, theirs=edits)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_lost(one, two, theirs):
    with tempfile.TemporaryDirectory() as name:
        anyio.run(scenario, Path(name).resolve(), one, two, theirs)


async def scenario(place, one, two, theirs):
    user = place / "user"
    user.mkdir()
    write(user, START)
    start = read(user)
    session = SessionWorkspaces(user, place / "work", session="s-1", environ={"PATH": "/usr/local/bin:/usr/bin:/bin"})
    base = (await session.begin(at="2026-11-30T12:00:00Z")).commit
    wanted, head, results = [], base, []
    for run, files in (("r1", one), ("r2", two)):
        workspace = await session.open_run(run, base)
        write(workspace.root, files)
        wanted.append(read(workspace.root))
        commit = (await session.take(run, base)).commit
        merged = await session.merge(head=head, base=base, commit=commit, message=run)
        results.append(merged)
        if not isinstance(merged, Conflict):
            head = merged.commit
            await session.advance(head)
    if isinstance(results[1], Conflict):
        both = [path for path in NAMES if all(side[path] != start[path] for side in wanted)]
        assert set(results[1].paths) & set(both)
    check = await session.checkout(head, "final")
    final = read(check.root)
    for path in NAMES:
        assert final[path] == expected(path, start, wanted, isinstance(results[1], Conflict), final[path])
    write(user, theirs)
    found = read(user)
    applied = await session.apply(base=base, head=head, wanted=True)
    after = read(user)
    overlap = [p for p in NAMES if final[p] != start[p] and found[p] not in (start[p], final[p])]
    if overlap:
        assert not applied.is_applied
        assert after == found
        assert all(path in applied.detail for path in overlap)
    else:
        assert applied.is_applied == (head != base and final != start)
        assert after == {p: final[p] if final[p] != start[p] else found[p] for p in NAMES}


def expected(path, start, wanted, is_conflict, final):
    """What the merged file must be; a merge of both sides' lines is taken as it is if it has all of them."""
    first, second = (side[path] for side in wanted)
    if is_conflict or second in (first, start[path]):
        return first
    if first == start[path]:
        return second
    changed = (lines_of(first) | lines_of(second)) - lines_of(start[path])
    assert changed <= lines_of(final)
    return final
