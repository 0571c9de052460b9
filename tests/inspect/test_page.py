"""The page of a session: all in it is data, its numbers are those of inspect, and it asks nobody for anything."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inspect.long import EVIL, PATCH, TICKET, long_reading
from xnagent.core import events as ev
from xnagent.core import spine_events as sp
from xnagent.core.board import Evidence
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, CallId, FactId, RunId, SessionId, TaskId
from xnagent.core.items import AssistantText, ToolCall, UserText
from xnagent.core.masking import Mask, Secret, mask_of
from xnagent.core.tokens import Usage
from xnagent.inspect.page.markup import shown, tag
from xnagent.inspect.page.plan import plan_picture
from xnagent.inspect.page.scale import duration, round_up, time_scale
from xnagent.inspect.page.story import story_of
from xnagent.inspect.page.whole import page, tickets_of
from xnagent.inspect.plain import count, money, visible
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document
from xnagent.store.codec import as_record, record_lines

VOID = {"meta", "link", "input", "br"}
ELEMENTS = frozenset(
    re.findall(
        r"\S+",
        "html head meta title link style body main header section nav div p span a b s i ul ol li dl dt dd h1 h2 h3 "
        "table thead tbody tr th td strong code pre details summary label select option input button noscript script "
        "svg rect line text path circle g",
    )
)
ATTRIBUTES = frozenset(
    re.findall(
        r"\S+",
        "aria-hidden aria-label aria-live autocomplete charset class content d data-new data-replies data-results "
        "height hidden href http-equiv id lang name open placeholder preserveaspectratio r rel role scope spellcheck "
        "tabindex title type value viewbox width x x1 x2 y y1 y2 cx cy",
    )
)
NASTY = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [EVIL, "]]>", "<!--", "</title><h1>", "</style>", '" onload="x', "' x='", "&#60;b&#62;", "\u2028", "\ud800"]
    ),
    st.text(alphabet="<>&\"'/=! \n\x00\x1b\u202escript", max_size=40),
)


class Parsed(HTMLParser):
    """What a browser would make of the page: elements, attributes, and text by element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.raw: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag in {"script", "style"}:
            self.raw.append((tag, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"script", "style"}:
            self.raw[-1] = (self.raw[-1][0], self.raw[-1][1] + data)
        else:
            self.text.append(data)


def whole(reading: Reading, *, patch: str = PATCH, mask: Mask | None = None) -> str:
    return "".join(page(reading, texts={TICKET: patch}, mask=mask or Mask()))


def lines(parsed: Parsed, place: int) -> list[object]:
    return [json.loads(line) for line in parsed.raw[place][1].split("\n") if line]


def small(text: str) -> Reading:
    """A session in which every text is this one."""
    run, task, worker = RunId("r1"), TaskId("t1"), AgentId("r1")
    seen = Evidence(command=text, exit_code=1, duration_seconds=0.1, output=TICKET, tail=text, failed_output=TICKET)
    call = ToolCall(call_id=CallId("c1"), name=text, arguments=text)
    used = Usage(input_tokens=10, cached_tokens=4, output_tokens=1)
    events: list[ev.Event] = [
        ev.SessionStarted(session=SessionId("s-1"), objective=text, repository=text),
        sp.SpineExtended(agent=PLANNER, kind="baseline", items=(UserText(text=text, origin="state"),)),
        ev.TaskAdded(task=task, title=text, objective=text, checks=(text,), depends_on=(TaskId("t0"),), scope=(text,)),
        ev.RunStarted(run=run, task=task, brief=text),
        ev.RunLaunched(run=run, base="c0"),
        sp.SpineExtended(agent=worker, kind="brief", items=(UserText(text=text, origin="task"),)),
        sp.RequestStarted(
            agent=worker,
            request=1,
            manifest="m",
            items=1,
            estimate_tokens=9,
            predicted_cached_tokens=None,
            sha256=text,
            size_bytes=1,
        ),
        sp.RequestRetried(agent=worker, request=1, attempt=1, fault=text, detail=text, wait_seconds=1.0),
        sp.ReplyReceived(
            agent=worker,
            request=1,
            items=(AssistantText(text=text), call),
            usage=used,
            cost_usd=None,
            finish=text,
            duration_seconds=1.0,
        ),
        sp.ToolFinished(agent=worker, call_id=CallId("c1"), tool=text, text=text),
        ev.PatchTaken(run=run, patch=TICKET, commit="c", changed_files=(text,), flags=(text,)),
        ev.CheckFinished(run=run, evidence=seen),
        ev.CheckFinished(run=None, evidence=seen),
        ev.RunSettled(run=run, status="failed", reason=text, conflicts=(text,)),
        ev.FactRecorded(fact=FactId("f1"), text=text, source=text, value=text),
        ev.FactRetracted(fact=FactId("f1"), reason=text),
        ev.ResultApplied(is_applied=False, branch=text, detail=text, changed_files=(text,), patch=TICKET),
        ev.SessionSettled(outcome="failed", exit_code=3, summary=text, error_class="x", error=text),
    ]
    stored = [ev.Stored(seq=n, at=f"2026-01-01T00:00:{n:02d}.000Z", event=event) for n, event in enumerate(events, 1)]
    return Reading(
        session=SessionId("s-1"),
        state=fold_all(events),
        events=stored,
        records=[as_record(SessionId("s-1"), one) for one in stored],
    )


def must_be_inert(text: str) -> Parsed:
    parsed = Parsed(text)
    assert parsed.open == []
    assert parsed.names <= ELEMENTS
    assert {name for _, name, _ in parsed.attributes} <= ATTRIBUTES
    links = {value for _, name, value in parsed.attributes if name == "href" and value}
    assert all(value.startswith(("#", "data:image/svg+xml,")) for value in links)
    assert [kind for kind, _ in parsed.raw] == ["style", "script", "script", "script"]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]", text)
    return parsed


