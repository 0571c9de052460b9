"""The patch between two boards, and patches on any JSON value (B062 to B066)."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.sessions import Story, fact, task
from xnagent.core import events as ev
from xnagent.core.board import Board, Fact, Run, Task
from xnagent.core.delta import PatchError, apply, apply_to_view, delta, diff
from xnagent.core.fold import fold, fold_all, with_entry
from xnagent.core.ids import FactId, RunId, TaskId
from xnagent.core.messages import state_message
from xnagent.core.state import SessionState
from xnagent.core.text import canonical
from xnagent.core.view import view

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, -0.5]) | st.sampled_from("ab/~01-"),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "", "0", "a/b", "~1"]), inner)
    ),
    max_leaves=12,
)

B062 = [
    (["a", "b", ["d", "e"], "f"], ["a", "d", ["e", "g"]]),
    (
        [{"x": ["a", {"y": ["b"]}], "z": "a"}, {"x": ["c", {"d": ["d"]}], "z": "c"}, {}],
        [{"x": ["c", {"y": ["d"]}], "z": "c"}, {}],
    ),
    ([[], ["1"]], ["a", [], []]),
    ([1, {"0": [], "": 0}], [[], {}, "a/b"]),
    ([{"1": {}, "a/b": None}], [{}, {}, "a/b", 0]),
    ([1, 2, 3], [3, 1, 4, 2]),
]
B063 = [
    ({"f": True}, {"f": 1}),
    ([True, 2], [1, 2]),
    ([0, 1], [False, 1]),
    ({"k": [{"x": 1}]}, {"k": [{"x": True}]}),
    ([1.0], [1]),
    ([-0.0], [0]),
    (1, True),
    ("1", 1),
    (None, 0),
]


@pytest.mark.parametrize(("old", "new"), B062)
def test_B062_a_diff_reproduces_its_target(old, new):
    before = copy.deepcopy((old, new))
    assert canonical(apply(old, diff(old, new))) == canonical(new)
    assert (old, new) == before


@pytest.mark.parametrize(("old", "new"), B063)
@pytest.mark.parametrize("is_backwards", [False, True])
def test_B063_true_is_not_one_in_a_diff(old, new, is_backwards):
    old, new = (new, old) if is_backwards else (old, new)
    assert json.dumps(apply(old, diff(old, new))) == json.dumps(new)


@given(json_values, json_values)
def test_B062_B063_any_diff_reproduces_its_target_and_changes_nothing_else(old, new):
    before = copy.deepcopy((old, new))
    patch = diff(old, new)
    assert canonical(apply(old, patch)) == canonical(new)
    assert (old, new) == before
    assert bool(patch) is (canonical(old) != canonical(new))


@given(json_values, json_values)
def test_B062_paths_are_prefixed_also_in_moves_and_replaced_roots(old, new):
    document = {"facts": {"f/1": old, "g": 1}}
    patched = apply(document, diff(old, new, at="/facts/f~11"))
    assert canonical(patched) == canonical({"facts": {"f/1": new, "g": 1}})


class Hiding(list):
    """Has items that the library does not count."""

    def __len__(self):
        return 0


class Losing(list):
    """Has items that its copy has not."""

    def __deepcopy__(self, memo):
        return []


@pytest.mark.parametrize(("old", "new"), [([1], Hiding([1, 2])), (Losing([1]), [])], ids=["wrong", "does not apply"])
def test_B062_a_patch_that_does_not_reproduce_is_replaced_by_the_whole(old, new):
    assert diff(old, new, at="/runs/r1") == ({"op": "replace", "path": "/runs/r1", "value": new},)


@pytest.mark.parametrize(("known", "asked"), [(True, 1), (1, True), (False, 0)])
def test_B063_a_test_tells_booleans_from_numbers(known, asked):
    with pytest.raises(PatchError, match="operation 0 at '/k'"):
        apply({"k": known}, [{"op": "test", "path": "/k", "value": asked}])


def test_B063_a_test_takes_one_for_one_point_zero():
    assert apply({"k": 1.0}, [{"op": "test", "path": "/k", "value": 1}]) == {"k": 1.0}


def test_B064_a_patch_shares_nothing_with_its_document():
    patch = [{"op": "add", "path": "/baz", "value": [1, 2, 3]}, {"op": "remove", "path": "/baz/1"}]
    before = copy.deepcopy(patch)
    first = apply({}, patch)
    first["baz"].append("changed")
    assert apply({}, patch) == {"baz": [1, 3]}
    assert patch == before


def test_B064_a_copied_value_is_another_object():
    patch = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/-", "value": 2}]
    assert apply({"a": [1]}, patch) == {"a": [1], "b": [1, 2]}


def test_B065_after_a_failing_operation_the_document_is_as_before():
    document = {"a": 1}
    with pytest.raises(PatchError, match="operation 1 at '/a'"):
        apply(document, [{"op": "add", "path": "/b", "value": 2}, {"op": "test", "path": "/a", "value": 9}])
    assert document == {"a": 1}


def test_B066_keys_are_escaped_as_the_standard_says():
    old = {"a/b": 1, "m~n": 2, "": 3, "~1": 4}
    patch = diff(old, {key: value + 1 for key, value in old.items()})
    assert {op["path"] for op in patch} == {"/a~1b", "/m~0n", "/", "/~01"}


BAD_OPERATIONS = [
    ({}, {"op": "add", "path": "a", "value": 1}),
    ({}, {"op": "add", "path": "/a~2", "value": 1}),
    ({}, {"op": "add", "path": "/a~", "value": 1}),
    ({}, {"op": "add", "path": "/a/b", "value": 1}),
    ({}, {"op": "replace", "path": "/a", "value": 1}),
    ({}, {"op": "remove", "path": "/a"}),
    ([1, 2], {"op": "add", "path": "/5", "value": 1}),
    ([1, 2], {"op": "add", "path": "/01", "value": 1}),
    ([1, 2], {"op": "remove", "path": "/-"}),
    ([1, 2], {"op": "replace", "path": "/-", "value": 1}),
    ([1, 2], {"op": "replace", "path": "/-1", "value": 1}),
    ([1, 2], {"op": "add", "path": "/x", "value": 1}),
    ([1, 2], {"op": "remove", "path": "/" + "9" * 5_000}),
    ({"s": "abc"}, {"op": "replace", "path": "/s/0", "value": 1}),
    (5, {"op": "add", "path": "/a", "value": 1}),
    (None, {"op": "remove", "path": "/a"}),
    ({}, {"op": "copy", "path": "/a"}),
    ({}, {"op": "move", "path": "/a", "from": "/b"}),
    ({}, {"op": "move", "path": "/a", "from": 7}),
    ({}, {"op": "add", "path": "/a"}),
    ({}, {"op": "add", "path": None, "value": 1}),
    ({}, {"op": "add", "path": 7, "value": 1}),
    ({}, {"op": "explode", "path": "/a"}),
    ({}, {"op": ["add"], "path": "/a"}),
    ({}, {"path": "/a"}),
    ({}, {}),
]


@pytest.mark.parametrize(
    ("document", "bad"), BAD_OPERATIONS, ids=[f"{type(on).__name__} {str(bad)[:50]}" for on, bad in BAD_OPERATIONS]
)
def test_B066_a_bad_operation_is_one_error_that_names_index_and_path(document, bad):
    before = copy.deepcopy(document)
    good = {"op": "test", "path": "", "value": document}
    with pytest.raises(PatchError) as caught:
        apply(document, [good, bad])
    assert "operation 1 " in str(caught.value)
    assert repr(bad.get("path")) in str(caught.value)
    assert document == before


@pytest.mark.parametrize("bad", [5, None, "add", ["add", "/a"]])
def test_B066_an_operation_that_is_no_object_is_the_same_error(bad):
    with pytest.raises(PatchError, match="operation 0"):
        apply({}, [bad])


def test_B066_a_dash_appends_and_an_add_on_a_member_replaces():
    assert apply([1, 2], [{"op": "add", "path": "/-", "value": 3}]) == [1, 2, 3]
    assert apply({"a": 1}, [{"op": "add", "path": "/a", "value": 2}]) == {"a": 2}


class Watched(dict):
    """A section that counts how often a record is looked up; rendering needs the record first."""

    lookups = 0

    def get(self, key, default=None):
        Watched.lookups += 1
        return super().get(key, default)


def big_board(size: int) -> Board:
    tasks = {f"t{n}": Task(task=TaskId(f"t{n}"), title=f"Title {n}", objective="x" * 100) for n in range(size)}
    facts = {f"f{n}": Fact(fact=FactId(f"f{n}"), text=f"Fact {n}", source="r1") for n in range(size)}
    return Board(tasks=tasks, facts=facts)


def test_M3_one_change_among_10000_tasks_and_facts_is_one_operation_of_its_own_size():
    old = big_board(10_000)
    changed = replace(old.facts["f5000"], text="Fact 5000, corrected")
    new = replace(old, facts=with_entry(old.facts, "f5000", value=changed))
    patch = delta(old, new)
    assert patch == ({"op": "replace", "path": "/facts/f5000/text", "value": "Fact 5000, corrected"},)
    small = big_board(6_000)
    same = replace(small, facts=with_entry(small.facts, "f5000", value=changed))
    assert delta(small, same) == patch


def test_M3_a_section_that_is_the_same_object_is_not_even_walked():
    facts = Watched(big_board(50).facts)
    old = Board(facts=facts)
    Watched.lookups = 0
    assert delta(old, replace(old, session={"integration_head": "c1"})) != ()
    assert Watched.lookups == 0


class RenderedError(Exception):
    """The record was rendered."""


class Unreadable:
    """A record that cannot be rendered: whoever tries, raises."""

    def __str__(self):
        raise RenderedError


def test_M3_records_that_are_the_same_object_are_not_rendered():
    skills = {f"s{n}": Unreadable() for n in range(1_000)}
    old = Board(skills=skills)
    new = replace(old, skills={**skills, "new": "A new skill"})
    assert delta(old, new) == ({"op": "add", "path": "/skills/new", "value": "A new skill"},)
    with pytest.raises(RenderedError):
        delta(old, replace(old, skills={**skills, "s3": Unreadable()}))


def test_M3_a_new_fact_among_1000_is_mentioned_alone():
    story = Story()
    story.begin()
    story.add(*(fact(f"f{n}") for n in range(1_000)))
    story.step()
    story.add(fact("f1000", "The one that is new"))
    text = story.tell().items[0].text
    assert text.count('"op"') == 1
    assert "f999" not in text
    assert len(text) < 250


def test_M4_messages_of_the_user_are_added_in_order():
    old = fold(SessionState(), ev.UserMessageAdded(message="m1", text="one")).board
    new = fold_all(ev.UserMessageAdded(message=f"m{n}", text=f"text {n}") for n in (1, 2, 3)).board
    new = replace(new, messages={**old.messages, "m2": "text 2", "m3": "text 3"})
    assert [(op["op"], op["path"], op["value"]) for op in delta(old, new)] == [
        ("add", "/messages/m2", "text 2"),
        ("add", "/messages/m3", "text 3"),
    ]


def test_M5_a_status_that_flips_is_one_operation_and_a_new_task_is_told_whole():
    state = fold_all([task("a"), task("b")])
    flipped = fold(state, ev.TaskDropped(task=TaskId("a")))
    assert delta(state.board, flipped.board) == ({"op": "replace", "path": "/tasks/a/status", "value": "dropped"},)
    (added,) = delta(state.board, fold(state, task("c", checks=("make",), scope=("src/**",))).board)
    assert added["value"] == {
        "title": "Title of c",
        "objective": "Do c.",
        "status": "pending",
        "checks": ["make"],
        "scope": ["src/**"],
    }


def test_M6_a_fact_is_told_once_and_never_again():
    story = Story()
    story.begin()
    story.add(fact("f1", "Only once"))
    for number in range(4):
        story.step(*(["ok"] * number))
        story.add(task(f"t{number}"))
    texts = [item.text for item in story.spine().items if getattr(item, "origin", "") == "state"]
    assert len(texts) == 4
    assert sum(text.count("Only once") for text in texts) == 1


def test_M7_one_of_50_runs_that_changes_is_one_operation():
    runs = {f"r{n}": Run(run=RunId(f"r{n}"), task=TaskId("a"), progress="x") for n in range(50)}
    old = SessionState(board=Board(runs=runs))
    new = fold(old, ev.ProgressNoted(run=RunId("r7"), text="tests are green"))
    assert delta(old.board, new.board) == ({"op": "replace", "path": "/runs/r7/progress", "value": "tests are green"},)


def test_M8_skills_are_told_when_they_change_only():
    old = Board(skills={"pdf": "Reads PDF files", "deploy/prod": "Ships"})
    assert delta(old, Board(skills=dict(old.skills))) == ()
    (edited,) = delta(old, Board(skills={**old.skills, "deploy/prod": "Ships on Fridays"}))
    assert edited == {"op": "replace", "path": "/skills/deploy~1prod", "value": "Ships on Fridays"}


def test_M11_what_was_submitted_is_not_reached_by_what_comes_later():
    story = Story()
    story.begin()
    story.add(fact("f1"), task("a"))
    story.step()
    base, told = story.spine().base, view(story.spine().base)
    story.add(ev.FactCorrected(fact=FactId("f1"), text="Other", source="r1"), ev.TaskDropped(task=TaskId("a")))
    assert story.spine().base is base
    assert view(base) == told
    assert len(delta(base, story.state.board)) >= 2


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        ([fact("f1")], [ev.FactRetracted(fact=FactId("f1"), reason="no")], ["remove"]),
        ([fact("f1"), ev.FactRetracted(fact=FactId("f1"), reason="no")], [fact("f2")], ["add"]),
        (
            [fact("f1"), ev.FactRetracted(fact=FactId("f1"), reason="")],
            [ev.FactCorrected(fact=FactId("f1"), text="t", source="r1")],
            ["add"],
        ),
        (
            [fact("f1")],
            [
                ev.FactCorrected(fact=FactId("f1"), text="t", source="r1"),
                ev.FactRetracted(fact=FactId("f1"), reason=""),
            ],
            ["remove"],
        ),
        ([], [fact("f1"), ev.FactRetracted(fact=FactId("f1"), reason="no")], []),
    ],
)
def test_I2_a_retracted_fact_leaves_the_view_and_may_come_back(before, after, operations):
    old = fold_all(before)
    new = fold_all(after, old)
    patch = delta(old.board, new.board)
    assert [op["op"] for op in patch] == operations
    assert apply_to_view(view(old.board), patch) == view(new.board)


def test_I2_records_that_vanish_are_removed_if_they_were_shown():
    gone = Fact(fact=FactId("f1"), text="x", source="r1", retracted="no")
    old = Board(facts={"f1": gone, "f2": replace(gone, retracted=None)}, session={"a": "1", "b~/": "2"})
    new = Board(session={"a": "1"})
    assert [op["path"] for op in delta(old, new)] == ["/session/b~0~1", "/facts/f2"]
    assert apply_to_view(view(old), delta(old, new)) == view(new)


def test_M3_news_without_a_change_are_told_and_nothing_is_not():
    story = Story()
    story.begin()
    story.step()
    assert state_message(story.state) is None
    story.add(fact("f1", source="r1"), ev.FactRetracted(fact=FactId("f1"), reason="no"))
    assert story.tell().items[0].text.split("\n")[1:-1] == ["- r1 recorded fact f1"]
