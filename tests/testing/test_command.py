"""The server as a command."""

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.testing.talk import Talk, exchange
from xnagent.testing.server import main


@contextmanager
def running(tmp_path: object, *options: str):
    script = tmp_path / "script.toml"
    script.write_text('[[worker]]\ntext = "hello"\ntimes = 0\n', encoding="utf-8")
    command = [sys.executable, "-m", "xnagent.testing.server", str(script), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        server = SimpleNamespace(base_url=process.stdout.readline().strip(), process=process, problems="")
        try:
            yield server
        finally:
            os.kill(process.pid, signal.SIGINT)
            _, server.problems = process.communicate(timeout=10)


def test_the_dialect_decides_usage_and_refusals(tmp_path):
    with running(tmp_path, "--wire-dialect", "deepseek", "--window-tokens", "500") as server:
        status, _, raw = exchange(server, "chat", Talk("chat").user("Task").body())
        assert (status, "prompt_cache_hit_tokens" in json.loads(raw)["usage"]) == (200, True)
        orphan = Talk("chat").user("Task").results(("c9", "ok"))
        assert b"preceding message" in exchange(server, "chat", orphan.body())[2]
        assert b"maximum context length is 500" in exchange(server, "chat", Talk("chat").user("x" * 4000).body())[2]
        assert exchange(server, "messages", Talk("messages").user("Task").body())[0] == 200
    assert server.process.returncode == 1
    assert "preceding message" in server.problems


def test_chaos_is_the_same_in_each_process(tmp_path):
    seen = []
    for _ in range(2):
        with running(tmp_path, "--chaos-seed", "3", "--chaos-rate", "0.9") as server:
            statuses = []
            for number in range(12):
                try:
                    statuses.append(exchange(server, "chat", Talk("chat").user(f"Task {number}").body())[0])
                except (OSError, ValueError, http.client.HTTPException) as error:
                    statuses.append(type(error).__name__)
            seen.append(statuses)
    assert seen[0] == seen[1]
    assert len(set(seen[0])) > 2


def test_unknown_dialects_are_a_usage_error(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["script.toml", "--wire-dialect", "x"])
    assert caught.value.code == 2
    assert "deepseek" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "x =", "planner = 3", "colour = 1"])
def test_a_script_that_cannot_be_read_is_a_usage_error(tmp_path, capsys, text: str | None):
    path = tmp_path / "script.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as caught:
        main([str(path)])
    assert caught.value.code == 2
    assert "is no script that can be read" in capsys.readouterr().err
