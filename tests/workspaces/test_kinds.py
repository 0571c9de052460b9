"""Odd kinds of files and repositories from a run's tree through the merge to the user's files (B051)."""

import os
from hashlib import sha256

import pytest

from xnagent.core.commits import Conflict

pytestmark = pytest.mark.anyio

LONG = "n" * 255
LATIN = os.fsdecode(b"caf\xe9")
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 4\n" % (b"0" * 64)


async def merged(session, base, *works):
    """Each work begins at the base and is merged after the ones before; the head, and the last answer."""
    head, answer = base.commit, None
    for number, work in enumerate(works):
        run = f"r{number}"
        work((await session.open_run(run, base.commit)).root)
        taken = await session.take(run, base.commit)
        assert taken.problems == ()
        answer = await session.merge(head=head, base=base.commit, commit=taken.commit, message=run)
        if not isinstance(answer, Conflict):
            head = answer.commit
            await session.advance(head)
    return head, answer


async def brought(session, base, *works):
    """The same, and then everything applied to the user's tree."""
    head, answer = await merged(session, base, *works)
    assert not isinstance(answer, Conflict)
    return await session.apply(base=base.commit, head=head, wanted=True)


def append(name, text="more\n"):
    def work(root):
        with (root / name).open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    return work


def move(old, new):
    return lambda root: (root / old).rename(root / new)


def put(name, content):
    return lambda root: (root / name).write_bytes(content)


def link(target):
    def work(root):
        (root / "link").unlink()
        (root / "link").symlink_to(target)

    return work


def file_for_link(root):
    (root / "link").unlink()
    (root / "link").write_bytes(b"a0\n")


def folder_for_file(root):
    (root / "b.txt").unlink()
    (root / "b.txt").mkdir()
    (root / "b.txt/x").write_bytes(b"x")


