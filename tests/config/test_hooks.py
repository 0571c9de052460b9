"""Hooks as settings: where they may stand, and what cannot be meant."""

from pathlib import Path

import pytest

from tests.config.test_permissions import place
from xnagent.config import Settings
from xnagent.config.hooks import in_toml
from xnagent.config.load import Sources, hook_settings, load_settings, stored_settings
from xnagent.config.sources import from_assignment
from xnagent.core.hooks import Hook
from xnagent.core.permissions import parse_rule
from xnagent.errors import UsageError

GUARD = '[[hooks]]\non = "before_tool"\nmatch = "Bash(git push *)"\ncommand = "guard"\non_error = "deny"\n'


def test_hooks_stand_in_the_users_file_and_are_never_stored_with_a_session(tmp_path: Path):
    sources = place(tmp_path, user=GUARD)
    assert hook_settings(sources) == (
        Hook(on="before_tool", command="guard", rule=parse_rule("Bash(git push *)"), must_pass=True),
    )
    loaded = load_settings(sources)
    assert len(loaded.hooks) == 1
    assert stored_settings(loaded.model_dump_json(), session="s-1").hooks == ()


def test_a_single_table_is_told_how_a_list_is_written(tmp_path: Path):
    with pytest.raises(UsageError, match=r"config.toml: hooks are a list; begin each with \[\[hooks\]\]"):
        load_settings(place(tmp_path, user=GUARD.replace("[[hooks]]", "[hooks]")))
    with pytest.raises(UsageError, match=r"hooks.0.on\": field required"):
        load_settings(Sources(environ={"XNAGENT_HOOKS": "x"}))


def test_a_repository_may_not_set_hooks(tmp_path: Path):
    sources = place(tmp_path, project=GUARD)
    with pytest.raises(UsageError, match='a repository may not set "hooks"; put it into the user file'):
        load_settings(sources)
    assert hook_settings(sources) == ()


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('on = "before_lunch"\ncommand = "x"', "before_lunch"),
        ('on = "before_run"', "command"),
        ('on = "before_run"\ncommand = "x"\nmatch = "Bash"', "match is for before_tool and after_tool"),
        ('on = "after_tool"\ncommand = "x"\non_error = "deny"', "after_tool can deny nothing"),
        ('on = "before_tool"\ncommand = "x"\nmatch = "Bahs"', 'did you mean "Bash"'),
        ('on = "before_run"\ncommand = "x"\nseconds = 0', "seconds"),
        ('on = "before_run"\ncommand = "./hooks/x.sh"', "would run a file of the repository"),
        ('on = "before_run"\ncommand = "scripts/x"', "name the program by its whole path"),
        ('on = "before_run"\ncommand = "x"\nwhen = "now"', "when"),
    ],
)
def test_a_hook_that_cannot_be_meant_is_an_error_that_names_its_file(tmp_path: Path, table: str, why: str):
    sources = place(tmp_path, user=f"[[hooks]]\n{table}\n")
    for load in (load_settings, hook_settings):
        with pytest.raises(UsageError) as caught:
            load(sources)
        assert why in str(caught.value)
        assert "config.toml" in str(caught.value)


@pytest.mark.parametrize("command", ["/usr/bin/x a/b", "~/bin/x", "$HOME/x", "x ./a", "echo a/b | x"])
def test_programs_by_their_whole_path_or_from_the_path_may_be_named(command: str):
    assert Settings.model_validate({"hooks": [{"on": "before_run", "command": command}]}).hooks[0].command == command


def test_hooks_reach_another_process_whole():
    hooks = (
        Hook(on="before_tool", command='x "a\\b" {c} \u00e9\n', rule=parse_rule("Edit(src/**)"), must_pass=True),
        Hook(on="session_end", command="y", seconds=2.5, env=("TOKEN",)),
    )
    sources = Sources(environ={"XNAGENT_HOOKS": in_toml(hooks)})
    assert hook_settings(sources) == hooks
    options = [from_assignment("hooks=[]")]
    assert hook_settings(Sources(environ=sources.environ, options=options)) == ()
