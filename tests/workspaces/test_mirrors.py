"""Mirrors: fetched over real protocols, once, without leaving a password anywhere."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest

from tests.workspaces.serving import LOGIN, GitServer, over_git, over_http
from xnagent.errors import UsageError, WorkspaceError, XnagentError
from xnagent.workspaces.addresses import parse_address
from xnagent.workspaces.mirrors import Mirrors

HOLDER = """
import sys, fcntl, os
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def upstream(repo, tmp_path) -> Path:
    """A bare repository `srv/up.git` with a branch and a tag besides main."""
    repo.git("tag", "-a", "v1", "-m", "one")
    repo.git("checkout", "-q", "-b", "feature/x")
    repo.write(f_txt="f\n")
    repo.commit("feature")
    repo.git("checkout", "-q", "main")
    bare = tmp_path / "srv" / "up.git"
    repo.git("clone", "-q", "--bare", str(repo.root), str(bare))
    return bare


@pytest.fixture
def http(upstream) -> Iterator[GitServer]:
    with over_http(upstream.parent) as server:
        yield server


def mirrors(tmp_path: Path, home: str = "home", **environ: str) -> Mirrors:
    place = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "nobody"), **environ}
    return Mirrors(tmp_path / home / "mirrors", environ=place, limit_seconds=50)


def file_url(upstream: Path) -> str:
    return f"file://{upstream}"


async def test_over_file_git_and_http_the_same_commit(repo, upstream, http, tmp_path):
    head = repo.git("rev-parse", "main")
    with over_git(upstream.parent) as daemon:
        for url in (file_url(upstream), f"git://{daemon}/up.git", f"http://{http.place}/up.git"):
            pinned = await mirrors(tmp_path).pin(parse_address(url), None)
            assert pinned.commit == head
            assert not (pinned.folder / "FETCH_HEAD").exists()


async def test_a_commit_is_named_by_id_its_beginning_a_tag_or_a_branch(repo, upstream, tmp_path):
    address, known = parse_address(file_url(upstream)), mirrors(tmp_path)
    main, feature = repo.git("rev-parse", "main"), repo.git("rev-parse", "feature/x")
    names = {main: main, main[:9]: main, "v1": main, "refs/tags/v1": main, "main": main, "feature/x": feature}
    names |= {"refs/heads/feature/x": feature, "feature/x~1": main}
    for name, commit in names.items():
        assert (await known.pin(address, name)).commit == commit, name
    for name in ("nothing", "0" * 40, "deadbee", "-x", "main:a.txt", ":/first", "@{-1}"):
        with pytest.raises(UsageError, match=r"^COMMIT_UNKNOWN: .* has no commit"):
            await known.pin(address, name)


async def test_what_moves_is_fetched_once_for_each_batch_and_what_is_here_not_at_all(repo, upstream, tmp_path):
    address, first = parse_address(file_url(upstream)), mirrors(tmp_path)
    old = (await first.pin(address, "main")).commit
    repo.write(a_txt="new\n")
    new = repo.commit("second")
    repo.git("push", "-q", "-f", str(upstream), "main", ":feature/x")
    assert (await first.pin(address, "main")).commit == old
    assert (await first.pin(address, new)).commit == new, "an id that is not here is looked for"
    assert (await mirrors(tmp_path).pin(address, "main")).commit == new
    shutil.rmtree(upstream)
    assert (await mirrors(tmp_path).pin(address, old)).commit == old
    assert (await mirrors(tmp_path).pin(address, old[:10])).commit == old
    with pytest.raises(UsageError, match=r"^REPOSITORY_UNKNOWN"):
        await mirrors(tmp_path).pin(address, "main")


async def test_a_commit_that_no_branch_leads_to_is_asked_for_by_its_id(repo, upstream, tmp_path):
    hidden = repo.git("commit-tree", "-m", "hidden", "main^{tree}")
    repo.git("push", "-q", str(upstream), f"{hidden}:refs/changes/1")
    repo.git("--git-dir", str(upstream), "config", "uploadpack.allowAnySHA1InWant", "true")
    assert (await mirrors(tmp_path).pin(parse_address(file_url(upstream)), hidden)).commit == hidden


