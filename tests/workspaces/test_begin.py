"""The user's tree as a commit, with nothing of theirs touched."""

import os
import socket

import pytest

from xnagent.errors import UsageError
from xnagent.workspaces.repositories import SessionWorkspaces


async def tree_of(session, base, integration):
    names = integration("ls-tree", "-r", "--name-only", base.commit).splitlines()
    return {name: (await session.read(base.commit, name)).decode() for name in names}


async def test_a_clean_checkout_begins_at_its_own_commit(repo, session, at, prints):
    before = prints(repo.root)
    base = await session.begin(at=at)
    assert base.commit == repo.git("rev-parse", "HEAD")
    assert not base.is_shadow
    assert base.notes == ()
    assert prints(repo.root) == before


async def test_uncommitted_and_untracked_work_is_in_the_snapshot_and_git_is_untouched(
    repo, session, at, prints, integration
):
    repo.write(a_txt="changed\n", new__n_txt="n\n")
    repo.put("staged.txt", "s1\n")
    repo.git("add", "staged.txt")
    repo.put("staged.txt", "s2\n")
    (repo.root / "b.txt").unlink()
    (repo.root / "run.sh").chmod(0o644)
    repo.put("build/out", "o")
    repo.git("stash", "list")
    before = prints(repo.root)
    base = await session.begin(at=at)
    assert prints(repo.root) == before
    tree = await tree_of(session, base, integration)
    assert tree["a.txt"] == "changed\n"
    assert tree["new/n.txt"] == "n\n"
    assert tree["staged.txt"] == "s2\n"
    assert not {"b.txt", "x.log", "build/out"} & tree.keys()
    assert integration("ls-tree", base.commit, "run.sh").startswith("100644")
    assert integration("rev-parse", f"{base.commit}^") == repo.git("rev-parse", "HEAD")
    assert integration("log", "-1", "--format=%an <%ae> %ct", base.commit) == "xnagent <xnagent@localhost> 1796040000"


async def test_the_same_tree_gives_the_same_commit(repo, open_session, at):
    repo.put("a.txt", "changed\n")
    bases = [await open_session(name=name).begin(at=at) for name in ("s-1", "s-2")]
    again = await open_session().begin(at=at)
    assert bases[0].commit == bases[1].commit == again.commit


