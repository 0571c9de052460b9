"""Trees that want to run something, to reach out, or to hang whoever reads them."""

import contextlib
import os

import pytest

from xnagent.workspaces.changes import leads_out
from xnagent.workspaces.staging import is_forbidden

HOSTILE_ATTRIBUTES = "* filter=x diff=x merge=x\n"


def hostile_config(pwned):
    touch = f"touch {pwned}"
    return f"""
[core]
\tfsmonitor = "{touch}-fsmonitor; false"
\thooksPath = hooks
\tpager = {touch}-pager
\tsshCommand = {touch}-ssh
\tgitProxy = {touch}-proxy
\taskPass = {touch}-askpass
\teditor = {touch}-editor
[diff]
\texternal = "{touch}-external;#"
[diff "x"]
\tcommand = "{touch}-command;#"
\ttextconv = "{touch}-textconv;#"
[merge "x"]
\tdriver = "{touch}-driver"
[filter "x"]
\tclean = "{touch}-clean; cat"
\tsmudge = "{touch}-smudge; cat"
\tprocess = "{touch}-process"
[commit]
\tgpgSign = true
[gpg]
\tprogram = {touch}-gpg
[uploadpack]
\tpackObjectsHook = {touch}-pack
[protocol "ext"]
\tallow = always
[url "ext::sh -c {touch}-url% "]
\tinsteadOf = /
[alias]
\tadd = "!{touch}-alias"
"""


def poison(folder, git_dir, pwned):
    """Everything in a repository that could name a program."""
    with (git_dir / "config").open("a") as file:
        file.write(hostile_config(pwned))
    (folder / ".gitattributes").write_text(HOSTILE_ATTRIBUTES)
    for hooks in (folder / "hooks", git_dir / "hooks"):
        hooks.mkdir(exist_ok=True)
        names = ("post-checkout", "pre-commit", "reference-transaction", "post-index-change", "update", "post-merge")
        for name in names:
            (hooks / name).write_text(f"#!/bin/sh\ntouch {pwned}-hook-{name}\n")
            (hooks / name).chmod(0o755)


@pytest.fixture
def pwned(tmp_path):
    """Prefix of files that appear if anything runs; and a look for them."""

    class Pwned:
        prefix = tmp_path / "PWNED"

        def found(self):
            return sorted(path.name for path in tmp_path.rglob("*PWNED*"))

    return Pwned()


async def test_B073_a_hostile_repository_runs_nothing_from_begin_to_apply(repo, session, at, pwned):
    poison(repo.root, repo.root / ".git", pwned.prefix)
    repo.put("a.txt", "dirty\n")
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    assert (run.root / ".gitattributes").read_text() == HOSTILE_ATTRIBUTES
    poison(run.root, run.root / ".git", pwned.prefix)
    (run.root / "b.txt").write_text("by the run\n")
    (run.root / ".gitattributes").write_text(HOSTILE_ATTRIBUTES)
    taken = await session.take("r1", base)
    merged = await session.merge(head=base, base=base, commit=taken.commit, message="m")
    await session.advance(merged.commit)
    await session.checkout(merged.commit, "final")
    applied = await session.apply(base=base, head=merged.commit, wanted=True)
    assert applied.is_applied, applied.detail
    assert applied.branch == "xnagent/s-1"
    assert (repo.root / "b.txt").read_text() == "by the run\n"
    assert pwned.found() == []


async def test_B073_the_hostile_settings_do_bite_when_git_is_run_plainly(repo, pwned):
    poison(repo.root, repo.root / ".git", pwned.prefix)
    repo.put("a.txt", "dirty\n")
    with contextlib.suppress(AssertionError):
        repo.git("status")
    assert pwned.found()


async def test_B073_nested_repositories_and_submodules_run_nothing(repo, session, at, pwned, user, tmp_path):
    inner = tmp_path / "inner"
    user.git("init", "-q", str(inner))
    (inner / "x").write_text("x")
    user.git("add", "x", cwd=inner)
    user.git("commit", "-qm", "x", cwd=inner)
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    repo.commit()
    user.git("clone", "-q", str(inner), str(repo.root / "nested"))
    for place, git_dir in (("sub", repo.root / ".git/modules/sub"), ("nested", repo.root / "nested/.git")):
        poison(repo.root / place, git_dir, pwned.prefix)
        (repo.root / place / "x").write_text("dirty")
    base = await session.begin(at=at)
    assert base.notes == ("left out, repositories of their own: nested",)
    run = await session.open_run("r1", base.commit)
    user.git("clone", "-q", str(inner), str(run.root / "more"))
    user.git("clone", "-q", str(inner), str(run.root / "sub"))
    for place in ("more", "sub"):
        poison(run.root / place, run.root / place / ".git", pwned.prefix)
        (run.root / place / "x").write_text("dirty")
    taken = await session.take("r1", base.commit)
    assert [problem.split(":")[0] for problem in taken.problems] == ["NESTED_REPOSITORY"]
    assert "more" in taken.problems[0]
    assert taken.changed_files == ()
    assert pwned.found() == []


