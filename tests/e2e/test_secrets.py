"""A Worker that hunts for secrets finds placeholders, and so does whoever looks at what it left (B074, B075)."""

import base64
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.bench import Bench, bash, call, delegate, finish, on, plan, scripted, start, submit, task, write
from tests.e2e.command import environment, run_line, session_of
from xnagent.core.events import CheckFinished, FactRecorded, TaskAdded
from xnagent.store.codec import unpack
from xnagent.testing.server import ScriptedServer

KEY = "sk-test/Zq8+xTr3VbN1mK9pLwQ2yHdU7sEoA5cGf"
SECRETS = {
    "SCRIPTED_API_KEY": KEY,
    "GH_TOKEN": "ghp_0aB1cD2eF3gH4iJ5kL6m",
    "MY_SERVICE_PASSWORD": "t6-pass word",
    "DATABASE_URL": "postgres://app:Tr0ub4dor-and-3@db.example/x",
    "UNLUCKY": "nothing-special-7",
}
VALUES = [KEY, "ghp_0aB1cD2eF3gH4iJ5kL6m", "t6-pass word", "Tr0ub4dor-and-3", "nothing-special-7"]
EVERYWHERE = "for p in /proc/[0-9]*/environ; do tr '\\0' '\\n' < $p; done 2>/dev/null | grep -a -E '{0}' | sort -u"
NAMES = "^(SCRIPTED_API_KEY|GH_TOKEN|MY_SERVICE_PASSWORD|DATABASE_URL|UNLUCKY)="
HUNT = [
    "env; printenv SCRIPTED_API_KEY; true",
    EVERYWHERE.format(NAMES),
    f"{EVERYWHERE.format(NAMES)} | base64",
    f"{EVERYWHERE.format('^GH_TOKEN=')} | base64 -w 11",
    "cat config.txt; cat config.txt | od -An -tx1; xxd config.txt || true",
    "base64 -w 20 config.txt; (printf x; cat config.txt) | base64; (printf xx; cat config.txt) | base64",
    "sed 's/./&\\n/g' config.txt",
    "for n in $(seq 3000); do cat config.txt; done",
]


def contents(path: Path) -> bytes:
    """All that a session's file holds, unpacked, and its own bytes."""
    with closing(sqlite3.connect(path)) as connection:
        events = [unpack(*row, what="") for row in connection.execute("SELECT enc, payload FROM events ORDER BY seq")]
        chunks = connection.execute(
            "SELECT a.enc, c.data FROM artifacts a JOIN artifact_chunks c ON a.sha = c.sha ORDER BY a.sha, c.n"
        ).fetchall()
    raw = b"".join(part.read_bytes() for part in path.parent.iterdir() if part.is_file())
    return b"\n".join([raw, *events, *(unpack(*chunk, what="") for chunk in chunks)])


