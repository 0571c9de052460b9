"""The public API is listed and small, and importing it is quick, quiet and harmless."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import xnagent

ROOT = Path(__file__).resolve().parent.parent
MAX_NAMES = 25
MAX_IMPORT_SECONDS = 0.100
HEAVY = {"anyio", "asyncio", "httpx", "httpx_sse", "jsonpatch", "pydantic", "sqlite3", "ssl"}

EXPECTED = [
    "Event",
    "Events",
    "Final",
    "FunctionTool",
    "Options",
    "Session",
    "StoreBusyError",
    "StoreError",
    "ToolContext",
    "UsageError",
    "WorkspaceError",
    "XnagentError",
    "__version__",
    "open",
    "tool",
]

WATCHED_IMPORT = """
import json, sys
seen = []
def watch(event, args):
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        seen.append(str(args[0]))
    elif event.startswith(("socket.", "subprocess.", "os.mkdir", "os.system", "os.putenv")):
        seen.append(event)
sys.addaudithook(watch)
import xnagent
print(json.dumps({"seen": seen, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def run_python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(cwd),
        "TMPDIR": str(cwd),
    }
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=30, check=True)


def json_of(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    return json.loads(done.stdout)


def fastest_seconds(code: str, cwd: Path) -> float:
    def once() -> float:
        start = time.perf_counter()
        run_python(code, cwd)
        return time.perf_counter() - start

    return min(once() for _ in range(5))


def test_all_is_exact():
    assert sorted(xnagent.__all__) == EXPECTED


def test_all_is_small_and_sorted():
    assert len(xnagent.__all__) <= MAX_NAMES
    assert len(set(xnagent.__all__)) == len(xnagent.__all__)


def test_every_listed_name_is_there():
    missing = [name for name in xnagent.__all__ if not hasattr(xnagent, name)]
    assert missing == []


def test_dir_shows_every_listed_name():
    assert set(xnagent.__all__) <= set(dir(xnagent))


def test_import_prints_nothing_and_creates_nothing(tmp_path: Path):
    done = run_python("import xnagent", tmp_path)
    assert (done.stdout, done.stderr) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_import_opens_no_file_for_writing_and_loads_nothing_heavy(tmp_path: Path):
    bare = json_of(run_python(WATCHED_IMPORT.replace("import xnagent\n", ""), tmp_path))
    done = json_of(run_python(WATCHED_IMPORT, tmp_path))
    assert done["seen"] == []
    assert HEAVY & (set(done["modules"]) - set(bare["modules"])) == set()


def test_import_is_quick(tmp_path: Path):
    bare = fastest_seconds("pass", tmp_path)
    ours = fastest_seconds("import xnagent", tmp_path)
    assert ours - bare < MAX_IMPORT_SECONDS
