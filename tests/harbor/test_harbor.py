"""`harbor run` with our agent: Harbor's own command line, trial and verifier; only the container is a folder."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import ROOT, Shell, hanging, working
from tests.export.atif_schema import Trajectory
from xnagent.testing.server import ScriptedServer

HARBOR = os.environ.get("XNAGENT_HARBOR_PYTHON", "")
WHEEL = os.environ.get("XNAGENT_HARBOR_WHEEL", "")
"""With it, the agent is installed as Harbor's users have it; without, the container has it already."""
HERE = Path(__file__).parent
KEY = "sk-0123456789-do-not-tell"
SECONDS = 300
SKILL = "---\nname: port\ndescription: Port a package to another Python.\n---\nRead the notes first.\n"
JUDGE = """\
#!/bin/bash
top=$(dirname "$0")/..
grep -q 2 "$top/app/cfg.py"
echo $((1 - $?)) > "$top/logs/verifier/reward.txt"
"""
TASK = f"""\
version = "1.0"
[agent]
timeout_sec = {{seconds}}
[verifier]
timeout_sec = 60
[environment]
skills_dir = "/skills"
[[environment.mcp_servers]]
name = "plain"
transport = "stdio"
command = {json.dumps(sys.executable)}
args = ["-I", "-S", {json.dumps(str(ROOT / "tests" / "mcp_server.py"))}]
[[environment.mcp_servers]]
name = "old"
transport = "sse"
url = "http://127.0.0.1:9/sse"
"""

pytestmark = [
    pytest.mark.skipif(not HARBOR, reason="scripts/check-peers says with which Python Harbor itself is asked"),
    pytest.mark.timeout(SECONDS + 30),
]
CHOOSE = """
import pathlib
from xnagent.harbor import XnagentAgent
def chosen(name, **more):
    return XnagentAgent(logs_dir=pathlib.Path("logs"), model_name=name, **more)._model()
base = ["--base-url", "https://api.deepseek.com", "--api-key-env", "DEEPSEEK_API_KEY"]
assert chosen("deepseek/deepseek-flash") == (["--model", "deepseek-flash", *base], {"DEEPSEEK_API_KEY": "d"})
options, variables = chosen("openai/x", base_url="http://h/v1", model_api_format="anthropic_messages", worker_model="y")
assert options[:6] == ["--model", "x", "--worker-model", "y", "--base-url", "http://h/v1"], options
assert options[6:8] == ["--wire", "messages"], options
try:
    chosen("deepseek-flash")
except ValueError as error:
    assert "PROVIDER/NAME" in str(error)
else:
    raise AssertionError("the key of one provider would go to another")
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What Harbor wrote about it."""

    folder: Path
    told: str

    @property
    def result(self) -> dict[str, Any]:
        return json.loads((self.folder / "result.json").read_text())

    @property
    def trajectory(self) -> Trajectory:
        return Trajectory.model_validate_json((self.folder / "agent" / "trajectory.json").read_text())


def make_task(task: Path, *, seconds: int) -> None:
    files = {
        "environment/Dockerfile": "FROM scratch\n",
        "environment/app/cfg.py": "a = 1\n",
        "environment/skills/port/SKILL.md": SKILL,
        "instruction.md": 'Set a to 2 in cfg.py, and don\'t change "anything" else: $HOME.\n',
        "task.toml": TASK.format(seconds=seconds),
        "tests/test.sh": JUDGE,
    }
    for name, text in files.items():
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)


def environment(folder: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": f"{ROOT}:{HERE}",
        "HARBOR_TELEMETRY": "0",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def run(folder: Path, server: ScriptedServer, *options: str, seconds: int = 120) -> Trial:
    programs = folder / "programs"
    programs.mkdir(parents=True)
    installing = ["--agent-kwarg", f"wheel={WHEEL}"] if WHEEL else ["--agent-kwarg", "skip_install=true"]
    if not WHEEL:
        (programs / "xnagent").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m xnagent "$@"\n')
        (programs / "xnagent").chmod(0o755)
    (programs / "python3").symlink_to(sys.executable)
    agent = ["--agent", "xnagent.harbor:XnagentAgent", "-m", "openai/scripted", "--base-url", server.base_url]
    task = folder / "task"
    make_task(task, seconds=seconds)
    where = ["-p", str(task), "--jobs-dir", str(folder / "jobs"), "-y"]
    box = ["--env", "folder_environment:FolderEnvironment"]
    environ = {
        **environment(folder),
        "XNAGENT_TEST_PATH": f"{programs}:{os.environ['PATH']}",
        "OPENAI_API_KEY": KEY,
    }
    line = [str(Path(HARBOR).with_name("harbor")), "run", *where, *agent, *box, *installing, *options]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder)
    (result,) = (folder / "jobs").glob("*/task__*/result.json")
    return Trial(folder=result.parent, told=done.stdout + done.stderr)


