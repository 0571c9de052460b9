"""What a rebase's event says: tokens, money, what was dropped, and where it can be read."""

from dataclasses import replace

import pytest

from tests.core.sessions import ROOM, Story, fact
from xnagent.core.caching import CacheRule
from xnagent.core.due import Conditions
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.pricing import Price
from xnagent.core.receipts import EDITION, NAMED_TICKETS, Occasion, receipt
from xnagent.core.rent import Rates, Rent
from xnagent.core.spine_events import SpineRebased
from xnagent.core.state import work_of
from xnagent.core.tokens import Usage

PRICE = Price(input_usd=3, cached_usd=0.3, output_usd=15, cache_write_usd=3.75, cache_write_long_usd=6)


def told() -> Story:
    """Four steps whose results can go, and one after the newest news."""
    story = Story()
    story.begin()
    for number in range(4):
        story.step(f"{'old ' * 2_000}[whole: artifact:{number:016x}]")
    story.add(fact("f1"))
    story.step("new")
    return story


def receipt_of(story: Story, *, price: Price | None = PRICE, is_long: bool = False, held: int | None = None):
    spine = replace(story.spine(), rent=Rent(paid_usd=0.125), held_tokens=held)
    rates = None if price is None else Rates(price=price, cache=CacheRule(), is_long=is_long)
    occasion = Occasion(
        cause="economic",
        cursor=story.state.cause_count,
        steps=work_of(story.state, PLANNER).steps,
        manifest="m-planner",
        conditions=Conditions(rates=rates),
    )
    return receipt(spine, story.plan(), room=ROOM, occasion=occasion)


def test_M51_a_receipt_says_what_was_dropped_and_where_it_is():
    story = told()
    made = receipt_of(story)
    kinds = {part.kind: (part.items, part.tokens) for part in made.dropped}
    assert {kind: items for kind, (items, _) in kinds.items()} == {
        "user_text": 2,
        "assistant_text": 4,
        "tool_call": 4,
        "tool_result": 4,
    }
    assert kinds["tool_result"][1] > 4 * 2_000
    assert sum(items for items, _ in kinds.values()) == made.items_dropped == 14
    assert (made.first_step, made.last_step) == (1, 4)
    assert made.tickets == tuple(f"artifact:{number:016x}" for number in (3, 2, 1, 0))
    assert (made.cause, made.manifest, made.edition, made.unreferenced) == ("economic", "m-planner", EDITION, 4)
    story.add(made)
    assert story.state.rebases[-1] is made
    story.add(fact("f2"))
    story.step("newer")
    assert (receipt_of(story).first_step, receipt_of(story).last_step) == (5, 5)


def test_M51_a_rebase_pays_back_after_so_many_requests():
    story = told()
    made = receipt_of(story)
    fixed = ROOM.head_tokens + story.spine().first_tokens
    assert made.rent_usd == 0.125
    assert made.price_usd == pytest.approx((made.tokens_after - fixed) * 3.75 / 1e6)
    assert made.saved_usd == pytest.approx((made.tokens_before - made.tokens_after) * 0.3 / 1e6)
    assert 0 < made.break_even_steps < 1
    assert receipt_of(story, is_long=True).price_usd == pytest.approx((made.tokens_after - fixed) * 6 / 1e6)


def test_M51_never_or_unknown_is_none():
    unknown = receipt_of(told(), price=None)
    assert (unknown.price_usd, unknown.break_even_steps, unknown.saved_usd, unknown.rent_usd) == (None,) * 4
    free = receipt_of(told(), price=Price(input_usd=1, cached_usd=0, output_usd=1))
    assert (free.break_even_steps, free.saved_usd) == (None, 0.0)


def test_a_planner_that_was_told_only_has_no_steps_and_many_tickets_are_cut():
    story = Story()
    story.begin()
    story.tell()
    assert (receipt_of(story).first_step, receipt_of(story).last_step) == (None, None)
    story.step(" ".join(f"artifact:{number:016x}" for number in range(100)))
    story.add(fact("f1"))
    story.step("new")
    assert len(receipt_of(story).tickets) == NAMED_TICKETS


def test_an_older_log_has_receipts_of_the_first_edition():
    old = SpineRebased(
        agent=AgentId("r1"),
        items=(),
        cursor=0,
        cause="soft",
        tokens_before=2,
        tokens_after=1,
        items_dropped=1,
        checkpoint_tokens=1,
    )
    assert (old.edition, old.dropped, old.ticketed, old.first_step) == (1, (), (), None)


def test_M56_sizes_in_a_receipt_are_the_providers():
    story = told()
    story.reply(PLANNER, usage=Usage(input_tokens=30_000, output_tokens=0))
    assert receipt_of(story).tokens_before == 30_000
