"""What rules decide."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xnagent.core.permissions import (
    Allowed,
    Asked,
    Denied,
    RuleError,
    Rules,
    check_examples,
    decide,
    hides,
    parse_allow_rule,
    parse_rule,
)


def rules(*, allow=(), narrow=(), deny=()) -> Rules:
    return Rules(
        allow=tuple(map(parse_allow_rule, allow)),
        narrow=tuple(map(parse_allow_rule, narrow)),
        deny=tuple(map(parse_rule, deny)),
    )


def ran(chosen: Rules, command: str) -> bool:
    return isinstance(decide(chosen, Asked(tool="bash", command=command)), Allowed)


def touched(chosen: Rules, tool: str, path: str) -> bool:
    return isinstance(decide(chosen, Asked(tool=tool, paths=(path,))), Allowed)


NPM = rules(allow=["Bash(npm run *)", "Bash(git status:*)", "Bash(ls)", "Bash(find *)", "Bash(cat *)"])


@pytest.mark.parametrize(
    ("command", "is_allowed"),
    [
        ("npm run test", True),
        ("npm run", True),
        ("n'p'm r\\un test", True),
        ("npm run a && git status -s | ls", True),
        ("npm run a; rm -rf /", False),
        ("npm run a\nrm -rf /", False),
        ("npm run a & rm -rf /", False),
        ("npm runner", False),
        ("git statusx", False),
        ("ls", True),
        ("ls -l", False),
        ("/tmp/npm run x", False),
        ("./npm run x", False),
        ("npm run $X", True),
        ("npm run $(x)", False),
        ("npm run `x`", False),
        ("npm run <(x)", False),
        ("npm run > out.txt 2>&1", True),
        ("npm run > /etc/passwd", False),
        ("CI=1 npm run x", True),
        ("PATH=/x npm run x", False),
        ("LD_PRELOAD=./x npm run x", False),
        ("GIT_DIR=x git status", False),
        ("timeout 5 env A=1 npm run x", True),
        ("sh -c 'npm run x'", True),
        ("sh -c 'npm run x; rm x'", False),
        ("find . -name x", True),
        ("find . -exec rm {} ;", False),
        ("find . -exec cat {} ';'", True),
        ("find . -exec rm {} \\;", False),
        ("ls | xargs rm", False),
        ("eval npm run x", False),
        ("cat <<'E'\nrm -rf /\nE", True),
        ("cat <<E\n$(rm -rf /)\nE", False),
        ("cat <<'E' | sh\nrm -rf /\nE", False),
        ("sudo npm run x", False),
        ("", False),
        ("X=1", False),
    ],
)
def test_an_allow_rule_matches_words_not_text(command: str, is_allowed: bool):
    assert ran(NPM, command) is is_allowed


PUSH = rules(deny=["Bash(git push *)", "Bash(rm -rf *)", "Read(.env)", "Read(keys/**)", "Edit(src/**)"])


@pytest.mark.parametrize(
    ("command", "is_allowed"),
    [
        ("git push", False),
        ("git push origin main", False),
        ("git -C x push", False),
        ("git --no-pager -c a=b push", False),
        ("/usr/bin/git push", False),
        ("g\\it 'push'", False),
        ("true && git push", False),
        ("$(git push)", False),
        ("echo `git push`", False),
        ("if true; then git push; fi", False),
        ("(git push)", False),
        ("f() { git push; }; f", False),
        ("bash -c 'git push'", False),
        ("bash -c \"bash -c 'git push'\"", False),
        ("echo 'git push' | sh", False),
        ("sh <<E\ngit push\nE", False),
        ("eval 'git push'", False),
        ("eval g''it push", False),
        ("sudo nohup timeout 5 git push", False),
        ("ls | xargs git push", False),
        ("find . -exec git push \\;", False),
        ("X=1 git push", False),
        ("git {push,origin}", False),
        ("for x in a; do rm -rf $x; done", False),
        ("echo git push", True),
        ("git commit -m push", True),
        ("git log --grep='git push'", True),
        ("git pushd", True),
        ("cat .env", False),
        ("cat ./a/.env", False),
        ("grep x < .env", False),
        ("ls keys", False),
        ("cat keys/a", False),
        ("tar --file=keys/x -t", False),
        ("python -c \"$(echo)open('.env')\"", False),
        ("cat src/a.py", True),
        ("rm src/a.py", False),
        ("sed -i s/a/b/ src/a.py", False),
        ("echo x > src/a.py", False),
        ("echo x >> lib/a.py", True),
    ],
)
def test_a_deny_rule_matches_wherever_it_can_be_seen(command: str, is_allowed: bool):
    assert ran(PUSH, command) is is_allowed


def test_deny_comes_first_and_says_what_it_matched():
    both = rules(allow=["Bash(git *)"], deny=["Bash(git push)"])
    decision = decide(both, Asked(tool="bash", command="git status && git push --force"))
    assert decision == Denied(rule="Bash(git push)", how="git push --force", is_forbidden=True)
    assert ran(both, "git status")
    assert decide(both, Asked(tool="bash", command="ls")) == Denied(
        rule="Bash(git *)", how="`ls` is not among them", is_forbidden=False
    )


def test_a_rule_without_brackets_is_about_the_whole_tool():
    assert ran(rules(allow=["bash"]), "$(anything)")
    assert ran(rules(allow=["Bash(*)", "Bash(ls)"]), "$(anything)")
    assert not ran(rules(deny=["BASH"]), "ls")
    assert rules(deny=["Read"]).taken_away("grep") is not None
    assert rules(deny=["Read(x)"]).taken_away("read") is None
    assert ran(rules(allow=["Read(src/**)"]), "rm x"), "a rule is only about its own tools"


def test_path_rules_cover_their_tools():
    chosen = rules(allow=["Edit(src/**)", "Read(src/**)"], deny=["Read(src/keys/**)", "Write(src/gen.py)"])
    assert touched(chosen, "write", "src/a.py")
    assert touched(chosen, "edit", "src/a.py")
    assert not touched(chosen, "edit", "lib/a.py")
    assert not touched(chosen, "edit", "src/gen.py"), "who may not write a file may not edit it either"
    assert not touched(chosen, "read", "lib/a.py")
    assert not touched(chosen, "read", "src/keys/a")
    assert not touched(chosen, "grep", "src/keys")
    assert touched(chosen, "grep", "."), "a search may begin anywhere; what it may not show is hidden"
    assert hides(chosen, "src/keys/a")
    assert hides(chosen, "lib/a")
    assert not hides(chosen, "src/a")
    assert not touched(rules(allow=["Grep(src)"]), "grep", ".")


def test_a_link_counts_with_both_its_names():
    chosen = rules(deny=["Read(keys/**)"], allow=["Read(src/**)", "Read(keys/**)"])
    assert isinstance(decide(chosen, Asked(tool="read", paths=("src/a", "keys/a"))), Denied)
    assert isinstance(decide(chosen, Asked(tool="read", paths=("keys/a", "src/a"))), Denied)
    assert isinstance(decide(chosen, Asked(tool="read", paths=("src/a", "link/a"))), Allowed)
    assert isinstance(decide(chosen, Asked(tool="read", paths=("lib/a", "src/link"))), Denied)


def test_rules_for_mcp_tools():
    chosen = rules(deny=["mcp__a__drop", "mcp__b"], allow=["mcp__c__*"])
    for tool, is_denied in (("mcp__a__drop", True), ("mcp__a__get", False), ("mcp__b__x", True), ("mcp__c__x", False)):
        assert isinstance(decide(chosen, Asked(tool=tool)), Denied) is is_denied


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Bsah(ls)", 'did you mean "Bash"'),
        ("WebFetch", "did you mean"),
        ("submit", "did you mean"),
        ("Bash(ls", "is no rule"),
        ("", "is no rule"),
        ("Bash()", "never match"),
        ("Bash(a && b)", "never match"),
        ("Bash(a | b)", "never match"),
        ("Bash(a > b)", "never match"),
        ("Bash($X)", "never match"),
        ("Bash(A=1 b)", "never match"),
        ("Bash(a $(b))", "never match"),
        ("Read(../x)", "never match"),
        ("Read()", "never match"),
        ("Read(!x)", "never match"),
        ("Read(//etc/passwd)", "never match"),
        ("mcp__a__b(x)", "no specifier"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(text: str, why: str):
    with pytest.raises(RuleError, match=why.replace("(", r"\(")):
        parse_allow_rule(text)


def test_examples_are_tried():
    push = parse_rule("Bash(git push *)")
    check_examples(push, match=["git push origin"], not_match=["git pull"], is_deny=False)
    check_examples(push, match=["git -C x push"], not_match=["git pull"], is_deny=True)
    check_examples(parse_rule("Read(src/**)"), match=["src/a"], not_match=["lib/a"], is_deny=False)
    check_examples(parse_rule("Grep(src)"), match=["src/a"], not_match=["lib/a"], is_deny=True)
    with pytest.raises(RuleError, match="does not match its example 'git pull'"):
        check_examples(push, match=["git pull"], not_match=[], is_deny=False)
    with pytest.raises(RuleError, match="it matches its example 'git push'"):
        check_examples(push, match=[], not_match=["git push"], is_deny=True)


RULE_TEXTS = [
    "Bash(ls *)",
    "Bash(git *)",
    "Bash(git push *)",
    "Bash",
    "Read(src/**)",
    "Edit(*.py)",
    "Read(.env)",
    "Glob",
]
some = st.lists(st.sampled_from(RULE_TEXTS), max_size=3)
commands = st.lists(
    st.sampled_from(["ls", "git push", "git log", "; ", " && ", " | ", "$(", ")", "'", "sh -c ", "rm x", "cat .env"]),
    max_size=5,
).map(" ".join)
calls = st.one_of(
    commands.map(lambda command: Asked(tool="bash", command=command)),
    st.builds(
        lambda tool, path: Asked(tool=tool, paths=(path,)),
        st.sampled_from(["read", "write", "edit", "grep", "glob", "mcp__a__b"]),
        st.sampled_from(["src/a.py", "a.py", ".env", ".", "lib/x"]),
    ),
)


@given(some, some, some, some, calls)
@settings(max_examples=300)
def test_a_repositorys_rules_never_widen(allow, deny, narrow, more, asked: Asked):
    without = decide(rules(allow=allow, deny=deny), asked)
    with_them = decide(rules(allow=allow, deny=[*deny, *more], narrow=narrow), asked)
    if isinstance(without, Denied):
        assert isinstance(with_them, Denied)


@given(some, commands)
@settings(max_examples=200)
def test_allowed_and_forbidden_by_the_same_rule_never_both(texts, command: str):
    """What an allow rule matches, the same rule as a deny rule matches too: deny is the wider of the two."""
    own = [text for text in texts if text.startswith("Bash")]
    if own and ran(rules(allow=own), command):
        assert not ran(rules(deny=own), command)


def test_tools_of_a_program_are_ruled_by_their_names():
    chosen = rules(deny=["Tool(drop)"])
    assert chosen.taken_away("tool__drop") is not None
    assert chosen.taken_away("tool__drop_all") is None
    assert chosen.taken_away("bash") is None
    for every in ("Tool", "tool(*)"):
        assert rules(deny=[every]).taken_away("tool__get") is not None
        assert rules(deny=[every]).taken_away("mcp__a__get") is None
    with pytest.raises(RuleError, match="can never match"):
        parse_rule("Tool(Drop It)")
