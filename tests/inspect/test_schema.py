"""The JSON of inspect and the views of its SQL are what docs/inspect.md says, field by field."""

import json

import pytest

from tests.inspect.long import long_reading
from tests.inspect.schema import SHAPES, VIEWS, problems
from tests.inspect.test_report import SETTLED, reading
from xnagent.inspect import views
from xnagent.inspect.parts import PARTS
from xnagent.inspect.reading import Reading
from xnagent.inspect.report import document

READINGS = {"long": long_reading(200), "odd": reading(SETTLED)}


@pytest.mark.parametrize("name", READINGS)
def test_every_part_has_the_fields_and_types_that_are_promised(name: str):
    told = json.loads(json.dumps(document(READINGS[name], [])))
    assert set(told) == {"session", "overview", *PARTS, "final"}
    assert [problem for part in ("overview", *PARTS) for problem in problems(told[part], part, part)] == []


def test_the_sessions_that_are_looked_at_have_something_of_every_part():
    told = [document(one, []) for one in READINGS.values()]
    assert all(any(one[part] for one in told) for part in PARTS)
    assert any(row["patch"] and row["causes"] for row in told[0]["deltas"])
    assert any(step["calls"] for row in told[0]["runs"] for step in row["course"])
    assert any(len(row["history"]) > 1 for row in told[0]["facts"])


def test_a_field_too_many_too_few_or_of_another_type_would_be_seen():
    good = {"kind": "x", "items": 1, "tokens": 2}
    assert list(problems([good], "[dropped]", "at")) == []
    for bad in ({**good, "more": 1}, {"kind": "x", "items": 1}, {**good, "items": True}, {**good, "tokens": None}):
        assert len(list(problems([bad], "[dropped]", "at"))) == 1


def test_every_shape_that_is_documented_is_a_part_or_is_used():
    used = " ".join(SHAPES.values())
    assert {name for name in SHAPES if name not in PARTS and name not in used} == {"overview"}


@pytest.mark.parametrize("name", READINGS)
def test_every_view_has_the_columns_that_are_promised_and_cells_that_sqlite_takes(name: str):
    assert {view: known.columns for view, known in views.VIEWS.items()} == VIEWS
    for view in views.VIEWS.values():
        for cells in views.cells_of(view, READINGS[name]):
            assert len(cells) == len(view.columns)
            assert all(cell is None or isinstance(cell, str | int | float) for cell in cells)


def test_the_rows_of_a_view_have_each_of_its_columns_somewhere():
    for name, view in views.VIEWS.items():
        rows = [row for one in READINGS.values() for row in view.rows(one)]
        absent = {column for column in view.columns if not any(column in row for row in rows)}
        assert absent <= ({"from"} if name == "operations" else set()), (name, absent)


def test_a_session_without_anything_has_all_views_empty_but_itself():
    empty = Reading(session=READINGS["odd"].session, state=type(READINGS["odd"].state)(), events=())
    sizes = {name: len(list(views.cells_of(view, empty))) for name, view in views.VIEWS.items()}
    assert {name for name, size in sizes.items() if size} == {"sessions", "costs"}