@settings(deadline=None, max_examples=60)
@given(NASTY, NASTY)
def test_no_text_of_a_session_can_make_a_tag_an_attribute_or_a_script(text: str, patch: str):
    reading = small(text)
    parsed = must_be_inert(whole(reading, patch=f"diff --git a/{text} b/{text}\n@@\n+{patch}\n-{patch}"))
    style, events, ledger, script = (content for _, content in parsed.raw)
    told = json.loads(json.dumps(document(reading, ())))
    assert lines(parsed, 1) == told["events"]
    assert lines(parsed, 2) == told["requests"]
    assert (style, script) == tuple(content for _, content in Parsed(whole(small("x"))).raw[::3])
    assert "<" not in events + ledger


@given(st.text())
def test_text_comes_out_as_it_is_shown_in_tables(text: str):
    parsed = Parsed(tag("p", text, title=text))
    assert "".join(parsed.text) == visible(text, keep="\n\t")
    assert parsed.attributes == [("p", "title", visible(text, keep="\n\t"))]
    assert shown(shown(text)) == shown(text)


def test_its_numbers_are_those_of_inspect():
    reading = long_reading(200)
    told = document(reading, ())
    parsed = must_be_inert(whole(reading))
    assert lines(parsed, 1) == json.loads(json.dumps(told["events"]))
    assert lines(parsed, 2) == json.loads(json.dumps(told["requests"]))
    overview, usage = told["overview"], told["final"]["usage"]
    for number in (
        count(overview["spine"]["tokens"]),
        count(usage["input_tokens"]),
        count(usage["requests"]),
        money(overview["cost_usd"]),
        *(money(part["cost_usd"]) for part in told["cost"]["by_role"].values()),
        *(money(row["cost_usd"]) for row in told["requests"]),
        *(count(row["input_tokens"]) for row in told["requests"]),
    ):
        assert number in parsed.text
    assert (
        sum(name == "id" and str(value).startswith("request-") for _, name, value in parsed.attributes)
        == usage["requests"]
    )
    assert f"{100 * usage['cached_tokens'] / usage['input_tokens']:.1f} %" in parsed.text


