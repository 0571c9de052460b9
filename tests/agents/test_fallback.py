"""Another model in the same history: refused where nothing declares it, sent where an event does."""

from dataclasses import replace

import pytest

from tests.agents.test_drifting import Table, desk_of, manifest, table
from xnagent.core.ids import PLANNER
from xnagent.core.spine_events import CacheDrifted, ModelReplaced, PrefixBroken, RequestStarted
from xnagent.errors import PrefixBrokenError

__all__ = ["table"]

DECLARED = ModelReplaced(
    agent=PLANNER,
    replaced="a",
    model="b",
    cause="quota",
    detail="no credit",
    request=None,
    lineage="planner.0",
    lost_tokens=20_100,
    price_usd=None,
)


async def strict(table: Table, *, is_new_process: bool) -> None:
    """One request to the model `a`, then strictness, in this process or a new one."""
    await table.store.append(manifest("a"), manifest("b"))
    await table.ask(0)
    table.desk = replace(desk_of(table.store, table.clock) if is_new_process else table.desk, prefix="strict")


@pytest.mark.parametrize("is_new_process", [False, True])
async def test_M27_another_model_that_nobody_declared_is_refused(table: Table, is_new_process: bool):
    await strict(table, is_new_process=is_new_process)
    with pytest.raises(PrefixBrokenError):
        await table.ask(0, model="b")
    (broken,) = table.events(PrefixBroken)
    assert broken.segment == ("model" if is_new_process else "head")
    assert len(table.events(RequestStarted)) == 1


@pytest.mark.parametrize("is_new_process", [False, True])
async def test_M27_M33_a_declared_one_is_not_and_its_first_miss_is_told_with_the_cause(
    table: Table, is_new_process: bool
):
    await strict(table, is_new_process=is_new_process)
    await table.store.append(DECLARED)
    await table.ask(0, model="b")
    await table.ask(0, model="b")
    assert table.events(PrefixBroken) == []
    assert [drift.cause for drift in table.events(CacheDrifted)] == ["model_changed", "unknown"]
    assert len(table.events(RequestStarted)) == 3


async def test_M27_other_parameters_of_the_same_model_are_no_break(table: Table):
    await strict(table, is_new_process=True)
    await table.store.append(replace(manifest("a"), manifest="wide", window_tokens=900_000))
    await table.ask(0, name="wide")
    assert table.events(PrefixBroken) == []
