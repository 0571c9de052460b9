"""What can't be paid is not started."""

from dataclasses import replace

import pytest

from tests.core.sessions import Story, delegated, settled, task
from tests.core.test_record import b050
from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.items import AssistantText
from xnagent.core.limits import Limits, Wanted, is_last_step, refuse_request, spent_tokens, spent_usd
from xnagent.core.pricing import Price
from xnagent.core.spine import most_tokens
from xnagent.core.state import SessionState
from xnagent.core.tokens import Usage

PRICE = Price(input_usd=10, cached_usd=1, output_usd=10)


def wanted(tokens: int = 100, output: int = 50, *, price: Price | None = PRICE, agent: str = PLANNER) -> Wanted:
    return Wanted(agent=AgentId(agent), input_tokens=tokens, max_output_tokens=output, price=price)


def test_B050_limits_count_what_all_agents_have_used():
    state = b050().state
    assert spent_tokens(state) == 42_700
    assert spent_usd(state) == pytest.approx(0.0262)
    assert spent_usd(SessionState()) == 0


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        (Limits(), None),
        (Limits(steps=None), None),
        (Limits(steps=5), "steps"),
        (Limits(steps=6), None),
        (Limits(tokens=42_849), "tokens"),
        (Limits(tokens=42_850), None),
        (Limits(usd=0.0276), "usd"),
        (Limits(usd=0.0278), None),
        (Limits(steps=5, tokens=1, usd=0.0), "steps"),
    ],
)
def test_a_request_is_refused_when_it_could_pass_a_limit(limits: Limits, refused):
    found = refuse_request(b050().state, limits, wanted=wanted())
    assert (found and found.limit) == refused
    if found:
        assert found.detail


def test_T27_the_limit_of_money_holds_if_nothing_is_cached():
    dear = Price(input_usd=1, cached_usd=0.01, output_usd=1, cache_write_usd=100)
    assert refuse_request(SessionState(), Limits(usd=0.01), wanted=wanted(price=dear)).limit == "usd"


def test_B069_a_limit_of_money_without_a_price_is_refused_with_the_reason():
    assert "price is not known" in refuse_request(SessionState(), Limits(usd=5), wanted=wanted(price=None)).detail
    assert refuse_request(SessionState(), Limits(), wanted=wanted(price=None)) is None
    story = Story()
    story.begin()
    story.reply(PLANNER, AssistantText(text="x"), usage=Usage(), cost_usd=None)
    assert refuse_request(story.state, Limits(usd=5), wanted=wanted()).limit == "usd"


def two_under_way() -> Story:
    story = Story()
    story.begin()
    story.add(task("a"), task("b"), delegated("r1", "a"), delegated("r2", "b"))
    for name in ("r1", "r2"):
        story.request(AgentId(name))
    return story


def test_requests_under_way_are_counted_at_the_most_that_they_can_use():
    """The Workers' manifest allows 4,000 tokens of output; the Planner that asks allows 50."""
    state = two_under_way().state
    reserved = sum(state.spines[AgentId(name)].sent_estimate for name in ("r1", "r2"))
    exact = reserved + 2 * 4_000 + 100 + 50
    assert refuse_request(state, Limits(tokens=exact), wanted=wanted()) is None
    assert refuse_request(state, Limits(tokens=exact - 1), wanted=wanted()).limit == "tokens"
    assert refuse_request(state, Limits(steps=2), wanted=wanted()).limit == "steps"
    assert refuse_request(state, Limits(steps=3), wanted=wanted()) is None
    usd = exact * 10 / 1e6
    assert refuse_request(state, Limits(usd=usd * 1.0001), wanted=wanted()) is None
    assert refuse_request(state, Limits(usd=usd * 0.9999), wanted=wanted()).limit == "usd"


def test_an_agents_own_request_is_not_counted_twice_and_a_settled_run_not_at_all():
    story = two_under_way()
    assert refuse_request(story.state, Limits(steps=2), wanted=wanted(agent="r1")) is None
    story.add(settled("r2", "failed"))
    assert refuse_request(story.state, Limits(steps=2), wanted=wanted()) is None


@pytest.mark.parametrize(("limit", "is_last"), [(None, False), (6, False), (5, True), (1, True)])
def test_the_last_step_is_known(limit, is_last):
    assert is_last_step(b050().state, Limits(steps=limit)) is is_last


def test_what_no_provider_has_counted_yet_may_be_a_token_for_a_character():
    story = Story()
    story.begin("x" * 3_000)
    spine = story.spine()
    assert most_tokens(spine, 300) >= 3_000 + 300 / 0.3
    story.tell()
    story.reply(PLANNER, AssistantText(text="y"), usage=Usage(input_tokens=2_000, output_tokens=10))
    known = story.spine()
    assert most_tokens(known, 300) == known.anchor_tokens == 2_010


def test_a_report_above_its_ceiling_scales_all_later_ones():
    state = replace(SessionState(), overcharge=2.0)
    assert refuse_request(state, Limits(tokens=300), wanted=wanted()) is None
    assert refuse_request(state, Limits(tokens=299), wanted=wanted()).limit == "tokens"
    assert refuse_request(state, Limits(usd=0.0029), wanted=wanted()).limit == "usd"
    assert refuse_request(state, Limits(usd=0.0031), wanted=wanted()) is None
