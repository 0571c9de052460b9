"""Hooks where people look: doctor and progress."""

from argparse import Namespace
from dataclasses import replace

import pytest

from tests.cli.harness import Shell
from xnagent.app.host import Host
from xnagent.cli.hosting import worker_environ
from xnagent.cli.told import milestone
from xnagent.config.load import Sources, hook_settings
from xnagent.core.hook_events import HookPoint, HookRan, HookVerdict
from xnagent.core.hooks import Hook

HOOKS = """
[[hooks]]
on = "before_tool"
match = "Bash(git push *)"
command = "true && /no/such/thing"
[[hooks]]
on = "before_run"
command = "X=1 no-such-guard --now"
on_error = "deny"
[[hooks]]
on = "after_run"
command = "$HOME/notify"
"""


def test_doctor_lists_hooks_and_what_they_start_without_starting_it(shell: Shell):
    place = shell.folder / ".config" / "xnagent" / "config.toml"
    place.parent.mkdir(parents=True)
    place.write_text(HOOKS)
    (done,) = shell.many(["doctor", "--output", "json"])
    found = {one["what"]: one for one in done.record["findings"] if one["what"].startswith("hook ")}
    assert list(found) == ["hook before_tool of Bash(git push *)", "hook before_run", "hook after_run"]
    assert [(one["is_fine"], one["is_needed"]) for one in found.values()] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert found["hook before_run"]["detail"] == "X=1 no-such-guard --now: no-such-guard is not found"


@pytest.mark.parametrize(
    ("on", "verdict", "code", "told"),
    [
        ("before_run", "passed", 0, None),
        ("before_tool", "denied", 2, None),
        ("before_run", "denied", 2, "hook before_run denied (exit code 2): guard: not today"),
        ("after_tool", "failed", 9, "hook after_tool failed (exit code 9): guard: not today"),
        ("session_end", "failed", None, "hook session_end failed (did not end): guard: not today"),
    ],
)
def test_progress_tells_refusals_and_faults(on: HookPoint, verdict: HookVerdict, code: int | None, told: str | None):
    assert milestone(HookRan(on=on, command="guard", verdict=verdict, exit_code=code, detail="not today")) == told


def test_processes_of_a_batch_have_the_hooks_of_the_batch(shell: Shell):
    host = Host(home=shell.home, environ=shell.environ, hooks=(Hook(on="after_run", command="notify 'a b'"),))
    environ = worker_environ(Namespace(config=[], set=[]), host)
    assert hook_settings(Sources(environ=environ)) == host.hooks
    assert worker_environ(Namespace(config=[], set=[]), replace(host, hooks=())) == host.environ
