"""The served pages in a real browser: quiet, alone, right, growing in place, and steering sessions."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chrome import ARGUMENTS, Visit, cards, chromium, shots_folder, visited
from tests.cli.harness import Shell, hanging, make_shell, model
from tests.dashboard.serving import Served, served, written
from xnagent.cli.inspect import read
from xnagent.inspect.plain import count, money
from xnagent.inspect.report import document
from xnagent.store.files import FileSessions
from xnagent.testing.server import ScriptedServer

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

REQUESTS = 2_000
EVENTS = 20_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(chromium() is None, reason="no Chromium here (apt-get install chromium)"),
]


@dataclass(frozen=True)
class House:
    """A home with the demo's session and a long one, and its server."""

    sessions: FileSessions
    server: Served
    demo: str
    long: str

    def told(self, session: str) -> dict[str, Any]:
        """What inspect says now."""
        return json.loads(json.dumps(document(read(self.sessions.place(session)), ())))

    def address(self, session: str) -> str:
        return f"{self.server.base}/sessions/{session}?token={self.server.token}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def house(demo_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    home = tmp_path_factory.mktemp("house") / "home"
    shutil.copytree(demo_home, home)
    sessions = FileSessions(home)
    (path,) = home.glob("sessions/*.db")
    with written(sessions, "s-long", requests=REQUESTS, steps=20) as long:
        long.go_on(EVENTS)
    shell = Shell(folder=home.parent, extra={})
    shell.repository.mkdir()
    with served(shell, "--home", str(home)) as server:
        yield House(sessions=sessions, server=server, demo=path.stem, long="s-long")


def opened(visit: Visit) -> None:
    """The page is there and connected."""
    visit.page.wait_for_selector("#log-rows details")
    visit.page.wait_for_selector("#pulse:not(:empty)")


def elsewhere(visit: Visit, house: House) -> list[str]:
    return [url for url in visit.asked if not url.startswith((house.server.base, "data:"))]


@pytest.mark.parametrize("name", ["demo", "long"])
def test_a_sessions_page_is_quiet_and_alone_and_its_numbers_are_those_of_inspect(browser: Any, house: House, name: str):
    session = getattr(house, name)
    told = house.told(session)
    with visited(browser, house.address(session)) as visit:
        opened(visit)
        assert visit.all_text(".cards dd:not(.quiet)") == cards(told)
        rows = visit.page.eval_on_selector_all(
            ".ledger details",
            "all => all.map(one => [...one.querySelectorAll('summary > span')].map(s => s.textContent))",
        )
        assert [(int(row[0]), row[1], row[3], row[5], row[6]) for row in rows] == [
            (
                row["request"],
                row["agent"],
                count(row["input_tokens"]),
                count(row["output_tokens"]),
                money(row["cost_usd"]),
            )
            for row in told["requests"]
        ]
        assert visit.text("#log-type option").startswith(f"all ({count(len(told['events']))})")
        visit.page.eval_on_selector("#request-2", "one => { one.open = true }")
        visit.page.wait_for_selector("#request-2 .record")
        assert visit.page.locator("img").count() == 0
        assert "token" not in visit.page.url
        assert visit.said == []
        assert elsewhere(visit, house) == []


def test_the_list_is_quiet_and_tells_what_inspect_tells(browser: Any, house: House):
    told = {name: house.told(name) for name in (house.demo, house.long)}
    with visited(browser, house.server.url) as visit:
        visit.page.wait_for_selector(f"#{house.long} .progress >> text=steps")
        visit.page.wait_for_selector(f"#{house.demo} .progress >> text=tasks")
        for name, record in told.items():
            tasks, steps = record["overview"]["tasks"], record["overview"]["steps"]
            shown = visit.text(f"#{name}")
            assert f"{count(tasks['completed'])}/{count(tasks['total'])} tasks" in shown
            assert f"{count(steps['planner'] + steps['worker'])} steps" in shown
            assert money(record["overview"]["cost_usd"]) in shown
        visit.page.keyboard.press("/")
        visit.page.keyboard.type(house.demo)
        assert visit.page.locator(f"#{house.long}").is_hidden()
        visit.page.keyboard.press("Enter")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url(f"**/sessions/{house.demo}")
        opened(visit)
        assert visit.said == []
        assert elsewhere(visit, house) == []