def test_it_asks_nobody_for_anything():
    text = whole(long_reading(20))
    parsed = Parsed(text)
    (policy,) = [
        value for _, name, value in parsed.attributes if name == "content" and value and "default-src" in value
    ]
    assert "default-src 'none'" in policy
    for kind, content in (("style", parsed.raw[0][1]), ("script", parsed.raw[3][1])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
        assert not re.search(
            r"https?:|url\(|@import|fetch\(|XMLHttp|innerHTML|insertAdjacent|eval\(|document\.write", content
        )
    assert not {name for _, name, _ in parsed.attributes} & {"src", "srcset", "style", "action", "onclick"}


def test_secrets_are_masked_in_every_part():
    secret = Secret(name="A_KEY", value='sk-"<very>&secret-0123456789')
    text = whole(small(secret.value), patch=f"+{secret.value}", mask=mask_of([secret]))
    assert "very" not in text.replace("every", "")
    assert text.count(secret.placeholder) > 30


def test_each_request_names_what_was_new_in_it():
    reading = long_reading(100)
    story = story_of(reading)
    agents = {one.event.request: one.event.agent for one in reading.events if isinstance(one.event, sp.RequestStarted)}
    for agent in set(agents.values()):
        own = [number for number, whose in agents.items() if whose == agent]
        places = [seq for number in own for seq in story.contents[number].new]
        kinds = (sp.SpineExtended, sp.SpineRebased, sp.ReplyReceived, sp.ToolFinished)
        last = max(
            one.seq for one in reading.events if isinstance(one.event, sp.RequestStarted) and one.event.agent == agent
        )
        assert places == [
            one.seq
            for one in reading.events
            if isinstance(one.event, kinds) and one.event.agent == agent and one.seq < last
        ]
        assert all(len(story.contents[number].replies) == 1 for number in own)


def test_ready_made_lines_of_the_log_stand_in_the_page_unless_secrets_are_known():
    secret = Secret(name="A_KEY", value='sk-"<very>&secret-0123456789')
    told = small(secret.value)
    ready = replace(told, lines=lambda: record_lines(told.session, told.events))
    pages = ["".join(page(one, texts={}, mask=Mask())) for one in (told, ready)]
    assert island_of(pages[0]) == island_of(pages[1])
    masked = ["".join(page(one, texts={}, mask=mask_of([secret]))) for one in (told, ready)]
    assert masked[0] == masked[1]
    assert "very" not in masked[1].replace("every", "")


def island_of(text):
    lines = text.partition('id="events">')[2].partition("</script>")[0]
    assert "<" not in lines
    return [json.loads(line) for line in lines.split("\n")]


@pytest.mark.parametrize("is_live", [True, False])
def test_a_session_that_has_hardly_begun_has_a_page(is_live: bool):
    events = (ev.SessionStarted(session=SessionId("s-1"), objective=""),)
    stored = [ev.Stored(seq=1, at="2026-01-01T00:00:00.000Z", event=events[0])]
    begun = Reading(session=SessionId("s-1"), state=fold_all(events), events=stored, is_live=is_live)
    parsed = must_be_inert("".join(page(begun, texts={}, mask=Mask())))
    assert any(("running" if is_live else "interrupted") in text for text in parsed.text)
    empty = Reading(session=SessionId("s-1"), state=fold_all(()), events=())
    must_be_inert("".join(page(empty, texts={}, mask=Mask())))


def test_patches_that_the_page_wants():
    assert tickets_of(long_reading(20)) == [TICKET]
    gone = "".join(page(long_reading(20), texts={}, mask=Mask()))
    assert f"patch of the whole {TICKET} is not in the store" in gone


def test_a_long_patch_is_cut_and_says_so():
    lines = "".join(f"+line {n}\n" for n in range(5_000))
    text = whole(small("x"), patch=f"diff --git a/a b/a\n@@ -1 +1 @@\n{lines}")
    assert "2,001 more lines" in text
    assert "+5,000" in text


@given(st.lists(st.floats(0, 1e6), max_size=30))
def test_time_runs_forwards_on_its_scale(seconds: list[float]):
    scale = time_scale(seconds)
    places = [scale.place(each) for each in sorted(seconds)]
    assert places == sorted(places)
    assert all(0 <= each <= 1 for each in places)
    ticks = scale.ticks()
    assert ticks == sorted(ticks)
    assert len(ticks) <= 20


def test_a_night_without_events_takes_little_room():
    scale = time_scale([*range(60), *range(30_000, 30_060)])
    assert len(scale.cuts) == 1
    assert scale.place(30_000) - scale.place(59) == pytest.approx(0.03)


def test_a_circle_in_a_plan_is_drawn_too():
    row = {"status": "pending", "title": "", "objective": "", "runs": []}
    tasks = [{**row, "task": "a", "depends_on": ["b", "a"]}, {**row, "task": "b", "depends_on": ["a", "gone"]}]
    assert plan_picture(tasks, []).count("<path") == 2


def test_words_and_numbers():
    assert [duration(each) for each in (0.4, 12, 61, 3600, 7500)] == [
        "0.4 s",
        "12 s",
        "1 min 01 s",
        "1 h",
        "2 h 05 min",
    ]
    assert [round_up(each) for each in (0, 0.3, 3, 12, 8_100)] == [1, 1, 4, 20, 10_000]