def traces(data: bytes) -> list[str]:
    """What of the secrets is in the data, in any form."""
    squeezed = b"".join(data.replace(b"\\n", b"\n").split())
    found = []
    for value in VALUES:
        raw = value.encode()
        forms = {"raw": raw, "hex": raw.hex().encode(), "url": quote(value, safe="").encode()}
        forms["json"] = json.dumps(value)[1:-1].encode()
        for shift in range(3):
            whole = base64.b64encode(b"\0" * shift + raw)
            forms[f"base64/{shift}"] = whole[-(-8 * shift // 6) : 8 * (shift + len(raw)) // 6]
        found += [f"{value}: {name}" for name, form in forms.items() if b"".join(form.split()) in squeezed]
    return found


def test_B074_B075_a_worker_that_hunts_for_secrets_leaves_none_anywhere(bench: Bench):
    bench.repository.joinpath("config.txt").write_text(f"key = {KEY}\n")
    subprocess.run(["git", "add", "-A"], cwd=bench.repository, check=True)
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, "commit", "-q", "-m", "config"], cwd=bench.repository, check=True)
    looking = [
        call("read", path="config.txt"),
        call("grep", pattern="key"),
        call("read", path="no-such-file-" + "x"),
    ]
    script = scripted(
        start(task("hunt", checks=["cat config.txt"])),
        finish("r1 settled: completed"),
        workers={"hunt": [*(bash(command) for command in HUNT), on(calls=looking), submit()]},
    )
    with ScriptedServer(script) as server:
        line = run_line(bench, server, "--api-key-env", "SCRIPTED_API_KEY", "--secret-env", "UNLUCKY", "-v")
        log = bench.folder / "log.txt"
        done = subprocess.run(
            [*line, "--output", "jsonl", "--log-file", str(log), "--check", "cat config.txt"],
            env={**environment(bench), **SECRETS},
            capture_output=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        bodies = b"\n".join(server.bodies)
    assert done.returncode == 0, done.stderr.decode()
    path = bench.host.home / "sessions" / f"{session_of(bench)}.db"
    stored = contents(path)
    for name, data in {
        "requests": bodies,
        "session file": stored,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "log": log.read_bytes() if log.exists() else b"",
    }.items():
        assert traces(data) == [], name
    assert b"[secret:SCRIPTED_API_KEY]" in bodies
    assert b"[secret:GH_TOKEN]" in bodies, "it was there to be found"
    assert b"[secret:DATABASE_URL]" in bodies
    assert b"[secret:UNLUCKY]" in bodies
    for command in (["inspect", "--json"], ["inspect", "--events"], ["request", "3"]):
        line = [command[0], session_of(bench), *command[1:]]
        shown = subprocess.run(
            [sys.executable, "-m", "xnagent", *line, "--home", str(bench.host.home)],
            env={**environment(bench), **SECRETS},
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert traces(shown.stdout + shown.stderr) == [], command


async def test_B075_what_a_model_types_itself_is_masked_wherever_it_goes_from_its_reply(bench: Bench):
    """A reply is sent again byte for byte, so it is kept; facts, tasks and what people read are not."""
    bench.host = type(bench.host)(home=bench.host.home, environ={**bench.host.environ, "A_TOKEN": KEY})
    script = scripted(
        on(
            "<state>",
            calls=[
                call("record_fact", text=f"the key is {KEY}", value=KEY),
                call("plan", tasks=[task("one", checks=[f"test {KEY}"])]),
                call("delegate", task="one"),
            ],
        ),
        finish("r1 settled"),
        workers={"one": [on(calls=[call("note", text=KEY)]), submit(summary=f"found {KEY}")]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, f"Use {KEY}.")
    (fact,) = [one for one in ended.of(FactRecorded) if one.source == "planner"] or ended.of(FactRecorded)[:1]
    assert (fact.text, fact.value) == ("the key is [secret:A_TOKEN]", "[secret:A_TOKEN]")
    assert ended.of(TaskAdded)[0].checks == ("test [secret:A_TOKEN]",)
    assert ended.state.started.objective == "Use [secret:A_TOKEN]."
    assert KEY not in ended.run("r1").summary
    assert KEY.encode() not in server.bodies[0]
    assert ended.of(CheckFinished)[0].evidence.command == "test [secret:A_TOKEN]"


async def test_B075_a_run_that_puts_a_secret_into_a_file_is_refused_and_the_planner_is_told(bench: Bench):
    bench.host = type(bench.host)(home=bench.host.home, environ={**bench.host.environ, "A_TOKEN": KEY})
    script = scripted(
        start(task("one")),
        finish(
            "r1 settled: failed", "SECRET: c.py holds [secret:A_TOKEN]", outcome="failed", summary="It holds a key."
        ),
        workers={"one": [bash(f"printf '%s' '{KEY[:9]}' '{KEY[9:]}' > c.py"), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server)
        server.check()
    assert (ended.outcome, ended.code) == ("failed", 3)
    assert KEY.encode() not in contents(ended.path)
    assert not (bench.repository / "c.py").exists()


@pytest.mark.parametrize("save", ["always", "off"])
async def test_B075_an_untracked_secret_file_is_in_no_workers_tree_and_not_in_the_log(bench: Bench, save: str):
    bench.host = type(bench.host)(home=bench.host.home, environ={**bench.host.environ, "A_TOKEN": KEY})
    (bench.repository / ".env").write_text(f"A_TOKEN={KEY}\n")
    (bench.repository / "mine.txt").write_text("uncommitted\n")
    script = scripted(
        on("<state>", ".env holds [secret:A_TOKEN]", calls=[plan(task("one")), *delegate("one")]),
        finish("r1 settled: completed"),
        workers={"one": [bash("ls -a; echo new > c.py"), bash("true", "mine.txt"), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, workspace__save=save)
        server.check()
    assert ended.outcome == "completed"
    assert ".env" not in ended.results("r1", "bash")[0].text
    assert traces(contents(ended.path)) == []
    assert (bench.read("c.py"), bench.read(".env")) == ("new\n", f"A_TOKEN={KEY}\n")


async def test_a_user_may_keep_secrets_in_files(bench: Bench):
    """Such as the password of a database for tests, which stands in a variable too."""
    bench.host = type(bench.host)(home=bench.host.home, environ={**bench.host.environ, "A_TOKEN": KEY})
    script = scripted(
        start(task("one")),
        finish("r1 settled: completed"),
        workers={"one": [write("c.py", f"K = '{KEY}'\n"), submit()]},
    )
    with ScriptedServer(script) as server:
        ended = await bench.run(server, secrets__files="keep")
    assert ended.outcome == "completed"
    assert bench.read("c.py") == f"K = '{KEY}'\n"
