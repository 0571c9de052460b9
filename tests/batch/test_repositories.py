"""Jobs on repositories that are fetched: pinned, in mirrors, and with results that others can fetch."""

import os
import shutil
from pathlib import Path

import anyio
import pytest

from tests.batch.test_dispatch import batch, results, write_jobs
from tests.cli.harness import Shell, make_shell
from tests.e2e.bench import call, delegate, finish, git, make_repository, plan, reply, submit, task
from tests.e2e.command import wait_until
from tests.workspaces.serving import LOGIN, over_http
from xnagent.app.host import Host
from xnagent.app.replay import replay_session
from xnagent.app.running import Stop
from xnagent.batch.repositories import Repositories, named_repository
from xnagent.core.tree_events import RunTreeRestored, RunTreeSaved
from xnagent.errors import UsageError, WorkspaceError
from xnagent.store.reading import read_events
from xnagent.store.sessions import session_path
from xnagent.testing.choice import RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer


def brain(view: RequestView) -> ReplySpec:
    """One task; its Worker writes, then makes something of what it wrote."""
    if view.role == "planner":
        if "settled: completed" in view.new_text:
            return finish().reply
        name = view.first_user.split("\n")[1]
        planned = f'"{name}":' in view.new_text
        return ReplySpec(text="Waiting.") if planned else reply(plan(task(name)), *delegate(name))
    if view.number == 1:
        return reply(call("write", path="new.txt", content="n\n"))
    if view.number == 2:
        return reply(call("bash", command="cat new.txt a.py > sum.txt"))
    return submit().reply


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return make_shell(tmp_path)


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """Two commits, of which the tag `v1` is the first."""
    work = make_repository(tmp_path / "author")
    git("tag", "v1", folder=work)
    (work / "a.py").write_text("x = 2\n")
    git("commit", "-q", "-a", "-m", "second", folder=work)
    git("clone", "-q", "--bare", str(work), str(tmp_path / "srv" / "up.git"), folder=work)
    return tmp_path / "srv" / "up.git"


def test_b075_results_of_fetched_repositories_are_branches_patches_and_bundles(
    shell: Shell, upstream: Path, tmp_path: Path
):
    """A default branch over file, a tag over HTTP with a login from a variable, and what is not there."""
    with over_http(upstream.parent) as http, ScriptedServer(brain=brain) as server:
        http.needs_login = True
        url = f"http://${{GIT_LOGIN}}@{http.place}/up.git"
        write_jobs(
            shell,
            {"id": "newest", "objective": "one", "repo": f"file://{upstream}"},
            {"id": "tagged", "objective": "two", "repo": url, "commit": "v1"},
            {"id": "missing", "objective": "three", "repo": url, "commit": "v9"},
            {"id": "denied", "objective": "four", "repo": f"http://{http.place}/up.git"},
        )
        bundles = tmp_path / "bundles"
        options = ("-j", "2", "--bundle", str(bundles))
        done = shell.with_variables(GIT_LOGIN=":".join(LOGIN)).run(*batch(shell, server.base_url, *options))
        assert server.problems == []
    lines = {line["id"]: line for line in results(shell)}
    assert [lines[name]["outcome"] for name in ("newest", "tagged", "missing", "denied")] == [
        "completed",
        "completed",
        "error",
        "error",
    ]
    assert "COMMIT_UNKNOWN" in lines["missing"]["error"]["message"]
    assert "ACCESS_DENIED" in lines["denied"]["error"]["message"]
    author = tmp_path / "author"
    for name, commit, content in (("newest", "main", "n\nx = 2\n"), ("tagged", "v1", "n\nx = 1\n")):
        space = lines[name]["workspace"]
        assert space["base"] == git("rev-parse", commit, folder=author).strip()
        assert (space["applied"], space["changed_files"]) == (False, ["new.txt", "sum.txt"])
        (mirror,) = [one for one in (shell.home / "mirrors").glob("*.git") if has_branch(one, space["branch"])]
        for source in (mirror, bundles / f"{lines[name]['session']}.bundle"):
            git("fetch", "-q", str(source), f"{space['branch']}:refs/heads/got", "-f", folder=author)
            assert git("show", "got:sum.txt", folder=author) == content
    assert LOGIN[1] not in done.out + done.err
    assert_nowhere(LOGIN[1], shell.home, tmp_path / "results.jsonl")


