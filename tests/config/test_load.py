"""Where settings come from, which one wins, and what is said about a wrong one."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xnagent.config import Settings
from xnagent.config.keys import dotted, known_keys, model_keys, parse_key
from xnagent.config.load import Sources, load_settings, store_settings, stored_settings, with_settings
from xnagent.config.sources import Setting, from_assignment, from_environment, from_file, from_table
from xnagent.core.limits import Limits
from xnagent.core.rebase import RebasePolicy
from xnagent.core.retry import RetryPolicy
from xnagent.errors import UsageError

NOBODY = {"HOME": "/nonexistent"}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(sources: Sources) -> str:
    with pytest.raises(UsageError) as caught:
        load_settings(sources)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def option(text: str) -> Sources:
    return Sources(environ=NOBODY, options=[from_assignment(text)])


def test_the_shipped_defaults_are_the_defaults():
    settings = load_settings(Sources(environ=NOBODY))
    assert settings == Settings()
    assert settings.spine.to_policy() == RebasePolicy()
    assert settings.limits.to_limits() == Limits()
    assert settings.retry.to_policy() == RetryPolicy()


def test_each_source_wins_over_the_one_before(tmp_path: Path):
    user = write(tmp_path / ".config" / "xnagent" / "config.toml", "parallel = 9\n")
    repository = tmp_path / "repo"
    write(repository / ".xnagent.toml", "parallel = 8\n")
    first = write(tmp_path / "first.toml", "parallel = 7\n")
    second = write(tmp_path / "second.toml", "parallel = 6\n")
    environ = {"HOME": str(tmp_path)}
    everything = {
        "environ": {**environ, "XNAGENT_PARALLEL": "5"},
        "repository": repository,
        "files": [first, second],
        "options": [from_assignment("parallel=3"), from_assignment("parallel=2")],
    }
    assert user.exists()
    seen = []
    for left_out in ((), ("options",), ("environ",), ("files",), ("repository",)):
        for name in left_out:
            everything.pop(name) if name != "environ" else everything.update(environ=environ)
        seen.append(load_settings(Sources(**everything)).parallel)
    assert seen == [2, 5, 6, 8, 9]
    elsewhere = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "none")}
    relative = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "none"}
    assert load_settings(Sources(environ=elsewhere)).parallel == 4
    assert load_settings(Sources(environ=relative)).parallel == 9


def test_what_a_text_means_depends_on_the_key():
    cases = {
        "limits.runs=none": ("limits", "runs", None),
        "limits.usd=0": ("limits", "usd", 0.0),
        "worker.context.strategy=none": ("worker", "context", "strategy", "none"),
        'checks=["a", "b"]': ("checks", ("a", "b")),
        "checks=pytest -q": ("checks", ("pytest -q",)),
        "checks=[ -f x ]": ("checks", ("[ -f x ]",)),
        "checks=": ("checks", ()),
        "apply=false": ("apply", False),
        "planner.model.name=4": ("planner", "model", "name", "4"),
        "planner.model.name=": ("planner", "model", "name", None),
    }
    for text, (*path, wanted) in cases.items():
        value: object = load_settings(option(text))
        for name in path:
            value = getattr(value, name)
        assert value == wanted, text


def test_a_models_name_may_hold_dots():
    key = parse_key("models.gpt-5.1.price.input_usd")
    assert key == ("models", "gpt-5.1", "price", "input_usd")
    assert dotted(key) == 'models."gpt-5.1".price.input_usd'
    assert load_settings(option("models.gpt-5.1.window_tokens=9")).models["gpt-5.1"].window_tokens == 9


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("limits.usd=much", '"limits.usd"'),
        ("limits.usd=nan", '"limits.usd"'),
        ("limits.steps=0", '"limits.steps"'),
        ("parallel=true", '"parallel"'),
        ("parallel=1.5", '"parallel"'),
        ("prefix=loud", '"prefix"'),
        ("spine.soft_share=0.95", "soft_share must not be above hard_share"),
        ("spine.soft_share=60", '"spine.soft_share"'),
        ("sandbox=off", "its keys: cpu_seconds, debug, disk_bytes, memory_bytes, mode, network"),
        ("parallel.x=1", 'did you mean "parallel"'),
        ("planner.model.base_url=localhost", "http://"),
        ("models.x.windw_tokens=1", 'did you mean "models.x.window_tokens"'),
        ("paralell", 'did you mean "parallel"'),
        ("parallel", "-s parallel=VALUE"),
        ("", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
    ],
)
def test_a_wrong_value_is_told_with_key_and_origin(text: str, told: str):
    with pytest.raises(UsageError) as caught:
        load_settings(option(text))
    assert told in str(caught.value)
    assert "-s" in str(caught.value)


@pytest.mark.parametrize("key", ["planner.model.api_key_env", "planner.model.base_url"])
def test_a_key_in_the_wrong_place_is_not_repeated(key: str):
    assert "sk-secret" not in refusal(
        option(f"{key}=https://sk-secret:sk-secret@host" if "url" in key else f"{key}=sk-secret")
    )


@given(st.sampled_from(sorted(known_keys())), st.data())
def test_unknown_keys_are_refused_with_the_nearest_known_one(path: tuple[str, ...], data: st.DataObject):
    name = path[-1]
    at = data.draw(st.integers(0, len(name) - 1))
    assume(name[at] != "_")
    typo = (*path[:-1], f"{name[:at]}{name[at]}{name[at:]}")
    for settle in (
        lambda: from_assignment(f"{'.'.join(typo)}=1"),
        lambda: from_environment({f"XNAGENT_{'__'.join(typo).upper()}": "1"}),
        lambda: from_table({typo[-1]: 1}, typo[:-1], origin="jobs.jsonl:3"),
    ):
        with pytest.raises(UsageError) as caught:
            settle()
        assert f'unknown key "{dotted(typo)}"; did you mean "{dotted(path)}"?' in str(caught.value)


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters='"\\', exclude_categories=["C"])), min_size=1))
def test_no_unknown_key_gets_through(parts: list[str]):
    path = tuple(parts)
    if path in known_keys() or path[0] == "models":
        return
    with pytest.raises(UsageError):
        from_table({"x": 1}, path, origin="somewhere")


def test_a_file_names_itself_and_the_place(tmp_path: Path):
    cases = {
        "a = \n": "line 1",
        "parallel = 1\nparallel = 2\n": "line 2",
        "[planer.model]\nname = 'x'\n": '"planner.model.name"',
        "[planer]\n": "planer",
        '"planner.model.name" = "x"\n': '"planner.model.name"',
        "planner = 5\n": "its keys: context.strategy, model.",
        "x = " + "[" * 5_000: "",
        ".".join("x" * 3_000) + " = 1": "unknown key",
    }
    for text, told in cases.items():
        path = write(tmp_path / "x.toml", text)
        message = refusal(Sources(environ=NOBODY, files=[path]))
        assert str(path) in message
        assert told in message
    path.write_bytes(b"\xff\xfe")
    assert str(path) in refusal(Sources(environ=NOBODY, files=[path]))
    path.write_bytes(b"\xef\xbb\xbfparallel = 3\n[planner]\n[models]\n")
    assert [setting.value for setting in from_file(path)] == [3]
    assert str(tmp_path) in refusal(Sources(environ=NOBODY, files=[tmp_path]))


def test_variables_that_are_empty_or_not_ours_are_no_settings():
    environ = {"XNAGENT_PARALLEL": "", "XNAGENT_HOME": "/x", "XNAGENT_TEST_ANYTHING": "1", "OTHER": "1"}
    assert from_environment(environ) == []


@pytest.mark.parametrize(
    "text",
    [
        "planner.model.base_url = 'http://x'",
        "planner.model.name = 'x'",
        "planner.model.fallback = ['x']",
        "worker.model.api_key_env = 'X'",
        "sandbox.mode = 'off'",
        "permissions.allow = ['*']",
        "secrets.files = 'keep'",
        "skills.project = true",
        "worker.context.strategy = 'summary'",
        "timeouts.total_seconds = 9",
        "[models.x]\nbase_url = 'http://x'",
    ],
)
def test_a_repository_may_not_widen_anything(tmp_path: Path, text: str):
    path = write(tmp_path / ".xnagent.toml", text + "\n")
    message = refusal(Sources(environ=NOBODY, repository=tmp_path))
    assert str(path) in message
    assert "a repository may not set" in message


def test_a_repository_may_narrow(tmp_path: Path):
    top = "parallel = 99\nprefix = 'off'\napply = true\nchecks = ['make']\n"
    text = f"{top}[permissions]\ndeny = ['Bash(b)']\n[limits]\nusd = 9\nruns = 5\n"
    write(tmp_path / "repo" / ".xnagent.toml", text)
    mine = "apply = false\nprefix = 'strict'\n[permissions]\ndeny = ['Bash(a)']\n[limits]\nusd = 2\n"
    write(tmp_path / ".config" / "xnagent" / "config.toml", mine)
    settings = load_settings(Sources(environ={"HOME": str(tmp_path)}, repository=tmp_path / "repo"))
    assert (settings.parallel, settings.prefix, settings.apply) == (4, "strict", False)
    assert [entry.rule for entry in settings.permissions.deny] == ["Bash(a)", "Bash(b)"]
    assert (settings.limits.usd, settings.limits.runs, settings.checks) == (2, 5, ("make",))


def test_t24_a_repository_may_turn_its_instructions_off_and_add_no_names(tmp_path: Path):
    text = "project.instructions = ['TASKS.md', 'CLAUDE.md']\n"
    write(tmp_path / ".xnagent.toml", text)
    assert load_settings(Sources(environ=NOBODY, repository=tmp_path)).project.instructions == ("CLAUDE.md",)
    write(tmp_path / ".xnagent.toml", "project.instructions = []\n")
    assert load_settings(Sources(environ=NOBODY, repository=tmp_path)).project.instructions == ()


def test_a_repositorys_wrong_value_is_told_not_compared(tmp_path: Path):
    for text in (
        "parallel = 'x'",
        "limits.usd = [1]",
        "prefix = 5",
        "permissions.deny = 1",
        "apply = 3",
        "limits.runs = 0",
    ):
        write(tmp_path / ".xnagent.toml", text)
        assert ".xnagent.toml" in refusal(Sources(environ=NOBODY, repository=tmp_path))


def test_settings_are_read_back_as_they_were_stored():
    settings = load_settings(option("models.m.options.effort=high"))
    assert stored_settings(settings.model_dump_json(), session="s-1") == settings
    with pytest.raises(UsageError, match="s-1"):
        stored_settings('{"new_key": 1}', session="s-1")


def test_changes_replace_single_values():
    settings = with_settings(Settings(), [Setting(path=("limits", "usd"), value=2, origin="here")])
    assert settings.limits == Settings().limits.model_copy(update={"usd": 2.0})
    with pytest.raises(UsageError, match="here"):
        with_settings(settings, [Setting(path=("limits", "usd"), value="x", origin="here")])


def names(settings: Settings) -> tuple[object, ...]:
    return settings.planner.model.name, settings.planner.model.fallback


@pytest.mark.parametrize(
    ("text", "value"),
    [('["b", "c"]', ("b", "c")), ("b", ("b",)), ("none", None), ("[]", ())],
)
def test_a_list_of_fallbacks_is_read_from_everywhere(tmp_path: Path, text: str, value: object):
    assert load_settings(option(f"planner.model.fallback={text}")).planner.model.fallback == value
    environ = {**NOBODY, "XNAGENT_PLANNER__MODEL__FALLBACK": text}
    assert load_settings(Sources(environ=environ)).planner.model.fallback == value
    stored = load_settings(option(f"worker.model.fallback={text}"))
    assert stored_settings(stored.model_dump_json(), session="s-1") == stored


def test_a_model_is_not_its_own_fallback_and_is_named_once(tmp_path: Path):
    for text, told in (('name = "a"\nfallback = ["b", "a"]', "leave it out"), ('fallback = ["b", "b"]', "twice")):
        path = write(tmp_path / "x.toml", f"[planner.model]\n{text}\n")
        message = refusal(Sources(environ=NOBODY, files=[path]))
        assert "planner.model" in message
        assert told in message


def test_a_model_that_is_named_for_this_command_leaves_its_place_in_the_list(tmp_path: Path):
    """`--model b` on top of a file with a, then b, c: b, then c."""
    path = write(tmp_path / "x.toml", '[planner.model]\nname = "a"\nfallback = ["b", "c"]\n')
    named = Setting(path=("planner", "model", "name"), value="b", origin="--model")
    settings = load_settings(Sources(environ=NOBODY, files=[path], options=[named]))
    assert names(settings) == ("b", ("c",))
    begun = load_settings(Sources(environ=NOBODY, files=[path]))
    assert names(with_settings(begun, [named])) == ("b", ("c",))
    both = [named, Setting(path=("planner", "model", "fallback"), value=["b"], origin="-s")]
    with pytest.raises(UsageError, match="leave it out"):
        with_settings(begun, both)


def test_every_key_of_a_model_can_be_named():
    assert {("window_tokens",), ("price", "input_usd"), ("options",)} <= set(model_keys())


DATABASE = "postgresql://me:hunter-22@h/"


def test_the_store_is_chosen_by_the_host_and_the_nearest_source_wins(tmp_path: Path):
    environ = {"HOME": str(tmp_path)}
    assert store_settings(Sources(environ=environ)).url == ""
    write(tmp_path / ".config" / "xnagent" / "config.toml", f'parallel = 2\n[store]\nurl = "{DATABASE}1"\n')
    assert store_settings(Sources(environ=environ)).url == f"{DATABASE}1"
    files = [write(tmp_path / "more.toml", f'[store]\nurl = "{DATABASE}2"\n')]
    assert store_settings(Sources(environ=environ, files=files)).url == f"{DATABASE}2"
    environ["XNAGENT_STORE__URL"] = f"{DATABASE}3"
    assert store_settings(Sources(environ=environ, files=files)).url == f"{DATABASE}3"
    options = [from_assignment(f"store.url={DATABASE}4")]
    assert store_settings(Sources(environ=environ, files=files, options=options)).url == f"{DATABASE}4"


def test_a_repository_may_not_choose_the_store(tmp_path: Path):
    write(tmp_path / ".xnagent.toml", f'[store]\nurl = "{DATABASE}"\n')
    told = refusal(Sources(environ=NOBODY, repository=tmp_path))
    assert 'a repository may not set "store.url"' in told
    assert "hunter" not in told


def test_the_address_of_the_store_is_neither_stored_with_a_session_nor_shown():
    settings = load_settings(option(f"store.url={DATABASE}db"))
    assert settings.store.url == f"{DATABASE}db"
    assert "hunter" not in settings.model_dump_json() + repr(settings)
    assert stored_settings(settings.model_dump_json(), session="s-1") == Settings()
