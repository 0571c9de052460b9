"""Every command of README.md and docs/*.md is run as it stands there, or is listed here with the reason why not."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Command, commands, mentions
from tests.docs.stage import Stage, staged
from xnagent.cli.arguments import parse
from xnagent.errors import UsageError

NOT_HERE = {
    ".venv/bin/pip install": "installs: scripts/check-new-user",
    "pip install": "installs",
    "apt-get": "needs an administrator",
    "su postgres": "needs an administrator",
    "temporal server": "a server that goes on; tests/batch start their own",
    "llama-server": "needs a model's file; scripts/check-real",
    "OLLAMA_": "needs Ollama",
    "harbor run": "needs Harbor, a container and a model; tests/harbor have its part",
    "git clone https://": "fetches from the network",
    "python -m swebench": "needs SWE-bench's harness; scripts/check-peers",
}
"""How lines begin, or what stands in them, that only a reader's machine can run."""
PARSED_ONLY = {
    "--engine temporal": "needs a Temporal server at SERVER; tests/batch have one",
    "polyglot-benchmark --format": "needs the exercises of the line before; tests/batch have small ones",
    "postgresql.md: xnagent doctor": "needs the database of the line before; tests/e2e/test_postgres.py",
    "xnagent demo": "the stage begins with it; tests/demo",
}
"""Commands of xnagent that are only read by its parser."""
CODES = {
    "xnagent replay SESSION --diff OTHER": 3,
}
"""Other exit codes than 0, and the text that says so stands beside the command."""
VALUES = {"N": "7", "M": "7", "SHELL": "bash"}
"""What the parser takes in place of a word that stands for a value."""
COMPLETIONS = (
    ("SESSION",),
    ("SESSION", "7"),
    ("SESSION", "TEXT"),
    ("SESSION", "--at", "7"),
    ("SESSION", "--format", "atif"),
    ("JOBS", "--out", "FILE"),
)
"""What may be left out where a page only names a command."""
UNTIL_READY = ("xnagent serve",)
INTERRUPTED = 130


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("docs")) as made:
        yield made


def is_listed(command: Command, table: dict[str, str]) -> bool:
    return any(part in str(command) for part in table)


def is_setting(command: Command) -> bool:
    return command.text.startswith("export ")


def setting(text: str) -> dict[str, str]:
    """The variable; none if its value is made of others: the stage has its own PATH."""
    name, _, value = text.removeprefix("export ").partition("=")
    return {} if "$" in value else {name: value}


def is_run(command: Command) -> bool:
    return not is_listed(command, NOT_HERE | PARSED_ONLY) and not is_setting(command)


def expected(command: Command) -> int:
    if command.text.startswith(UNTIL_READY):
        return INTERRUPTED
    return next((code for part, code in CODES.items() if part in str(command)), 0)


@pytest.mark.timeout(300)
def test_every_command_of_the_documentation_ends_as_it_says(stage: Stage):
    wrong, exported, place = [], {}, None
    for command in commands():
        if (command.page, command.block) != place:
            place, exported = (command.page, command.block), {}
        if is_setting(command):
            exported |= setting(stage.filled(command.text))
        if not is_run(command):
            continue
        is_lasting = command.text.startswith(UNTIL_READY)
        done = stage.until_ready(command) if is_lasting else stage.run(command, exported)
        if done.code != expected(command):
            wrong.append(f"{command}\n  ended with {done.code}: {done.err.strip()[-400:]}")
    assert not wrong, "\n".join(wrong)


def parsed(command: Command) -> str:
    """What the parser says against it; nothing if it is right. In prose a command may stand without its arguments."""
    words = [VALUES.get(word, word) for word in shlex.split(command.text)]
    begins = words.index("xnagent") + 1
    ends = next((place for place, word in enumerate(words) if word in {">", "|", "&&"} and place > begins), len(words))
    words = words[begins:ends]
    found = refusal(words)
    if "are required" in found and command.block < 0:
        found = found if all(refusal([*words, *more]) for more in COMPLETIONS) else ""
    return f"{command}\n  {found}" if found else ""


def refusal(words: list[str]) -> str:
    try:
        parse(words)
    except UsageError as error:
        return str(error)
    return ""


def test_commands_that_need_another_machine_are_read_by_the_parser():
    found = [command for command in commands() if is_listed(command, PARSED_ONLY) and "pip" not in command.text]
    assert found
    assert not list(filter(None, map(parsed, found)))


def test_commands_in_prose_are_read_by_the_parser():
    assert not list(filter(None, map(parsed, mentions())))


@pytest.mark.parametrize("part", sorted(NOT_HERE | PARSED_ONLY | CODES))
def test_what_is_listed_is_in_the_documentation(part: str):
    assert any(part in str(command) for command in commands())


def test_readme_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in PAGES if page.name != "README.md"}
    assert not {name for name in pages if f"({name})" not in index}


def test_links_between_pages_lead_somewhere():
    broken = [
        f"{page.name}: {target}" for page in PAGES for target in links(page) if not (page.parent / target).exists()
    ]
    assert not broken


def links(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    targets = [part.split(")")[0].split("#")[0] for part in text.split("](")[1:]]
    return [target for target in targets if target and "://" not in target]
