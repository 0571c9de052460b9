"""Which model goes on: for any faults the right one, with at most one break for each, and the same from the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.sessions import ROOM, Story, delegated, settled, task
from xnagent.core import events as ev
from xnagent.core.fallback import CHOSEN, FALLS_BACK, OF_THE_CONTENT, Candidate, choice, model_in_force, replacement
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER, AgentId, RunId, role_of
from xnagent.core.items import AssistantText
from xnagent.core.pricing import Price
from xnagent.core.spine import estimate
from xnagent.core.spine_events import ManifestRecorded, ModelReplaced, RequestFailed, RequestStarted
from xnagent.core.state import SessionState
from xnagent.core.tokens import Usage
from xnagent.errors import FAULT_KINDS

NAMES = ("m", "b", "c")
PRICE = Price(input_usd=2.0, cached_usd=0.2, output_usd=8.0, cache_write_usd=2.5)
CHAIN = (Candidate(model="m"), Candidate(model="b", price=PRICE), Candidate(model="c"))
R1, R2 = AgentId("r1"), AgentId("r2")


def failed(agent: AgentId, fault: str = "quota", request: int = 1) -> RequestFailed:
    return RequestFailed(agent=agent, request=request, fault=fault, detail="no")


def in_force(state: SessionState, agent: AgentId = PLANNER, chain: tuple[str, ...] = NAMES) -> str:
    return model_in_force(state, agent, chain=chain)


def fail(story: Story, agent: AgentId = PLANNER, fault: str = "quota", chain: tuple[Candidate, ...] = CHAIN) -> bool:
    """A request fails for good; whether another model goes on."""
    request = story.request(agent)
    event = failed(agent, fault, request)
    heir = replacement(story.state, event, chain=chain)
    story.add(event, heir)
    return heir is not None


def begun(*runs: str) -> Story:
    story = Story()
    story.begin()
    for run in runs:
        story.add(task(f"t{run}"), delegated(run, f"t{run}"))
        story.launch(RunId(run))
    return story


def answered(story: Story, tokens: int = 900) -> None:
    usage = Usage(input_tokens=tokens, output_tokens=100)
    story.reply(PLANNER, AssistantText(text="x"), usage=usage, cost_usd=0.5)


def manifest(name: str, model: str, wire: str = "chat") -> ManifestRecorded:
    return ManifestRecorded(
        manifest=name,
        role="planner",
        wire=wire,
        model=model,
        system="",
        tools="[]",
        max_output_tokens=1,
        window_tokens=1_000,
    )


AGENTS = (PLANNER, R1, R2)
MOVES = st.lists(
    st.tuples(st.sampled_from(AGENTS), st.sampled_from([*FAULT_KINDS, "reply", "rebase", "resume"])), max_size=30
)


@given(st.integers(1, 3), MOVES)
def test_any_faults_end_with_the_right_model_and_at_most_one_break_for_each(length: int, moves: list[tuple]):
    chain, names = CHAIN[:length], NAMES[:length]
    story = begun("r1", "r2")
    place = dict.fromkeys(AGENTS, 0)
    for agent, move in moves:
        items = story.spine(agent).items
        match move:
            case "reply":
                story.reply(agent, AssistantText(text="x"), usage=Usage(input_tokens=50, output_tokens=5))
            case "rebase":
                story.rebase(agent)
            case "resume":
                story.add(ev.SessionResumed(epoch=2))
            case fault:
                moves_on = fault in FALLS_BACK and place[agent] + 1 < length
                assert fail(story, agent, fault, chain) == moves_on
                place[agent] += moves_on
                assert story.spine(agent).items == items
                assert agent != PLANNER or (story.state.fault is None) == moves_on
        assert [in_force(story.state, one, names) for one in AGENTS] == [names[place[one]] for one in AGENTS]
    for agent in AGENTS:
        breaks = [one for one in story.state.replaced if one.agent == agent]
        assert [(one.replaced, one.model) for one in breaks] == [(names[n], names[n + 1]) for n in range(place[agent])]
        assert len({one.lineage for one in breaks}) == len(breaks)
    assert fold_all(story.events) == story.state


@pytest.mark.parametrize("fault", FAULT_KINDS)
def test_another_model_is_asked_unless_the_request_is_to_blame(fault: str):
    story = begun()
    assert fail(story, fault=fault) == (fault not in {"context_overflow", "bad_request", "output_budget"})
    assert (story.state.fault is None) == (fault in FALLS_BACK)


def test_a_break_names_the_lineage_what_is_lost_and_what_that_costs():
    story = begun()
    answered(story)
    fail(story)
    answered(story, 1_900)
    story.rebase()
    fail(story, fault="server")
    fail(story)
    first, second = story.state.replaced
    assert (first.lineage, first.lost_tokens, first.price_usd) == ("planner.0", 1_000, 1_000 * 2.5 / 1_000_000)
    assert (second.lineage, second.lost_tokens, second.price_usd) == ("planner.1.1", 0, None)
    assert story.state.fault is not None
    assert story.spine().lineage == "planner.1.2"


def test_what_was_not_reported_is_estimated():
    story = begun()
    story.reply(PLANNER, AssistantText(text="x"), usage=Usage())
    fail(story)
    (broken,) = story.state.replaced
    assert broken.lost_tokens == estimate(story.spine(), ROOM.head_tokens) > 0


def test_the_new_lineage_begins_with_nothing_sent_and_nothing_counted():
    story = begun()
    answered(story)
    before = story.spine()
    fail(story)
    spine = story.spine()
    assert spine.items is before.items
    assert (spine.anchor_tokens, spine.sent_sha256, spine.requests, spine.pending_request) == (None, "", 0, None)
    assert estimate(spine, ROOM.head_tokens) == ROOM.head_tokens + spine.tokens
    assert (spine.held_tokens, spine.held_manifest) == (900, "m-planner")


def test_a_run_that_begins_does_not_try_what_others_gave_up_unless_it_was_for_their_content():
    story = begun("r1", "r2")
    fail(story, R1, "authentication")
    fail(story, R1, "content_refused")
    assert (in_force(story.state, R1), in_force(story.state, R2), in_force(story.state)) == ("c", "m", "m")
    story.add(task("t3"), delegated("r3", "t3"))
    story.launch(RunId("r3"))
    assert in_force(story.state, AgentId("r3")) == "b"
    story.add(ev.RunLaunched(run=RunId("r2"), base="c0ffee"), settled("r2"))
    assert in_force(story.state, R2) == "m"
    assert frozenset({"content_refused"}) == OF_THE_CONTENT


def test_the_users_choice_takes_back_what_was_given_up():
    story = begun("r1")
    fail(story)
    fail(story, R1)
    story.add(ev.SessionResumed(epoch=2, chosen=("planner",)))
    assert (in_force(story.state), in_force(story.state, R1)) == ("m", "b")
    assert in_force(story.state, R1, ("m",)) == "m"
    assert in_force(story.state, R1, ("d", "b")) == "d"


def test_another_model_by_choice_is_a_declared_break_too():
    story = begun()
    story.add(manifest("m-planner", "m"), manifest("other", "m", "messages"))
    heir = Candidate(model="b", price=PRICE)
    assert choice(story.state, PLANNER, heir=heir, wire="chat") is None
    answered(story)
    assert choice(story.state, PLANNER, heir=Candidate(model="m"), wire="chat") is None
    by_wire = choice(story.state, PLANNER, heir=Candidate(model="m"), wire="messages")
    assert (by_wire.replaced, by_wire.model, by_wire.price_usd) == ("m", "m", None)
    made = choice(story.state, PLANNER, heir=heir, wire="chat")
    assert (made.cause, made.request, made.lost_tokens, made.price_usd) == (CHOSEN, None, 1_000, 0.0025)
    story.add(made)
    assert choice(story.state, PLANNER, heir=heir, wire="chat") is None
    assert (in_force(story.state), story.state.given_up) == ("m", {})


def test_the_ledger_tells_models_apart():
    story = begun()
    story.add(manifest("of-b", "b"))
    answered(story)
    fail(story)
    request = story.request()
    started = next(one for one in reversed(story.events) if isinstance(one, RequestStarted))
    assert started.request == request
    totals = story.state.model_totals
    assert {name: (part.requests, part.cost_usd) for name, part in totals.items()} == {"m": (1, 0.5)}
    assert totals == {"m": story.state.totals[role_of(PLANNER)]}


def test_without_a_list_nothing_takes_over():
    assert replacement(SessionState(), failed(PLANNER), chain=()) is None
    assert isinstance(replacement(SessionState(), failed(PLANNER), chain=CHAIN), ModelReplaced)
