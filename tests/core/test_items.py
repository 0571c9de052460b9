"""Groups of items, the pairing rule, and unique call ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import texts
from xnagent.core.ids import PLANNER, TASK_ID, TICKET, CallId, RunId, agent_of, role_of
from xnagent.core.items import (
    AssistantText,
    Reasoning,
    ToolCall,
    ToolResult,
    UserText,
    calls_of,
    closed_groups,
    is_balanced,
    text_of,
    with_unique_ids,
)


def user(text: str = "go") -> UserText:
    return UserText(text=text, origin="user")


def call(name: str) -> ToolCall:
    return ToolCall(call_id=CallId(name), name="read", arguments="{}")


def result(name: str) -> ToolResult:
    return ToolResult(call_id=CallId(name), text=name.upper())


THINK, SAY = Reasoning(wire="chat", payload="r"), AssistantText(text="a")


@pytest.mark.parametrize(
    ("items", "sizes"),
    [
        ([], []),
        ([user()], [1]),
        ([user(), user()], [1, 1]),
        ([user(), SAY], [1, 1]),
        ([user(), THINK, SAY, call("a"), call("b"), result("a"), result("b"), SAY], [1, 6, 1]),
        ([call("a"), result("a"), call("b"), result("b"), THINK, SAY], [2, 2, 2]),
        ([call("a"), result("a"), user(), user()], [2, 1, 1]),
    ],
)
def test_B001_groups_are_cut_where_nothing_is_open(items, sizes):
    groups = closed_groups(items)
    assert [len(group) for group in groups] == sizes
    assert [item for group in groups for item in group] == items


@pytest.mark.parametrize(
    ("items", "is_valid"),
    [
        ([], True),
        ([user(), SAY], True),
        ([user(), call("a"), result("a")], True),
        ([user(), call("a"), call("b"), result("a"), result("b"), SAY], True),
        ([user(), call("a")], False),
        ([user(), result("a")], False),
        ([user(), call("a"), call("b"), result("b"), result("a")], False),
        ([user(), call("a"), result("a"), result("a")], False),
        ([user(), call("a"), user(), result("a")], False),
        ([user(), call("a"), call("a"), result("a"), result("a")], False),
        ([user(), call("a"), result("a"), call("a"), result("a")], False),
        ([user(), call("a"), result("a"), SAY, result("b")], False),
    ],
)
def test_I3_M123_the_pairing_rule(items, is_valid):
    assert is_balanced(items) is is_valid


def test_parts_of_a_reply():
    assert calls_of([SAY, call("a"), user(), call("b")]) == (call("a"), call("b"))
    assert text_of([SAY, call("a"), AssistantText(text="b"), user("not this")]) == "ab"


def test_B005_repeated_and_empty_ids_become_unique_by_position():
    reply = [call("call_0"), SAY, call("call_0"), call("")]
    first = with_unique_ids(reply, set())
    ids = [item.call_id for item in calls_of(first)]
    assert len(set(ids)) == 3
    assert "" not in ids
    assert first[0] is reply[0]
    assert first[1] is SAY
    following = with_unique_ids([call("call_0"), call("other")], ids)
    assert following[0].call_id not in {*ids, "call_0"}
    assert following[1].call_id == "other"


@given(st.lists(st.sampled_from(["", "a", "a_x2", "a_x3", "call"]), max_size=6), st.sets(st.sampled_from(["a", "b"])))
def test_B005_ids_are_unique_stable_and_kept_where_they_can_be(names: list[str], used: set[str]):
    reply = [call(name) for name in names]
    unique = with_unique_ids(reply, used)
    ids = [item.call_id for item in unique]
    assert len({*ids, *used}) == len(ids) + len(used)
    assert all(ids)
    assert unique == with_unique_ids(reply, used)
    assert with_unique_ids(unique, used) == unique


@given(texts, texts)
def test_M95_I5_reasoning_and_arguments_are_values_that_nothing_rewrites(payload: str, arguments: str):
    assert Reasoning(wire="responses", payload=payload).payload == payload
    assert ToolCall(call_id=CallId("c"), name="x", arguments=arguments).arguments == arguments


def test_names():
    assert (role_of(PLANNER), role_of(agent_of(RunId("r1")))) == ("planner", "worker")
    assert TASK_ID.fullmatch("a-b_1")
    assert not TASK_ID.fullmatch("1a")
    assert not TASK_ID.fullmatch("a" * 33)
    assert TICKET.fullmatch("artifact:0123456789abcdef")