async def test_b075_a_login_is_used_and_stands_nowhere(repo, http, tmp_path):
    http.needs_login = True
    user, password = (quote(part, safe="") for part in LOGIN)
    pinned = await mirrors(tmp_path).pin(parse_address(f"http://{user}:{password}@{http.place}/up.git"), "main")
    assert pinned.commit == repo.git("rev-parse", "main")
    for path in (tmp_path / "home").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert LOGIN[1].encode() not in content
            assert password.encode() not in content


async def test_b075_a_login_from_a_variable(repo, http, tmp_path):
    http.needs_login = True
    address = parse_address(f"http://${{GIT_LOGIN}}@{http.place}/up.git")
    with pytest.raises(UsageError, match=r"^LOGIN_MISSING"):
        await mirrors(tmp_path).pin(address, "main")
    known = mirrors(tmp_path, GIT_LOGIN=":".join(LOGIN))
    assert (await known.pin(address, "main")).commit == repo.git("rev-parse", "main")


async def test_a_login_from_netrc(repo, http, tmp_path):
    http.needs_login = True
    (tmp_path / "nobody").mkdir()
    (tmp_path / "nobody" / ".netrc").write_text(f'machine 127.0.0.1 login {LOGIN[0]} password "{LOGIN[1]}"\n')
    pinned = await mirrors(tmp_path).pin(parse_address(f"http://{http.place}/up.git"), "main")
    assert pinned.commit == repo.git("rev-parse", "main")


async def test_b075_a_login_is_not_handed_to_where_one_is_sent_on(http, upstream, tmp_path):
    """The other host asks for a login too: it gets none."""
    user, password = (quote(part, safe="") for part in LOGIN)
    with over_http(upstream.parent) as other:
        other.needs_login = True
        http.moved_to = f"http://localhost:{other.server_address[1]}"
        with pytest.raises(UsageError, match=r"^ACCESS_DENIED") as raised:
            await mirrors(tmp_path).pin(parse_address(f"http://{user}:{password}@{http.place}/up.git"), "main")
    assert LOGIN[1] not in str(raised.value)


def failing(server: GitServer, upstream: Path) -> dict[str, tuple[str, type[XnagentError], int]]:
    return {
        "http://nowhere.invalid/a.git": ("HOST_UNKNOWN", UsageError, 2),
        "git://nowhere.invalid/a.git": ("HOST_UNKNOWN", UsageError, 2),
        f"http://{server.place}/missing.git": ("REPOSITORY_UNKNOWN", UsageError, 2),
        f"file://{upstream}-missing": ("REPOSITORY_UNKNOWN", UsageError, 2),
        f"file://{upstream.parent}": ("REPOSITORY_UNKNOWN", UsageError, 2),
        "http://127.0.0.1:1/a.git": ("FETCH_FAILED", WorkspaceError, 1),
        "git://127.0.0.1:1/a.git": ("FETCH_FAILED", WorkspaceError, 1),
    }


async def test_each_failure_says_what_is_wrong(http, upstream, tmp_path):
    for url, (code, kind, exit_code) in failing(http, upstream).items():
        with pytest.raises(kind, match=f"^{code}: ") as raised:
            await mirrors(tmp_path).pin(parse_address(url), None)
        assert raised.value.exit_code == exit_code
        assert url in str(raised.value)
    http.needs_login = True
    for login in ("", "ann:wrong@"):
        with pytest.raises(UsageError, match=r"^ACCESS_DENIED") as raised:
            await mirrors(tmp_path).pin(parse_address(f"http://{login}{http.place}/up.git"), None)
        assert "wrong" not in str(raised.value)


async def test_a_repository_without_a_commit(user, tmp_path):
    empty = tmp_path / "empty.git"
    user.git("init", "-q", "--bare", str(empty))
    with pytest.raises(UsageError, match=r"^COMMIT_UNKNOWN: .* default branch"):
        await mirrors(tmp_path).pin(parse_address(file_url(empty)), None)


