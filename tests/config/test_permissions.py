"""Permission rules as settings: examples, layers, and what a repository may add."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xnagent.config import Settings
from xnagent.config.load import Sources, load_settings, stored_settings, with_settings
from xnagent.config.secrets import check_checks, mask_for
from xnagent.config.sources import Setting, from_assignment
from xnagent.core.permissions import Allowed, Asked, decide
from xnagent.errors import UsageError

PUSH = '{rule = "Bash(git push *)", match = ["git push origin"], not_match = ["git pull"]}'
DENY = ("permissions", "deny")


def place(folder: Path, *, user: str = "", project: str = "") -> Sources:
    for path, text in ((folder / ".config/xnagent/config.toml", user), (folder / "repo/.xnagent.toml", project)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Sources(environ={"HOME": str(folder)}, repository=folder / "repo")


def denied(loaded: Settings) -> list[str]:
    return [entry.rule for entry in loaded.permissions.deny]


def test_rules_are_texts_or_tables_with_examples(tmp_path: Path):
    loaded = load_settings(place(tmp_path, user=f'[permissions]\nallow = ["Read", {PUSH}]\n'))
    assert [entry.rule for entry in loaded.permissions.allow] == ["Read", "Bash(git push *)"]
    assert loaded.permissions.allow[1].match == ("git push origin",)
    assert stored_settings(loaded.model_dump_json(), session="s-1") == loaded


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('deny = ["Bahs"]', 'did you mean "Bash"'),
        ('deny = ["Bash(a; b)"]', "can never match"),
        ('allow = [{rule = "Bash(git *)", match = ["npm x"]}]', "does not match its example 'npm x'"),
        ('allow = [{rule = "Bash(git *)", match = ["git $(x)"]}]', "does not match its example"),
        ('deny = [{rule = "Bash(git *)", not_match = ["sh -c \'git x\'"]}]', "it matches its example"),
        ('deny = [{rule = "Read(src)", not_match = ["src/a"]}]', "it matches its example 'src/a'"),
        ('deny = [{rules = "Bash"}]', "permissions.deny"),
        ("deny = [1]", "permissions.deny"),
        ("max_denials = 0", "permissions.max_denials"),
    ],
)
def test_a_wrong_rule_is_an_error_that_names_its_file(tmp_path: Path, text: str, why: str):
    with pytest.raises(UsageError) as caught:
        load_settings(place(tmp_path, user=f"[permissions]\n{text}\n"))
    assert why in str(caught.value)
    assert "config.toml" in str(caught.value)


def test_T13_deny_rules_of_all_layers_hold_and_an_empty_list_takes_those_below_away(tmp_path: Path):
    sources = place(
        tmp_path,
        user='permissions.deny = ["Bash(a)"]\npermissions.allow = ["Bash(x)"]\n',
        project='permissions.deny = ["Bash(b)", "Bash(a)"]\n',
    )
    options = (
        Setting(path=DENY, value=["Bash(c)"], origin="--deny"),
        Setting(path=("permissions", "allow"), value=["Bash(y)"], origin="--allow"),
    )
    loaded = load_settings(Sources(environ=sources.environ, repository=sources.repository, options=options))
    assert denied(loaded) == ["Bash(a)", "Bash(b)", "Bash(c)"]
    assert [entry.rule for entry in loaded.permissions.allow] == ["Bash(y)"], "allow rules are replaced by later ones"
    cleared = Sources(
        environ=sources.environ, repository=sources.repository, options=[from_assignment("-s permissions.deny=[]"[3:])]
    )
    assert denied(load_settings(cleared)) == []


def test_a_resumed_session_keeps_its_rules_and_gets_more():
    begun = with_settings(Settings(), [Setting(path=DENY, value=["Bash(a)"], origin="x")])
    again = with_settings(stored_settings(begun.model_dump_json(), session="s-1"), [])
    assert denied(again) == ["Bash(a)"]
    assert denied(with_settings(again, [Setting(path=DENY, value=["Bash(b)"], origin="--deny")])) == [
        "Bash(a)",
        "Bash(b)",
    ]
    assert denied(with_settings(again, [Setting(path=DENY, value=[], origin="-s")])) == []


def test_a_repository_may_not_allow_but_narrow(tmp_path: Path):
    with pytest.raises(UsageError, match="a repository may not set"):
        load_settings(place(tmp_path, project='permissions.allow = ["Bash"]\n'))
    loaded = load_settings(
        place(tmp_path, project='permissions.narrow = ["Bash(npm *)"]\npermissions.max_denials = 9\n')
    )
    assert [entry.rule for entry in loaded.permissions.narrow] == ["Bash(npm *)"]
    assert loaded.permissions.max_denials == 9
    own = place(
        tmp_path,
        user='permissions.narrow = ["Bash(ls)"]\npermissions.max_denials = 2\n',
        project='permissions.narrow = ["Bash"]\npermissions.max_denials = 9\n',
    )
    loaded = load_settings(own)
    assert [entry.rule for entry in loaded.permissions.narrow] == ["Bash(ls)"]
    assert loaded.permissions.max_denials == 2


RULES = st.lists(st.sampled_from(["Bash(ls *)", "Bash(git *)", "Bash", "Read(src/**)", "Edit", "Grep(x)"]), max_size=2)
CALLS = [
    *(Asked(tool="bash", command=command) for command in ("ls", "git push", "ls && git log", "$(x)", "cat src/a")),
    *(Asked(tool=tool, paths=(path,)) for tool in ("read", "write", "grep") for path in ("src/a", "b", "x", ".")),
]


@given(RULES, RULES, RULES, RULES, RULES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_project_file_never_widens(tmp_path: Path, allow, deny, narrow, more, under):
    user = f"[permissions]\nallow = {allow}\ndeny = {deny}\nnarrow = {under}\n"
    without = load_settings(place(tmp_path, user=user)).permissions.to_rules()
    project = f"[permissions]\ndeny = {more}\nnarrow = {narrow}\n"
    with_it = load_settings(place(tmp_path, user=user, project=project)).permissions.to_rules()
    for asked in CALLS:
        if isinstance(decide(with_it, asked), Allowed):
            assert isinstance(decide(without, asked), Allowed), asked


def test_secrets_that_the_user_names_are_masked_and_short_ones_refused():
    chosen = Settings.model_validate({"secrets": {"env": ["ODD"]}, "store": {"url": "postgresql://u:pa55-word-1@h/x"}})
    mask = mask_for({"ODD": "ordinary words"}, chosen)
    assert mask.text("ordinary words, pa55-word-1") == "[secret:ODD], [secret:STORE_URL]"
    with pytest.raises(UsageError, match="SECRET_TOO_SHORT"):
        mask_for({"ODD": "short"}, chosen)
    assert mask_for({}, chosen).text("short") == "short"


def test_B075_a_check_that_holds_a_secret_is_refused_without_repeating_it():
    mask = mask_for({"A_TOKEN": "t0ken-t0ken-9"}, Settings())
    check_checks(["pytest -q"], mask)
    with pytest.raises(UsageError, match="CHECK_HOLDS_SECRET") as caught:
        check_checks(["curl -H t0ken-t0ken-9"], mask)
    assert "t0ken" not in str(caught.value)