async def test_B073_a_git_file_that_points_elsewhere_is_not_followed(repo, session, at, pwned, user, tmp_path):
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    evil = tmp_path / "evil"
    user.git("init", "-q", str(evil))
    poison(evil, evil / ".git", pwned.prefix)
    (run.root / ".git").rename(tmp_path / "aside")
    (run.root / ".git").write_text(f"gitdir: {evil}/.git\n")
    (run.root / "a.txt").write_text("changed")
    taken = await session.take("r1", base)
    assert taken.changed_files == ("a.txt",)
    assert pwned.found() == []


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", "d/.gitignore", "deep/er/.gitattributes"])
async def test_a_fifo_that_git_would_open_does_not_hang_the_taking(repo, session, at, name):
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    place = run.root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    (run.root / "a.txt").write_text("changed")
    taken = await session.take("r1", base)
    assert "a.txt" in taken.changed_files


@pytest.mark.parametrize(
    ("links", "is_bad"),
    [
        ({"l": "/etc/passwd"}, True),
        ({"l": "../outside"}, True),
        ({"d/l": "../../outside"}, True),
        ({"l": "d/../../x"}, True),
        ({"hop": "d", "l": "hop/../../x"}, True),
        ({"l": ".git/hooks/pre-commit"}, True),
        ({"l": "d/../.GIT/config"}, True),
        ({"l": "d/c.txt"}, False),
        ({"d/l": "../a.txt"}, False),
        ({"l": "nowhere"}, False),
        ({"l": "l"}, False),
        ({"l": "m", "m": "l"}, False),
        ({"l": "a..b"}, False),
    ],
)
async def test_B071_links_that_lead_out_are_a_problem(repo, session, at, links, is_bad):
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    for path, target in links.items():
        (run.root / path).symlink_to(target)
    taken = await session.take("r1", base)
    assert bool(taken.problems) == is_bad
    if is_bad:
        assert taken.problems[0].startswith("ESCAPING_LINK: ")


async def test_B071_a_link_that_was_there_is_not_the_runs_fault_but_a_new_way_out_is(repo, session, at):
    (repo.root / "old").symlink_to("/etc/hostname")
    (repo.root / "way").symlink_to("d/e/../../a.txt")
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / "fine").symlink_to("a.txt")
    assert (await session.take("r1", base)).problems == ()
    (run.root / "d/e").symlink_to("..")
    problems = (await session.take("r1", base)).problems
    assert [problem.split()[1] for problem in problems] == ["way"]


async def test_B071_an_escaping_link_is_never_written_to_the_users_tree(repo, session, at, tmp_path):
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / "out").symlink_to(tmp_path)
    taken = await session.take("r1", base)
    applied = await session.apply(base=base, head=taken.commit, wanted=True)
    assert not applied.is_applied
    assert "ESCAPING_LINK" in applied.detail
    assert not (repo.root / "out").is_symlink()


@pytest.mark.parametrize("name", [".GIT/config", "d/.Git/x", "git~1/x", ".git /x", ".gi\u200ct/x"])
async def test_paths_that_some_file_system_takes_for_git(repo, session, at, name):
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / name).parent.mkdir(parents=True)
    (run.root / name).write_text("x")
    taken = await session.take("r1", base)
    assert [problem.split(":")[0] for problem in taken.problems] == ["FORBIDDEN_PATH"]
    assert taken.changed_files == ()


async def test_a_modules_file_that_is_a_link(repo, session, at):
    base = (await session.begin(at=at)).commit
    run = await session.open_run("r1", base)
    (run.root / ".gitmodules").symlink_to("a.txt")
    assert (await session.take("r1", base)).problems


def test_a_loop_of_links_ends():
    assert not leads_out("a", {"a": "b/c", "b": "a"})


def test_ordinary_names_are_not_forbidden():
    assert not any(is_forbidden(name) for name in (".gitignore", ".github/x", "git", "a.git/x", "digit~1"))
