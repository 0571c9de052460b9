"""`inspect --sql`: what it answers, and that it only reads, soon ends, and says what is wrong."""

import pytest

from tests.inspect.long import EVIL, long_reading
from xnagent.core.masking import Mask
from xnagent.core.text import canonical
from xnagent.errors import UsageError
from xnagent.inspect.blocks import plain
from xnagent.inspect.parts import PARTS
from xnagent.inspect.sql import Answer, answer_blocks, ask

READING = long_reading(60)


def answer(statement: str, *, limit: int = 1_000, is_over: bool = False) -> Answer:
    return ask(READING, statement, limit=limit, is_over=lambda: is_over)


def test_the_answers_are_the_parts():
    by_task = answer("SELECT task, sum(cost_usd), count(*) FROM steps WHERE run IS NOT NULL GROUP BY task").rows
    cost = PARTS["cost"](READING)["by_task"]
    assert {task: (pytest.approx(usd), requests) for task, usd, requests in by_task} == {
        task: (part["cost_usd"], part["requests"]) for task, part in cost.items() if part["requests"]
    }
    facts = answer(
        "SELECT f.fact, retracted IS NULL, change, h.value FROM facts f JOIN fact_history h USING (fact) ORDER BY seq"
    )
    assert facts.rows == (
        ("f1", 1, "recorded", "1"),
        ("f1", 1, "corrected", "2"),
        ("f2", 0, "recorded", None),
        ("f2", 0, "retracted", None),
    )
    (hit,) = answer("SELECT op, path, value FROM operations LIMIT 1").rows
    assert hit == ("add", "/runs/r1", EVIL)
    (seen,) = answer("SELECT DISTINCT json_extract(record, '$.type') FROM events WHERE seq = 1").rows
    assert seen == ("session_started",)
    assert answer("WITH x AS (SELECT 1 AS one) SELECT * FROM x").objects == [{"one": 1}]
    assert answer("SELECT checks FROM tasks LIMIT 1").rows == ((canonical(["pytest -q"]),),)


def test_names_are_distinct_and_values_are_such_as_json_can_say():
    told = answer("SELECT 1 AS a, 2 AS a, 3 AS a_2, x'00ff' AS b, 9e999 AS c")
    assert told.objects == [{"a": 1, "a_2": 2, "a_2_2": 3, "b": "00ff", "c": None}]


def test_rows_are_limited_and_that_is_told():
    some, every = answer("SELECT seq FROM events", limit=3), answer("SELECT 1", limit=1)
    assert (some.rows, some.is_whole) == (((1,), (2,), (3,)), False)
    assert every.is_whole
    assert plain(answer_blocks(some, mask=Mask())).startswith("the first 3 rows\nseq\n  1\n")
    shown = plain(answer_blocks(answer("SELECT value FROM operations LIMIT 1"), mask=Mask()))
    assert not set(shown) & {"\x1b", "\u202e", "\x07"}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM tasks",
        "INSERT INTO tasks (task) VALUES ('x')",
        "UPDATE tasks SET task = 'x'",
        "DROP TABLE tasks",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x AS SELECT 1",
        "ATTACH 'somewhere.db' AS other",
        "VACUUM INTO 'somewhere.db'",
        "PRAGMA query_only = OFF",
        "SELECT * FROM pragma_database_list",
        "BEGIN",
        "SELECT load_extension('x')",
        "SELECT LOAD_EXTENSION('x')",
        "SELECT zeroblob(1000000000)",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(statement: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^SQL_READ_ONLY: .* write one SELECT; views: sessions, tasks"):
        answer(statement)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("", "SQL_WRONG: there is no SELECT"),
        ("-- nothing", "SQL_WRONG: there is no SELECT"),
        ("SELEKT 1", 'SQL_WRONG: near "SELEKT": syntax error; views: '),
        ("SELECT 1; SELECT 2", "SQL_ONE_STATEMENT"),
        ("SELECT 1; DROP TABLE tasks", "SQL_ONE_STATEMENT"),
        ("SELECT * FROM task", 'no such table: task; did you mean "tasks"?; views: '),
        ("SELECT objectiv FROM tasks", 'no such column: objectiv; did you mean "objective"?'),
        ("SELECT tasks.objectiv FROM tasks", 'did you mean "objective"?'),
        ("SELECT * FROM qqqqqqqq", "no such table: qqqqqqqq; views: "),
        ("SELECT ?", "SQL_WRONG"),
        ("SELECT '\x00'", "SQL_WRONG"),
        ("SELECT '" + "x" * 200_000 + "'", "SQL_WRONG"),
    ],
)
def test_what_is_wrong_is_told_with_what_there_is(statement: str, told: str):
    with pytest.raises(UsageError) as wrong:
        answer(statement)
    assert told in str(wrong.value)


def test_a_question_without_end_is_ended():
    forever = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(UsageError, match=r"^SQL_TOO_LONG: "):
        answer(forever, is_over=True)


def test_an_interrupt_is_no_answer():
    def interrupted() -> bool:
        raise KeyboardInterrupt

    forever = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(KeyboardInterrupt):
        ask(READING, forever, limit=1, is_over=interrupted)