def has_branch(mirror: Path, branch: str) -> bool:
    return bool(git("for-each-ref", f"refs/heads/{branch}", folder=mirror).strip())


def assert_nowhere(secret: str, *places: Path) -> None:
    for place in places:
        for path in [place, *place.rglob("*")]:
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_b002_a_job_goes_on_at_another_machine(shell: Shell, upstream: Path, tmp_path: Path):
    """Killed in mid-run; nothing but the session's file comes along, to another home."""
    hanging = []

    def hang(view: RequestView) -> ReplySpec:
        if view.role == "worker" and view.number == 3 and not hanging:
            hanging.append(True)
            return ReplySpec(fault=Fault(hang="start"))
        return brain(view)

    write_jobs(shell, {"id": "j", "objective": "one", "repo": f"file://{upstream}", "commit": "v1"})
    with ScriptedServer(brain=hang) as server:
        with shell.started(*batch(shell, server.base_url)) as process:
            wait_until(lambda: bool(hanging), process)
        (path,) = (shell.home / "sessions").glob("s-*.db")
        other = Host(home=tmp_path / "other", environ={})
        (other.home / "sessions").mkdir(parents=True)
        for part in path.parent.glob(f"{path.stem}.db*"):
            shutil.copy2(part, other.home / "sessions")
        shutil.rmtree(shell.home)
        done = shell.run("resume", path.stem, "--home", str(other.home), "--output", "json")
        assert (done.code, server.problems) == (0, []), done.err
    events = [stored.event for stored in read_events(session_path(other.home, path.stem))]
    assert replay_session(other, path.stem).problems == []
    assert len([event for event in events if isinstance(event, RunTreeSaved)]) == 2
    (restored,) = [event for event in events if isinstance(event, RunTreeRestored)]
    assert restored.lost == ()
    (mirror,) = (other.home / "mirrors").glob("*.git")
    space = done.record["workspace"]
    assert space["base"] == git("rev-parse", "v1", folder=tmp_path / "author").strip()
    assert git("show", f"{space['branch']}:sum.txt", folder=mirror) == "n\nx = 1\n"


async def test_what_moves_means_the_same_for_all_jobs_of_a_batch(upstream: Path, tmp_path: Path):
    host = Host(home=tmp_path / "home", environ={"PATH": os.environ["PATH"]})
    repositories = Repositories(host)
    first = await repositories.place(f"file://{upstream}", "main", stop=Stop())
    shutil.rmtree(upstream)
    assert await repositories.place(f"file://{upstream}", "main", stop=Stop()) == first
    assert await Repositories(host).place(f"file://{upstream}", first.commit, stop=Stop()) == first


@pytest.mark.parametrize("given", ["https://u:p@example.invalid/a", "https://${GIT_LOGIN}:p@example.invalid/a"])
def test_b075_a_password_in_a_file_of_jobs_is_refused_and_not_repeated(given: str):
    with pytest.raises(UsageError, match=r"^ADDRESS_LOGIN: jobs:1: https://\*\*\*@example.invalid/a") as raised:
        named_repository(given, where="jobs:1", base=Path("/"))
    assert ":p" not in str(raised.value)


def test_a_relative_folder_is_below_the_batch_s():
    assert named_repository("sub", where="", base=Path("/x")) == "/x/sub"
    assert named_repository(None, where="", base=Path("/x")) == "/x"
    assert named_repository("https://me@example.invalid/a", where="", base=Path("/x")) == "https://example.invalid/a"


async def test_a_fetch_ends_when_the_batch_is_to_stop(tmp_path: Path):
    """The other side takes the call and says nothing."""
    repositories = Repositories(Host(home=tmp_path, environ={"PATH": os.environ["PATH"]}))
    stop, called = Stop(), anyio.Event()

    async def never(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            called.set()
            await anyio.sleep_forever()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, never)

        async def ask() -> None:
            await called.wait()
            stop.request("SIGINT")

        group.start_soon(ask)
        assert await repositories.place(f"git://127.0.0.1:{port}/a.git", None, stop=stop) is None
        group.cancel_scope.cancel()
    for given, error in (("git://127.0.0.1:1/a.git", WorkspaceError), (str(tmp_path / "none"), UsageError)):
        with pytest.raises(error):
            await repositories.place(given, None, stop=Stop())
