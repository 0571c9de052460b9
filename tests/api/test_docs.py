"""The programs in docs/python.md run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.bench import call, finish, make_repository, on, start, submit, task
from xnagent.testing.script import Script, Section
from xnagent.testing.server import ScriptedServer

ROOT = Path(__file__).resolve().parents[2]


def planner(match: str, *, name: str) -> Section:
    rules = (start(task(name)), finish("settled", summary="It is documented."))
    return Section(rules=rules, match=match, wait="Waiting.")


def test_the_programs_of_the_page_run(tmp_path: Path):
    page = (ROOT / "docs" / "python.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    script = Script(
        planner=(planner("docstring", name="a"), planner("ticket 7", name="b")),
        worker=(
            Section(rules=(submit(),), match='<task id="a"'),
            Section(rules=(on(calls=[call("find_ticket", number=7)]), submit("Docstrings")), match='<task id="b"'),
        ),
    )
    with ScriptedServer(script) as server:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "DEEPSEEK_API_KEY": "a-made-up-key-4711",
            "XNAGENT_PLANNER__MODEL__BASE_URL": server.base_url,
        }
        line = [sys.executable, "-W", "error", "-c", "\nprint('---')\n".join(programs)]
        repository = make_repository(tmp_path / "repo")
        done = subprocess.run(
            line, cwd=repository, env=environ, capture_output=True, text=True, timeout=50, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    first, second, third = (part.strip().splitlines() for part in done.stdout.split("---"))
    assert first[0] == "1 session_started"
    assert first[-1] == "completed It is documented."
    assert second[0].endswith(" interrupted")
    assert second[1] in {"m2", "None"}  # the scripted session may be over by then
    assert second[2:] == ["completed"]
    assert third == ["Docstrings"]