async def test_a_fetch_that_takes_too_long_is_ended(tmp_path):
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    slow = Mirrors(tmp_path / "mirrors", environ={"PATH": os.environ["PATH"]}, limit_seconds=0.5)
    async with listener:
        with pytest.raises(WorkspaceError, match=r"^FETCH_FAILED: .* took longer than"):
            await slow.pin(parse_address(f"git://127.0.0.1:{port}/a.git"), None)


async def test_two_processes_fetch_one_after_the_other(upstream, tmp_path):
    """While another holds the mirror nothing is fetched, and after it everything goes on."""
    address, known = parse_address(file_url(upstream)), mirrors(tmp_path)
    lock = known.folder_of(address).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    pinned = []
    async with await anyio.open_process([sys.executable, "-c", HOLDER, str(lock)], stderr=None) as holder:
        assert (await holder.stdout.receive()).startswith(b"held")
        async with anyio.create_task_group() as group:

            async def pin() -> None:
                pinned.append(await known.pin(address, None))

            group.start_soon(pin)
            await anyio.sleep(0.3)
            assert (pinned, known.folder_of(address).exists()) == ([], False)
            await holder.stdin.aclose()
        assert len(pinned) == 1


async def test_b073_nothing_that_the_other_side_or_the_user_configures_runs(repo, upstream, tmp_path):
    """Hooks of a template, an alias and a helper in the user's configuration, a submodule upstream."""
    mark = tmp_path / "ran"
    home = tmp_path / "nobody"
    (home / "template" / "hooks").mkdir(parents=True)
    hook = home / "template" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[init]\n templateDir={home}/template\n[core]\n hooksPath={home}/template/hooks\n fsmonitor=touch {mark}\n"
        f'[url "ext::touch {mark}"]\n insteadOf=file://\n[protocol]\n allow=always\n'
    )
    repo.write(x_txt="x\n")
    repo.put(".gitmodules", f'[submodule "s"]\n path=s\n url=ext::touch% {mark}\n')
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{repo.git('rev-parse', 'main')},s")
    repo.git("add", "-A", "x.txt", ".gitmodules")
    repo.git("commit", "-q", "-m", "module")
    repo.git("push", "-q", str(upstream), "main")
    pinned = await mirrors(tmp_path).pin(parse_address(file_url(upstream)), None)
    assert pinned.commit == repo.git("rev-parse", "main")
    assert not mark.exists()


@pytest.fixture
def ssh(tmp_path) -> Path:
    """A folder with an `ssh` that notes how it was called and runs the command here, or fails with a text."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ssh"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/calls\n[ -e {folder}/says ] && {{ cat {folder}/says >&2; exit 255; }}\n'
        'for last; do :; done\nexec sh -c "$last"\n'
    )
    program.chmod(0o755)
    return folder


async def test_over_ssh_nothing_is_asked(repo, upstream, ssh, tmp_path):
    known = mirrors(tmp_path, PATH=f"{ssh}:{os.environ['PATH']}")
    for url in (f"me@example.invalid:{upstream}", f"ssh://me@example.invalid:2222{upstream}"):
        assert (await known.pin(parse_address(url), None)).commit == repo.git("rev-parse", "main")
    calls = (ssh / "calls").read_text().splitlines()
    assert all("-oBatchMode=yes" in line and "me@example.invalid" in line for line in calls)
    assert "-p 2222" in calls[-1]


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("ssh: Could not resolve hostname example.invalid: Name or service not known", "HOST_UNKNOWN"),
        ("me@example.invalid: Permission denied (publickey).", "ACCESS_DENIED"),
        ("Host key verification failed.", "ACCESS_DENIED"),
        ("ERROR: Repository not found.", "REPOSITORY_UNKNOWN"),
        ("ssh: connect to host example.invalid port 22: Connection refused", "FETCH_FAILED"),
    ],
)
async def test_what_ssh_says_is_understood(ssh, tmp_path, says, code):
    (ssh / "says").write_text(says + "\n")
    known = mirrors(tmp_path, PATH=f"{ssh}:{os.environ['PATH']}")
    with pytest.raises(XnagentError, match=rf"^{code}: "):
        await known.pin(parse_address("me@example.invalid:a.git"), None)
