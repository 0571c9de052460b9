"""The keyword arguments of `xnagent.open` are the command line's options."""

from argparse import Namespace
from pathlib import Path

import pytest

import xnagent
from xnagent.api.options import OWN, RENAMED, choose
from xnagent.cli.options import settings_of
from xnagent.config.flags import OPTION_KEYS

VALUES = {
    "model": "deepseek-chat",
    "worker_model": "gpt-5.1",
    "wire": "responses",
    "base_url": "http://127.0.0.1:1/v1",
    "api_key_env": "SOME_KEY",
    "checks": ["pytest -q", "ruff check"],
    "max_usd": 2.5,
    "max_tokens": 1000,
    "max_steps": None,
    "max_runs": 3,
    "deadline": 60,
    "parallel": 2,
    "apply": False,
    "bundle": "/tmp/bundles",
    "prefix": "strict",
    "sandbox": "off",
    "network": "on",
    "allow": ["Bash(ls)"],
    "deny": ["Read(.env)", "Tool(x)"],
    "max_denials": 4,
    "secret_env": ["OTHER"],
    "trust_project_skills": True,
}


def test_every_option_has_its_argument():
    names = {RENAMED.get(name, name) for name in xnagent.Options.__annotations__.keys() - OWN}
    assert names == set(OPTION_KEYS)
    assert {RENAMED.get(name, name) for name in VALUES} == set(OPTION_KEYS)


@pytest.mark.parametrize("name", sorted(VALUES))
def test_an_argument_sets_what_the_option_sets(name: str, tmp_path: Path):
    environ = {"HOME": str(tmp_path)}
    ours = choose(xnagent.Options(environ=environ, directory=tmp_path, home=tmp_path, **{name: VALUES[name]}))
    option = RENAMED.get(name, name)
    line = Namespace(config=[], set=[], **{option: VALUES[name]})
    theirs = settings_of(line, ours.host, repository=tmp_path)
    assert ours.settings() == theirs
    assert ours.settings() != choose(xnagent.Options(environ=environ, directory=tmp_path)).settings()


def test_any_setting_has_its_key_and_files_stand_below(tmp_path: Path):
    file = tmp_path / "own.toml"
    file.write_text("parallel = 7\n[spine]\npolicy = 'economic'\n")
    keys = {"spine.policy": "threshold", "limits.usd": "none", "checks": ("a", "b")}
    chosen = choose(
        xnagent.Options(environ={"HOME": str(tmp_path)}, directory=tmp_path, config=[file], settings=keys)
    ).settings()
    assert (chosen.parallel, chosen.spine.policy, chosen.limits.usd, chosen.checks) == (
        7,
        "threshold",
        None,
        ("a", "b"),
    )


def test_only_an_argument_takes_the_box_away(tmp_path: Path):
    file = tmp_path / "own.toml"
    file.write_text("[sandbox]\nmode = 'off'\n")
    plain = xnagent.Options(environ={"HOME": str(tmp_path)})
    options = xnagent.Options(**plain, directory=tmp_path, config=[file])
    for settings in (lambda: choose(options).settings(), lambda: choose(options).changed(choose(plain).settings())):
        with pytest.raises(xnagent.UsageError, match="CONFIG_NOT_ALLOWED"):
            settings()