KINDS = {
    "rename-and-edit": ([move("a.txt", "z.txt"), append("a.txt")], {"a.txt": None, "z.txt": b"a1\na2\na3\nmore\n"}),
    "edit-and-rename": ([append("a.txt"), move("a.txt", "z.txt")], {"a.txt": None, "z.txt": b"a1\na2\na3\nmore\n"}),
    "case-only-rename": ([move("a.txt", "A.txt"), append("b.txt")], {"a.txt": None, "A.txt": b"a1\na2\na3\n"}),
    "binary": ([put("x.bin", bytes(range(256)) * 9), append("b.txt")], {"x.bin": bytes(range(256)) * 9}),
    "empty": ([put("empty", b""), put("b.txt", b"")], {"empty": b"", "b.txt": b""}),
    "long-name": ([put(LONG, b"long"), append("a.txt")], {LONG: b"long"}),
    "not-utf-8": ([put(LATIN, b"latin"), append("a.txt")], {LATIN: b"latin"}),
    "line-break-in-name": ([put("new\nline", b"n"), append("a.txt")], {"new\nline": b"n"}),
    "no-final-newline": ([put("a.txt", b"a0\na1\na2\na3"), append("b.txt")], {"a.txt": b"a0\na1\na2\na3"}),
    "carriage-returns": ([put("a.txt", b"a1\r\na2\r\na3\r\n"), append("b.txt")], {"a.txt": b"a1\r\na2\r\na3\r\n"}),
    "removed-by-both": ([lambda root: (root / "b.txt").unlink()] * 2, {"b.txt": None}),
    "same-by-both": ([append("b.txt")] * 2, {"b.txt": b"b\nmore\n"}),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_B051_two_works_of_a_kind_reach_the_user(repo, session, at, kind):
    works, expected = KINDS[kind]
    base = await session.begin(at=at)
    assert (await brought(session, base, *works)).is_applied
    for name, content in expected.items():
        path = repo.root / name
        assert (path.read_bytes() if path.exists() else None) == content
    repo.git("add", "-A")
    assert repo.git("diff", "--cached", "--stat", "xnagent/s-1") == ""
    repo.git("fsck", "--strict")


@pytest.mark.parametrize(
    ("one", "two", "path"),
    [
        (put("x.bin", b"\0one"), put("x.bin", b"\0two"), "x.bin"),
        (append("b.txt", "one\n"), append("b.txt", "two\n"), "b.txt"),
        (move("b.txt", "one"), move("b.txt", "two"), "b.txt"),
        (move("b.txt", "one"), lambda root: (root / "b.txt").unlink(), "one"),
        (link("b.txt"), file_for_link, "link"),
        (link("b.txt"), link("d"), "link"),
        (folder_for_file, append("b.txt"), "b.txt"),
    ],
    ids=["binary", "text", "two-renames", "rename-delete", "link-and-file", "two-links", "folder-and-edit"],
)
async def test_B051_what_cannot_be_both_is_a_conflict_with_its_path(repo, session, at, one, two, path):
    base = await session.begin(at=at)
    _, answer = await merged(session, base, one, two)
    assert any(path in found for found in answer.paths)
    assert answer.detail


async def test_a_mode_and_a_content_from_two_runs_are_both_kept(repo, session, at):
    base = await session.begin(at=at)
    applied = await brought(session, base, lambda root: (root / "b.txt").chmod(0o755), append("b.txt"))
    assert applied.is_applied
    assert (repo.root / "b.txt").read_text() == "b\nmore\n"
    assert (repo.root / "b.txt").stat().st_mode & 0o111


@pytest.mark.parametrize("config", [None, "input", "true"], ids=["unset", "input", "true"])
@pytest.mark.parametrize("where", ["--local", "--global"])
async def test_attributes_and_the_users_autocrlf_do_not_spoil_a_merge(repo, session, at, config, where):
    """`eol=crlf` gives CRLF in every tree and LF in every commit, whatever the user has configured."""
    repo.put(".gitattributes", "*.txt text eol=crlf\n*.sh text eol=lf\n*.dat -text\n")
    repo.put("w.txt", b"1\r\n2\r\n3\r\n4\r\n5\r\n")
    repo.put("x.dat", b"1\r\n2\n")
    repo.commit("crlf")
    repo.git("rm", "-rq", "--cached", ".")
    repo.git("reset", "-q", "--hard")
    if config:
        repo.git("config", where, "core.autocrlf", config)
    base = await session.begin(at=at)
    assert base.commit == repo.git("rev-parse", "HEAD")
    applied = await brought(
        session,
        base,
        put("w.txt", b"one\r\n2\r\n3\r\n4\r\n5\r\n"),
        put("w.txt", b"1\r\n2\r\n3\r\n4\r\nfive\r\n"),
        put("x.dat", b"1\r\n2\n3\r\n"),
    )
    assert applied.is_applied
    assert (repo.root / "w.txt").read_bytes() == b"one\r\n2\r\n3\r\n4\r\nfive\r\n"
    assert (repo.root / "x.dat").read_bytes() == b"1\r\n2\n3\r\n"
    assert applied.changed_files == ("w.txt", "x.dat")
    assert repo.git("show", "xnagent/s-1:w.txt").split() == ["one", "2", "3", "4", "five"]
    assert "\r" not in repo.git("show", "xnagent/s-1:w.txt")


@pytest.mark.parametrize("is_touched", [False, True], ids=["as-checked-out", "touched"])
async def test_lfs_pointers_stay_pointers(repo, session, at, is_touched):
    """The user's tree has the content, the repository a pointer; the filter of their configuration is never run."""
    content = b"big\n"
    pointer = POINTER.replace(b"0" * 64, sha256(content).hexdigest().encode())
    repo.put(".gitattributes", "*.big filter=lfs diff=lfs merge=lfs -text\n")
    repo.put("x.big", pointer)
    repo.commit("pointer")
    repo.put(".git/pointer", pointer)
    repo.git("config", "filter.lfs.smudge", "echo big")
    repo.git("config", "filter.lfs.clean", "touch PWNED; cat .git/pointer")
    (repo.root / "x.big").unlink()
    repo.git("checkout", "-q", "x.big")
    assert (repo.root / "x.big").read_bytes() == content
    (repo.root / "PWNED").unlink(missing_ok=True)
    if is_touched:
        os.utime(repo.root / "x.big", ns=(1, 1))
    base = await session.begin(at=at)
    assert await session.read(base.commit, "x.big") == pointer
    assert ((await session.open_run("r1", base.commit)).root / "x.big").read_bytes() == pointer
    assert (await brought(session, base, append("b.txt"), append("a.txt"))).is_applied
    assert (repo.root / "x.big").read_bytes() == content
    assert not (repo.root / "PWNED").exists()


async def test_a_submodule_is_neither_changed_nor_lost(repo, session, at, tmp_path):
    inner = tmp_path / "inner"
    repo.git("clone", "-q", str(repo.root), str(inner))
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    repo.commit()
    before = repo.git("ls-tree", "HEAD", "sub")
    base = await session.begin(at=at)

    def rude(root):
        (root / "sub").rmdir()
        append("b.txt")(root)

    applied = await brought(session, base, rude, append("a.txt"))
    assert applied.is_applied
    assert applied.changed_files == ("a.txt", "b.txt")
    assert repo.git("ls-tree", "xnagent/s-1", "sub") == before
    assert (repo.root / "sub" / "a.txt").read_text() == "a1\na2\na3\n"


async def test_a_shallow_clone_is_enough(repo, open_session, at, tmp_path, user):
    for number in range(3):
        repo.put("a.txt", f"{number}\n")
        repo.commit(f"c{number}")
    clone = tmp_path.resolve() / "clone"
    repo.git("clone", "-q", "--depth", "1", f"file://{repo.root}", str(clone))
    session = open_session(clone, "s-2")
    base = await session.begin(at=at)
    applied = await brought(session, base, append("a.txt"), append("b.txt"))
    assert applied.is_applied
    assert (clone / "a.txt").read_text() == "2\nmore\n"
    assert user.git("log", "--format=%s", "xnagent/s-2", cwd=clone).splitlines()[-1] == "c2"
    user.git("fsck", cwd=clone)


async def test_a_sparse_checkout_gets_what_changed_in_sight(repo, session, at):
    repo.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    assert not (repo.root / "d/c.txt").exists()
    base = await session.begin(at=at)
    applied = await brought(session, base, append("a.txt"), append("b.txt"))
    assert applied.is_applied
    assert (repo.root / "a.txt").read_text() == "a1\na2\na3\nmore\n"
    assert not (repo.root / "d/c.txt").exists()
    assert repo.git("show", "xnagent/s-1:d/c.txt") == "c"


async def test_a_sparse_checkout_and_a_change_out_of_sight(repo, session, at):
    """Nothing of it is lost: all of it is on the branch, which the user's own git merges; no file is written."""
    repo.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    base = await session.begin(at=at)
    applied = await brought(session, base, append("d/c.txt"), append("b.txt"))
    assert repo.git("show", "xnagent/s-1:d/c.txt") == "c\nmore"
    assert not applied.is_applied
    assert "d/c.txt" in applied.detail
    assert "git merge xnagent/s-1" in applied.detail
    assert (repo.root / "b.txt").read_text() == "b\n"
