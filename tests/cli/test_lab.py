"""`xnagent lab`: tables, JSON, a page, and one clear error for what cannot be replayed."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.harness import Done, Shell, make_shell, model, working
from tests.cli.test_reading import session_of
from xnagent.cli.looking import LAB_PROVIDERS, LAB_STRATEGIES
from xnagent.lab.strategies import STRATEGIES
from xnagent.testing.server import ScriptedServer

NAME = "<script>alert(1)</script>&"


def recorded(steps: int = 60, name: str = NAME) -> str:
    messages: list[object] = [{"role": "user", "content": "port it"}]
    for number in range(steps):
        call = {"id": f"c{number}", "name": "Read", "arguments": json.dumps({"file_path": f"{number}.py"})}
        usage = {"input": 100, "cached_read": 20_000 + 2_000 * number, "cache_write": 1_900, "output": 90}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call], "usage": usage})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "x" * 6_000})
    return json.dumps({"id": name, "agent": "claude-code", "messages": messages}) + "\n"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, list[Done]]:
    shell = make_shell(tmp_path_factory.mktemp("lab"))
    runs = shell.folder / "runs.jsonl"
    runs.write_text(recorded() + recorded(2, "short"))
    (shell.folder / "bad.jsonl").write_text("{}\n")
    with ScriptedServer(working()) as server:
        session = session_of(shell.run("run", "set a to 2", *model(server.base_url)))
    calls = [
        ["lab", str(runs), "-o", str(shell.folder / "lab.html")],
        ["lab", str(runs), "--output", "json", "--limit", "1", "--provider", "anthropic", "--strategy", "append"],
        ["lab", session, "--output", "json", "--price", "openai=gpt-6.1-sol"],
        ["lab", "--strategy", "delta+rebase", "--window", "50000"],
        ["lab", str(shell.folder / "bad.jsonl")],
        ["lab", "missing.jsonl"],
        ["lab", "s-unknown"],
        ["lab", str(runs), "--price", "no-such-model"],
        ["lab", str(runs), "--price", "qwen3:8b"],
        ["lab", str(runs), "--strategy", "magic"],
        ["lab", str(runs), "-o", str(shell.folder / "no" / "folder.html")],
    ]
    return shell, shell.many(*calls)


def test_the_command_line_names_all_strategies():
    assert tuple(STRATEGIES) == LAB_STRATEGIES


def test_a_table_for_each_provider_tells_cost_reuse_and_the_ratio_to_the_floor(done: tuple[Shell, list[Done]]):
    table = done[1][0]
    assert table.code == 0, table.err
    assert "2 runs, 2 agents, 62 steps" in table.out
    assert [name for name in LAB_PROVIDERS if f"\n{name}, priced as " in table.out] == list(LAB_PROVIDERS)
    rows = [line.split() for line in table.out.splitlines() if line.startswith("delta+rebase ")]
    assert len(rows) == len(LAB_PROVIDERS)
    assert all(float(row[-1]) >= 1 for row in rows)
    assert "recorded" in table.out
    assert "no rebase was due" in table.out


def test_JSON_holds_what_the_table_shows(done: tuple[Shell, list[Done]]):
    one = done[1][1].record
    assert one["type"] == "lab"
    assert [run["run"] for run in one["runs"]] == [NAME]
    (append, seen) = one["totals"]
    assert (append["strategy"], seen["strategy"]) == ("append", "recorded")
    assert append["steps"] == 60
    parts = append["cached_tokens"] + append["written_tokens"]
    assert parts == append["input_tokens"]
    assert append["cost_usd"] / append["uncached_usd"] == pytest.approx(append["share_of_uncached"])
    assert append["reuse"] == 1.0


def test_a_session_of_the_store_is_a_recording_too(done: tuple[Shell, list[Done]]):
    _table, _one, session, all_sessions, *_rest = done[1]
    assert session.code == 0, session.err
    (run,) = session.record["runs"]
    assert run["client"] == "xnagent"
    assert run["threads"] == 2
    assert {one["name"]: one["cache"] for one in session.record["providers"]}["openai"] == "marks"
    assert "1 runs, 2 agents" in all_sessions.out


REFUSALS = (
    "RUN_UNREADABLE",
    "RUN_UNREADABLE",
    "s-unknown",
    "PRICE_UNKNOWN",
    "PRICE_UNKNOWN",
    "USAGE",
    "OUT_UNWRITABLE",
)


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_what_cannot_be_done_is_one_clear_error(done: tuple[Shell, list[Done]], number: int):
    failed = done[1][4 + number]
    assert (failed.code, failed.out) == (2, "")
    assert failed.err.count("\n") == 1
    assert REFUSALS[number] in failed.err


class Page(HTMLParser):
    """Counts tags and collects what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data"}]
        if tag not in {"meta", "rect", "line", "polyline"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"rect", "line", "polyline"}:
            assert self.open.pop() == tag


def test_the_page_holds_its_pictures_fetches_nothing_and_escapes_everything(done: tuple[Shell, list[Done]]):
    text = (done[0].folder / "lab.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.fetched == []
    assert "script" not in page.tags
    assert "url(" not in text
    assert page.tags.count("svg") == 2 * len(LAB_PROVIDERS) * (len(STRATEGIES) + 1) + 1
    assert page.tags.count("polyline") == len(STRATEGIES)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in text
    assert "prefers-color-scheme:dark" in text
    assert 'name="viewport"' in text


def test_the_page_is_the_same_for_the_same_runs(done: tuple[Shell, list[Done]], tmp_path: Path):
    shell = done[0]
    again = tmp_path / "again.html"
    assert shell.run("lab", str(shell.folder / "runs.jsonl"), "-o", str(again), "--output", "json").code == 0
    assert again.read_text() == (shell.folder / "lab.html").read_text()