def test_a_page_grows_where_it_stands(browser: Any, house: House):
    """What is unfolded, focused, typed or looked at stays; what is new comes, once."""
    with written(house.sessions, "s-grows", requests=150, steps=6) as live:
        live.go_on(120)
        with visited(browser, house.address("s-grows")) as visit:
            opened(visit)
            page = visit.page
            page.emulate_media(reduced_motion="reduce")  # Otherwise it still glides when its place is taken down.
            before = page.locator(".ledger details").count()
            for fold in ("#run-r1", "#request-3", "#facts details:first-of-type"):
                page.eval_on_selector(fold, "one => { one.open = true }")
            page.fill("#text", "half a sentence")
            page.focus("#run-r1 > summary")
            page.eval_on_selector("#requests", "one => one.scrollIntoView({behavior: 'instant'})")
            top = page.evaluate("document.querySelector('#requests').getBoundingClientRect().top")
            last = live.go_on(200)
            told = house.told("s-grows")
            newest = told["requests"][-1]["request"]
            assert newest > before
            page.wait_for_selector(f"#request-{newest}", state="attached")
            page.wait_for_selector(f".cards dd >> text='{cards(told)[3]}'", state="attached")
            assert visit.all_text(".cards dd:not(.quiet)") == cards(told)
            assert page.locator(".ledger details").count() == len(told["requests"])
            assert f"all ({count(last)})" in visit.text("#log-type")
            for fold in ("#run-r1", "#request-3", "#facts details:first-of-type"):
                assert page.eval_on_selector(fold, "one => one.open"), fold
            assert page.locator("#request-3 .record").count() > 0
            assert page.input_value("#text") == "half a sentence"
            assert page.evaluate("document.activeElement.closest('details')?.id") == "run-r1"
            now = page.evaluate("document.querySelector('#requests').getBoundingClientRect().top")
            assert abs(now - top) <= 2
            page.evaluate(f"location.hash = 'request-{newest}'")
            page.wait_for_selector(f"#request-{newest} .record")
            live.go_on(20_000)
            page.wait_for_selector("#overview .badge >> text=partial")
            live.end()
            page.wait_for_selector("#pulse >> text=not running")
            assert page.locator("#cancel").is_hidden()
            assert visit.text("#command").startswith("xnagent resume s-grows --home ")
            assert visit.all_text(".cards dd:not(.quiet)") == cards(house.told("s-grows"))
            assert visit.said == []


def test_a_person_tells_and_cancels_a_running_session(browser: Any, house: House, tmp_path: Path):
    shell = make_shell(tmp_path)
    home = ("--home", str(house.sessions.home))
    with ScriptedServer(hanging()) as provider, visited(browser, house.server.url) as visit:
        known = {row.session for row in house.sessions.rows()}
        with shell.started("run", "<b>wait</b> for me", *home, *model(provider.base_url)) as run:
            visit.page.click(".session[data-live=true] .title >> text=<b>wait</b> for me")
            opened(visit)
            visit.page.wait_for_selector("#pulse >> text=live")
            visit.page.fill("#text", "Use <i>tabs</i>.")
            visit.page.press("#text", "Control+Enter")
            visit.page.wait_for_selector("#answer >> text=delivered as m1")
            visit.page.click("#cancel")
            visit.page.wait_for_selector("#cancel >> text=Really cancel?")
            visit.page.click("#cancel")
            visit.page.wait_for_selector("#answer >> text=stopped (interrupted)")
            assert run.wait(timeout=30) == 130
        (session,) = {row.session for row in house.sessions.rows()} - known
        said = [row["text"] for row in house.told(session)["events"] if row["type"] == "user_message_added"]
        assert said == ["Use <i>tabs</i>."]
        assert visit.page.locator("main b b, main i").count() == visit.page.locator("main i.key").count()
        assert visit.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_pages_fit_the_screen_and_are_kept_as_pictures(
    browser: Any, house: House, tmp_path: Path, width: int, scheme: str
):
    folder = shots_folder(tmp_path)
    paints: dict[str, float | None] = {}

    def keep(visit: Visit, name: str) -> None:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        picture = folder / f"serve-{name}-{scheme}-{width}.png"
        visit.page.screenshot(path=str(picture))
        assert picture.stat().st_size > 10_000
        paints[name] = visit.paint_milliseconds

    with visited(browser, house.server.url, width=width, scheme=scheme) as visit:
        visit.page.wait_for_selector(f"#{house.demo} .progress >> text=tasks")
        keep(visit, "list")
        for name in (house.demo, house.long):
            visit.page.goto(f"{house.server.base}/sessions/{name}")
            opened(visit)
            keep(visit, "long" if name == house.long else "demo")
            visit.page.eval_on_selector("#live", "one => one.scrollIntoView({behavior: 'instant', block: 'center'})")
            keep(visit, f"{'long' if name == house.long else 'demo'}-steering")
    (folder / f"serve-{scheme}-{width}.json").write_text(json.dumps({"first_paint_milliseconds": paints}))
