"""The page of a session in a real browser: quiet, alone, right, readable at every width, and usable by keyboard."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chrome import ARGUMENTS, cards, chromium, shots_folder, visited, xnagent
from tests.inspect.long import PATCH, TICKET, long_reading
from xnagent.cli.inspect import read
from xnagent.core.masking import Mask
from xnagent.inspect.page.whole import page
from xnagent.inspect.plain import count, money
from xnagent.inspect.report import document
from xnagent.store.files import FileSessions

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

REQUESTS = 2_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(chromium() is None, reason="no Chromium here (apt-get install chromium)"),
]


@dataclass(frozen=True)
class Report:
    """A page, and what inspect says of the same session."""

    name: str
    file: Path
    told: dict[str, Any]

    @property
    def address(self) -> str:
        return self.file.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def demo(demo_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """`xnagent report` of a demo's session, as a person calls it."""
    (path,) = demo_home.glob("sessions/*.db")
    file = tmp_path_factory.mktemp("demo") / "report.html"
    xnagent("report", path.stem, "-o", str(file), "--home", str(demo_home), folder=file.parent)
    told = document(read(FileSessions(demo_home).place(path.stem)), ())
    return Report(name="demo", file=file, told=json.loads(json.dumps(told)))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A session of 2,000 requests whose every text tries to break out."""
    reading = long_reading(REQUESTS)
    file = tmp_path_factory.mktemp("long") / "report.html"
    file.write_text("".join(page(reading, texts={TICKET: PATCH}, mask=Mask())), encoding="utf-8")
    return Report(name="long", file=file, told=json.loads(json.dumps(document(reading, ()))))


@pytest.fixture(params=["demo", "long"])
def report(request: pytest.FixtureRequest) -> Report:
    return request.getfixturevalue(request.param)


def test_it_is_quiet_and_alone_and_its_numbers_are_those_of_inspect(browser: Any, report: Report):
    with visited(browser, report.address) as visit:
        visit.page.wait_for_selector("#log-rows details")
        assert visit.all_text(".cards dd:not(.quiet)") == cards(report.told)
        rows = visit.page.eval_on_selector_all(
            ".ledger details",
            "all => all.map(one => [...one.querySelectorAll('summary > span')].map(s => s.textContent))",
        )
        assert [(row[0], row[1], row[3], row[5], row[6]) for row in rows] == [
            (
                str(row["request"]),
                row["agent"],
                count(row["input_tokens"]),
                count(row["output_tokens"]),
                money(row["cost_usd"]),
            )
            for row in report.told["requests"]
        ]
        last = report.told["requests"][-1]["request"]
        visit.page.evaluate(f"location.hash = 'request-{last}'")
        visit.page.wait_for_selector(f"#request-{last} .record")
        fields = visit.page.eval_on_selector_all(
            f"#request-{last} .ledger-row > div",
            "all => all.map(one => [...one.children].map(part => part.textContent))",
        )
        assert dict(fields)["input tokens"] == str(report.told["requests"][-1]["input_tokens"])
        assert visit.said == []
        assert visit.asked == [report.address]


def test_nothing_of_a_hostile_session_runs(browser: Any, long: Report):
    with visited(browser, long.address) as visit:
        visit.page.on("dialog", lambda dialog: visit.said.append(f"dialog: {dialog.message}"))
        for selector in ("#request-2", "#run-r1", "#changes details", "#facts details", "#log-rows details"):
            visit.page.wait_for_selector(selector, state="attached")
            visit.page.eval_on_selector(selector, "one => { one.open = true }")
        visit.page.wait_for_selector("#request-2 .record pre")
        assert visit.page.locator("img").count() == 0
        assert visit.page.locator("script").count() == 3
        said = visit.page.text_content("#request-2 .record:last-of-type")
        assert "<img src=x onerror=alert(2)> \\x1b[31mred\\u202etxt\\x07" in said
        assert visit.said == []
        assert len(visit.asked) == 1


def test_it_can_be_searched_and_used_by_keyboard(browser: Any, demo: Report):
    with visited(browser, demo.address) as visit:
        keyboard = visit.page.keyboard
        keyboard.press("/")
        keyboard.type("ROUND_HALF_EVEN")
        visit.page.wait_for_selector("#found-rows details")
        hits = [row for row in demo.told["events"] if "ROUND_HALF_EVEN" in json.dumps(row)]
        assert visit.text("#found h2") == f"Found in {len(hits)} events"
        assert len(visit.all_text("#found-rows details")) == len(hits)
        keyboard.press("Enter")
        keyboard.press("Enter")
        visit.page.wait_for_selector("#found-rows .record")
        visit.page.focus("#search")
        keyboard.press("Escape")
        assert visit.page.locator("#found").is_hidden()
        before = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        keyboard.press("t")
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        visit.page.select_option("#log-type", "fact_corrected")
        corrected = [row for row in demo.told["events"] if row["type"] == "fact_corrected"]
        assert len(visit.all_text("#log-rows details")) == len(corrected)
        assert visit.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_it_fits_the_screen_and_is_kept_as_a_picture(
    browser: Any, report: Report, tmp_path: Path, width: int, scheme: str
):
    folder = shots_folder(tmp_path)
    with visited(browser, report.address, width=width, scheme=scheme) as visit:
        visit.page.wait_for_selector("#log-rows details")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in ground.removeprefix("rgb(").removesuffix(")").split(","))
        assert (brightness > 600) == (scheme == "light")
        for number, selector in enumerate(("#overview", "#tokens", "#runs", "#requests")):
            visit.page.eval_on_selector(selector, "one => one.scrollIntoView({behavior: 'instant'})")
            picture = folder / f"report-{report.name}-{scheme}-{width}-{number}.png"
            visit.page.screenshot(path=str(picture))
            assert picture.stat().st_size > 10_000
        paint = {"first_paint_milliseconds": visit.paint_milliseconds}
        (folder / f"report-{report.name}-{scheme}-{width}.json").write_text(json.dumps(paint))


def test_it_can_be_printed(browser: Any, demo: Report, tmp_path: Path):
    with visited(browser, demo.address, scheme="dark") as visit:
        printed = visit.page.pdf(path=str(shots_folder(tmp_path) / "report-demo.pdf"))
        assert printed.startswith(b"%PDF")
        visit.page.emulate_media(media="print")
        assert visit.page.locator(".bar").is_hidden()
        assert visit.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