def test_harbor_runs_the_agent_and_has_its_trajectory_its_usage_and_a_reward(tmp_path: Path):
    with ScriptedServer(working()) as server:
        trial = run(tmp_path, server, "--agent-kwarg", "arguments=--max-usd 2 --deadline 90")
        bodies = [body.decode() for body in server.bodies]
        keys = {exchange.headers["Authorization"] for exchange in server.exchanges}
    result = trial.result
    assert result["exception_info"] is None, trial.told
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert result["agent_info"]["name"] == "xnagent"
    assert result["agent_info"]["version"] == "0.1.0"
    used = result["agent_result"]
    assert used["n_input_tokens"] > used["n_cache_tokens"] > 0
    assert used["n_output_tokens"] > 0
    assert used["model_usage"]["scripted"]["n_input_tokens"] == used["n_input_tokens"]
    assert (used["metadata"]["outcome"], used["metadata"]["verified"]) == ("completed", True)
    trajectory = trial.trajectory
    whole = trajectory.final_metrics.extra["whole_session"]
    assert (whole["input_tokens"], whole["output_tokens"]) == (used["n_input_tokens"], used["n_output_tokens"])
    assert keys == {f"Bearer {KEY}"}
    assert "don't change" in trajectory.model_dump_json()
    assert any("mcp__plain__say" in body for body in bodies)
    assert any("Port a package to another Python." in body for body in bodies)
    assert "does not speak sse" in (trial.folder / "trial.log").read_text()
    kept = [path for path in trial.folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert kept == []


def test_what_was_merged_reaches_a_checkout_although_the_session_did_not_complete(tmp_path: Path):
    app = Shell(folder=tmp_path, extra={})
    (tmp_path / "task" / "environment").mkdir(parents=True)
    script = working()
    script["planner"][-1]["calls"][0]["arguments"]["outcome"] = "failed"
    make_task(tmp_path / "task", seconds=120)
    checkout = tmp_path / "task" / "environment" / "app"
    app.repository.symlink_to(checkout)
    for line in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "begin"]):
        app.git(*line)
    with ScriptedServer(script) as server:
        trial = run(tmp_path, server)
    assert trial.result["exception_info"] is None, trial.told
    assert trial.result["agent_result"]["metadata"]["outcome"] == "partial"
    assert trial.result["verifier_result"]["rewards"] == {"reward": 1.0}


@pytest.mark.parametrize(
    ("status", "error", "exception"),
    [
        (401, "invalid_api_key", "AgentAuthenticationError"),
        (404, "model_not_found", "ModelNotFoundError"),
    ],
)
def test_a_providers_fault_is_harbors_own_error(tmp_path: Path, status: int, error: str, exception: str):
    fault = {"status": status, "body": {"error": {"code": error, "message": "No."}}}
    with ScriptedServer({"planner": [{"fault": fault, "times": 0}]}) as server:
        trial = run(tmp_path, server)
    assert trial.result["exception_info"]["exception_type"] == exception
    assert trial.result["agent_result"]["metadata"]["exit_code"] == 9


def test_a_key_goes_to_its_own_provider_only(tmp_path: Path):
    environ = {**environment(tmp_path), "DEEPSEEK_API_KEY": "d", "OPENAI_API_KEY": "o"}
    done = subprocess.run([HARBOR, "-c", CHOOSE], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_a_session_that_harbor_cuts_off_leaves_its_trajectory(tmp_path: Path):
    with ScriptedServer(hanging()) as server:
        trial = run(tmp_path, server, seconds=8)
    assert trial.result["exception_info"]["exception_type"] == "AgentTimeoutError"
    assert [step.source for step in trial.trajectory.steps][:1] == ["system"]
    assert trial.result["verifier_result"]["rewards"] == {"reward": 0.0}
