"""Workers that break what they work in: the run may fail, the session and the others do not (B048)."""

import pytest

from tests.e2e.bench import Bench, bash, call, finish, git, on, scripted, start, submit, task
from xnagent.testing.choice import RequestView
from xnagent.testing.script import ReplySpec
from xnagent.testing.server import ScriptedServer

LOOKS = [
    call("read", path="a.py"),
    call("grep", pattern="x"),
    call("glob", pattern="*"),
    call("edit", path="a.py", old="x", new="y"),
]


@pytest.mark.parametrize(
    "command",
    [
        'rm -rf "$PWD"',
        "rm -rf .git",
        "rm -rf .git && touch .git",
        "chmod -R a-rwx . ; true",
        "echo garbage > .git/index; echo garbage > .git/HEAD",
        "git checkout -q -b other && git rm -q a.py && git commit -q -m gone",
        "git init -q inner && cd inner && echo 1 > f && git add f && git -c user.name=a -c user.email=b commit -q -m x",
        "ln -s /etc/passwd leak; ln -s ../../../../outside up",
        "mkfifo pipe",
        "rm a.py && mkdir a.py && echo 1 > a.py/f",
        "printf 'a\\0b' > 'new\nline'; echo x > $'bad\\377name'; echo y > '-rf'",
        "kill -9 $PPID",
        "exec 1>&- 2>&-",
        "git config core.fsmonitor 'touch PWNED'; git config core.hooksPath h; mkdir h; echo touch PWNED >h/pre-commit",
        "echo '*.py filter=evil' > .gitattributes; git config filter.evil.clean 'touch PWNED; cat'",
    ],
)
async def test_B048_a_worker_that_breaks_its_tree_breaks_nothing_else(bench: Bench, command: str):
    ended: set[str] = set()

    def brain(view: RequestView) -> ReplySpec:
        if view.role == "worker" and '"good"' in view.first_user:
            return bash("echo 'y = 2' > b.py").reply if view.number == 1 else submit().reply
        if view.role == "worker":
            steps = [bash(command).reply, on(calls=LOOKS).reply, bash("ls").reply, submit().reply]
            return steps[min(view.number, len(steps)) - 1]
        ended.update(run for run in ("r1", "r2") if f"{run} settled" in view.new_text)
        if "<state>" in view.new_text:
            return start(task("bad"), task("good", checks=["grep -q 'y = 2' b.py"])).reply
        return finish(outcome="failed").reply if len(ended) == 2 else ReplySpec(text="Waiting.")

    with ScriptedServer(brain=brain) as server:
        session = await bench.run(server, apply=False)
    assert session.outcome == "partial", session.record
    assert session.run("r2").status == "completed"
    assert session.run("r1").status in {"completed", "failed"}
    assert git("status", "--porcelain", folder=bench.repository) == ""
    assert not list(bench.folder.rglob("PWNED"))
    assert git("show", "xnagent/s-bench:b.py", folder=bench.repository) == "y = 2\n"


async def test_a_worker_cannot_reach_the_integrated_result_of_others_through_its_own_repository(bench: Bench):
    """It may push and reset as it likes: only its files count."""
    command = "git log --oneline | wc -l; git push origin HEAD 2>&1; git update-ref refs/heads/integration HEAD; true"
    script = scripted(start(task("one")), finish("r1 settled"), workers={"one": [bash(command), submit()]})
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
    assert (ended.code, ended.record["workspace"]["branch"]) == (0, None)


async def test_many_runs_share_few_places(bench: Bench):
    names = [f"t{number}" for number in range(9)]
    script = scripted(
        start(*(task(name, scope=[f"{name}.txt"]) for name in names)),
        *(finish(f"r{number} settled") for number in range(1, 10)),
        workers={name: [bash(f"echo {name} > {name}.txt"), submit()] for name in names},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, parallel=2)
    assert ended.code == 0
    running = most = 0
    for stored in ended.events:
        running += {"run_launched": 1, "run_settled": -1}.get(stored.event.type, 0)
        most = max(most, running)
    assert most <= 2
    assert set(ended.record["workspace"]["changed_files"]) == {f"{name}.txt" for name in names}
