"""What a live page is made of, extended event by event, is what a report makes of the whole log."""

from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inspect.long import PATCH, SESSION, TICKET, long_reading
from xnagent.core.events import Stored
from xnagent.core.masking import Mask, Secret, mask_of
from xnagent.dashboard.parts import PATCHED, ledger_section, redrawn
from xnagent.dashboard.tailing import Log
from xnagent.inspect.page.story import story_of
from xnagent.inspect.page.whole import SECTIONS, Sheet
from xnagent.inspect.report import document
from xnagent.store.place import Place

READING = long_reading(30)


@dataclass
class Growing:
    """As much of a place as a tail asks for: a log that was stored up to some event."""

    stored: int = 0
    asked: list[int] = field(default_factory=list)

    def holder(self) -> None:
        return None

    def events(self, *, after: int = 0) -> list[Stored]:
        self.asked.append(after)
        return list(READING.events[after : self.stored])

    def artifact(self, _ticket: str) -> bytes:
        return PATCH.encode()


def followed(stops: list[int], mask: Mask) -> tuple[Log, Growing]:
    """The log after readings at these places and one at the end."""
    place = Growing()
    log = Log(place=cast("Place", place), session=SESSION, mask=mask)
    for stop in [*sorted(stops), len(READING.events)]:
        place.stored = stop
        log.read()
        for number in log.rows:
            log.line_of(number)
    return log, place


@settings(max_examples=8)
@given(stops=st.lists(st.integers(0, len(READING.events)), max_size=6))
def test_sections_come_out_as_in_a_report_however_the_log_was_read(stops: list[int]):
    log, place = followed(stops, Mask())
    told = cast("dict[str, Any]", document(READING, ()))
    sheet = Sheet(shown=told, story=story_of(READING), texts={TICKET: PATCH})
    parts = redrawn(log, {}, mask=Mask(), now=1)
    assert {name: part.html for name, part in parts.items()} == {name: SECTIONS[name](sheet) for name in PATCHED}
    assert ledger_section(log) == SECTIONS["requests"](sheet)
    assert [dict(record) for record in log.records] == told["events"]
    assert place.asked == [0, *sorted(stops)], "nothing was read twice"


def test_each_change_of_a_requests_line_is_noted_with_its_event():
    place = Growing()
    log = Log(place=cast("Place", place), session=SESSION, mask=Mask())
    lines: dict[int, str] = {}
    for seq in range(1, len(READING.events) + 1):
        place.stored = seq
        log.read()
        now = {number: log.line_of(number) for number in log.rows}
        changed = {number for number in now if now[number] != lines.get(number)}
        assert changed <= {request for at, request in log.touched if at == seq}
        lines = now


def test_parts_that_come_out_the_same_keep_the_time_of_their_drawing():
    log, _ = followed([], Mask())
    first = redrawn(log, {}, mask=Mask(), now=1)
    log.is_live = True
    again = redrawn(log, first, mask=Mask(), now=2)
    assert {part.drawn for part in first.values()} == {1}
    assert again["cost"] is first["cost"]
    assert again == redrawn(log, again, mask=Mask(), now=3)


def test_secrets_of_the_environment_are_in_nothing_that_is_sent():
    mask = mask_of([Secret(name="KEY", value="pytest -q tests/")])
    log, _ = followed([], mask)
    shown = [*log.lines, ledger_section(log), *(part.html for part in redrawn(log, {}, mask=mask, now=1).values())]
    assert not any("pytest -q tests/" in text for text in shown)
    assert any("[secret:KEY]" in text for text in shown)