@pytest.mark.parametrize("where", ["info", "setting", "default"])
async def test_what_the_user_ignores_outside_the_tree_is_ignored(repo, session, at, integration, where):
    place = {
        "info": repo.root / ".git/info/exclude",
        "setting": repo.home / "my-ignores",
        "default": repo.home / ".config/git/ignore",
    }[where]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("*.secret\n")
    if where == "setting":
        (repo.home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/my-ignores\n")
    repo.put("k.secret", "s")
    repo.put("k.public", "p")
    tree = await tree_of(session, await session.begin(at=at), integration)
    assert "k.public" in tree
    assert "k.secret" not in tree


async def test_a_subfolder_stands_for_the_whole_checkout(repo, open_session, at):
    base = await open_session(repo.root / "d").begin(at=at)
    assert base.commit == repo.git("rev-parse", "HEAD")


async def test_a_linked_worktree_is_a_checkout(repo, open_session, at, tmp_path, prints):
    other = tmp_path / "linked"
    repo.git("worktree", "add", "-q", "-b", "side", str(other))
    (other / "only-here.txt").write_text("x")
    before = prints(repo.root)
    session = open_session(other)
    base = await session.begin(at=at)
    assert await session.read(base.commit, "only-here.txt") == b"x"
    assert prints(repo.root) == before


async def test_a_folder_without_git_gets_a_shadow(user, session, at, prints, integration):
    user.write(a_txt="a", d__b_txt="b")
    before = prints(user.root)
    base = await session.begin(at=at)
    assert base.is_shadow
    assert await tree_of(session, base, integration) == {"a.txt": "a", "d/b.txt": "b"}
    assert prints(user.root) == before


async def test_an_empty_folder_can_begin(user, session, at, integration):
    base = await session.begin(at=at)
    assert await tree_of(session, base, integration) == {}


async def test_nested_repositories_are_left_out_and_named(user, session, at, integration):
    user.put("a.txt", "a")
    user.git("init", "-q", str(user.root / "vendor/lib"))
    user.put("vendor/lib/x", "x")
    base = await session.begin(at=at)
    assert await tree_of(session, base, integration) == {"a.txt": "a"}
    assert base.notes == ("left out, repositories of their own: vendor/lib",)


def bind(listener, path):
    """By a relative name: the names of sockets are short."""
    listener.bind(os.path.relpath(path))


async def test_special_files_are_ignored(repo, session, at, integration):
    os.mkfifo(repo.root / "pipe")
    (repo.root / "b.txt").unlink()
    os.mkfifo(repo.root / "b.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        bind(listener, repo.root / "sock")
        tree = await tree_of(session, await session.begin(at=at), integration)
    assert not {"pipe", "sock", "b.txt"} & tree.keys()


async def test_before_the_first_commit(user, session, at, integration):
    user.git("init", "-q")
    user.put("a.txt", "a")
    base = await session.begin(at=at)
    assert not base.is_shadow
    assert await tree_of(session, base, integration) == {"a.txt": "a"}
    assert integration("rev-list", "--count", base.commit) == "1"


@pytest.mark.parametrize("state", ["no index", "broken index", "split index", "detached", "intent to add", "sha256"])
async def test_states_of_a_repository(user, session, at, integration, state, prints):
    user.git("init", "-q", f"--object-format={'sha256' if state == 'sha256' else 'sha1'}")
    user.write(a_txt="a\n", b_txt="b\n")
    user.commit()
    user.put("b.txt", "b2\n")
    index = user.root / ".git/index"
    if state == "no index":
        index.unlink()
    elif state == "broken index":
        index.write_bytes(b"DIRC nonsense")
    elif state == "split index":
        user.git("update-index", "--split-index")
    elif state == "detached":
        user.git("checkout", "-q", "--detach")
    elif state == "intent to add":
        user.put("c.txt", "c\n")
        user.git("add", "-N", "c.txt")
    before = prints(user.root)
    tree = await tree_of(session, await session.begin(at=at), integration)
    assert tree == {"a.txt": "a\n", "b.txt": "b2\n"} | ({"c.txt": "c\n"} if state == "intent to add" else {})
    assert prints(user.root) == before


async def test_a_merge_in_progress_is_taken_as_it_stands(repo, session, at):
    repo.git("checkout", "-q", "-b", "side")
    repo.put("a.txt", "side\n")
    repo.commit()
    repo.git("checkout", "-q", "main")
    repo.put("a.txt", "main\n")
    repo.commit()
    with pytest.raises(AssertionError):
        repo.git("merge", "-q", "side")
    base = await session.begin(at=at)
    assert b"<<<<<<<" in await session.read(base.commit, "a.txt")


async def test_what_a_sparse_checkout_hides_is_not_deleted(repo, session, at, integration):
    for cone in ("--cone", "--no-cone"):
        repo.git("sparse-checkout", "set", cone, "d")
    assert not (repo.root / "a.txt").exists()
    repo.put("d/c.txt", "c2\n")
    tree = await tree_of(session, await session.begin(at=at), integration)
    assert tree["a.txt"] == "a1\na2\na3\n"
    assert tree["d/c.txt"] == "c2\n"


async def test_submodules_stay_as_they_are(repo, session, at, integration, tmp_path):
    inner = tmp_path / "inner"
    repo.git("clone", "-q", str(repo.root), str(inner))
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    repo.commit()
    repo.put("sub/a.txt", "dirty")
    repo.git("commit", "-q", "--allow-empty", "-m", "inner", cwd=repo.root / "sub")
    base = await session.begin(at=at)
    assert base.commit == repo.git("rev-parse", "HEAD")
    assert base.notes == ()
    run = await session.open_run("r1", base.commit)
    assert (run.root / "sub").is_dir()
    assert (await session.take("r1", base.commit)).changed_files == ()


async def test_line_ends_follow_the_users_settings(repo, session, at):
    repo.git("config", "core.autocrlf", "true")
    repo.put("a.txt", b"a1\r\na2\r\na3\r\n")
    base = await session.begin(at=at)
    assert base.commit == repo.git("rev-parse", "HEAD")
    run = await session.open_run("r1", base.commit)
    assert (run.root / "b.txt").read_bytes() == b"b\r\n"
    (run.root / "b.txt").write_bytes(b"b\r\nmore\r\n")
    taken = await session.take("r1", base.commit)
    assert b"+more\n" in taken.patch
    assert taken.changed_files == ("b.txt",)


async def test_names_that_are_not_utf8_or_odd(repo, session, at):
    odd = ["new\nline", 'quo"te', "-dash", "tab\t", "ünï", ":(top)x", "*"]
    for name in odd:
        repo.put(name, name)
    (repo.root / os.fsdecode(b"caf\xe9")).write_bytes(b"latin")
    base = await session.begin(at=at)
    for name in odd:
        assert await session.read(base.commit, name) == name.encode()
    changed = await session.changed(repo.git("rev-parse", "HEAD"), base.commit)
    assert "caf\ufffd" in changed
    assert "\n".join(changed).encode()


async def test_the_sessions_own_folder_is_not_part_of_the_tree(repo, at, integration, user):
    session = SessionWorkspaces(
        repo.root, repo.root / ".own [x]" / "s-1", session="s-1", environ={"PATH": os.environ["PATH"]}
    )
    base = await session.begin(at=at)
    assert base.commit == repo.git("rev-parse", "HEAD")
    assert (await session.begin(at=at)).commit == base.commit


async def test_tags_are_there_for_tools_that_derive_a_version(repo, session, at, user):
    repo.git("tag", "-a", "v1.2", "-m", "v")
    base = await session.begin(at=at)
    run = await session.open_run("r1", base.commit)
    assert user.git("describe", cwd=run.root) == "v1.2"


@pytest.mark.parametrize("kind", ["missing", "file", "bare", "inside .git", "damaged", "gone gitfile"])
async def test_places_where_no_session_can_begin(repo, open_session, at, tmp_path, kind):
    place = {
        "missing": tmp_path / "nowhere",
        "file": repo.root / "a.txt",
        "bare": tmp_path / "bare.git",
        "inside .git": repo.root / ".git",
        "damaged": tmp_path / "damaged",
        "gone gitfile": tmp_path / "gone",
    }[kind]
    repo.git("init", "-q", "--bare", str(tmp_path / "bare.git"))
    (tmp_path / "damaged/.git").mkdir(parents=True)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/.git").write_text("gitdir: /nonexistent/x\n")
    with pytest.raises(UsageError, match=str(place)) as caught:
        await open_session(place).begin(at=at)
    assert caught.value.exit_code == 2


async def test_a_repository_that_belongs_to_somebody_else_works(repo, session, at):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for path in [repo.root, *repo.root.rglob("*")]:
        os.chown(path, 54321, 54321, follow_symlinks=False)
    assert (await session.begin(at=at)).commit


async def test_a_session_can_begin_from_a_named_commit(repo, open_session, at):
    first = repo.git("rev-parse", "HEAD")
    repo.put("later.txt", "later")
    repo.git("add", "later.txt")
    repo.git("commit", "-qm", "later")
    repo.put("untracked.txt", "mine")
    assert (await open_session(repo.root).begin(at=at, commit="HEAD~1")).commit == first


@pytest.mark.parametrize("name", ["no-such-branch", "--output=x", "deadbeef"])
async def test_an_unknown_commit_is_named(repo, open_session, at, name):
    with pytest.raises(UsageError, match="COMMIT_UNKNOWN"):
        await open_session(repo.root).begin(at=at, commit=name)
