"""A cache that has expired makes a rebase free: within a process, and after a session was left alone."""

from dataclasses import replace

import pytest

from tests.agents.test_lasting import RULE, Table, desk_of, table
from xnagent.agents.room import conditions_of, make_room
from xnagent.core.events import SessionResumed
from xnagent.core.ids import PLANNER
from xnagent.core.items import UserText
from xnagent.core.spine_events import RequestStarted, SpineExtended, SpineRebased

__all__ = ["table"]
NEWS = UserText(text="news " * 5_000, origin="state")


async def filled(table: Table) -> None:
    """Three answered requests, and 50,000 estimated tokens behind the objective."""
    await table.store.append(SpineExtended(agent=PLANNER, kind="message", items=(NEWS,) * 7))
    for _ in range(3):
        await table.ask(lifetime="5m", after=5)


async def look(table: Table) -> list[str]:
    await make_room(table.desk, table.seat("5m"))
    return [event.cause for event in table.events(SpineRebased)]


@pytest.mark.parametrize(("seconds", "causes"), [(RULE.lifetime_seconds, []), (RULE.lifetime_seconds + 1, ["expired"])])
async def test_M33_M52_when_the_cache_has_expired_a_rebase_costs_nothing_more(table: Table, seconds: float, causes):
    await filled(table)
    assert await look(table) == []
    table.clock.advance(seconds)
    assert await look(table) == causes
    for event in table.events(SpineRebased):
        assert event.break_even_steps == 0
        assert event.price_usd > 0


@pytest.mark.parametrize(("idle", "causes"), [(None, []), (299.0, []), (301.0, ["expired"])])
async def test_M33_M52_a_session_that_was_left_alone_finds_no_cache(table: Table, idle: float | None, causes):
    await filled(table)
    await table.store.append(SessionResumed(epoch=2, idle_seconds=idle))
    later = replace(table, desk=desk_of(table.store, table.clock))
    assert await look(later) == causes


async def test_M52_requests_say_what_they_paid_in_rent_and_what_a_rebase_would_have_cost(table: Table):
    await filled(table)
    first, *others = table.events(RequestStarted)
    assert (first.rent_usd, first.rebase_usd) == (0.0, None)
    assert all(event.rent_usd > 0 and event.rebase_usd > 0 for event in others)
    assert table.spine.rent.paid_usd == pytest.approx(sum(event.rent_usd for event in others))
    assert table.spine.rent.lowest_usd == min(event.rebase_usd for event in others)
    assert not conditions_of(table.desk, table.seat("5m")).has_expired
    assert conditions_of(table.desk, table.seat("1h", price=None)).rates is None
    assert conditions_of(table.desk, table.seat("1h")).rates.is_long
