"""M114: how full a request makes its window, told once for each level and generation."""

from hypothesis import given
from hypothesis import strategies as st

from tests.core.sessions import Story
from xnagent.core.ids import PLANNER
from xnagent.core.occupancy import filled_share, find_filled
from xnagent.core.rebase import Room
from xnagent.core.spine_events import ModelReplaced

ROOM = Room(window_tokens=1_456, max_output_tokens=200, head_tokens=0)
"""1,000 tokens are usable."""
LEVELS = (0.5, 0.75, 0.9)


def begun() -> Story:
    story = Story()
    story.begin()
    return story


def send(story: Story, tokens: int, *, levels: tuple[float, ...] = LEVELS) -> list[float]:
    told = find_filled(story.spine(PLANNER), ROOM, tokens=tokens, levels=levels, request=1)
    story.add(*told)
    return [event.level for event in told]


def test_M114_T26_a_level_is_told_when_it_is_reached_and_not_again():
    story = begun()
    assert [send(story, tokens) for tokens in (499, 500, 740, 500, 750, 760)] == [[], [0.5], [], [], [0.75], []]
    assert send(story, 2_000) == [0.9]


def test_M114_a_jump_over_levels_tells_the_highest_once():
    story = begun()
    assert [send(story, tokens) for tokens in (950, 800, 600)] == [[0.9], [], []]


def test_M114_after_a_rebase_levels_are_told_anew():
    story = begun()
    send(story, 950)
    story.rebase()
    assert [send(story, tokens) for tokens in (600, 620)] == [[0.5], []]


def test_M114_a_model_that_takes_over_is_told_of_its_own_window():
    story = begun()
    assert send(story, 950) == [0.9]
    other = ModelReplaced(
        agent=PLANNER,
        replaced="first",
        model="other",
        cause="overloaded",
        detail="",
        request=None,
        lineage="planner.0",
        lost_tokens=0,
        price_usd=None,
    )
    story.add(other)
    assert [send(story, tokens) for tokens in (600, 620)] == [[0.5], []]


def test_M114_without_levels_or_a_usable_window_nothing_is_told():
    full = Room(window_tokens=100, max_output_tokens=200, head_tokens=0)
    assert send(begun(), 950, levels=()) == []
    assert filled_share(10, full) is None
    assert find_filled(begun().spine(PLANNER), full, tokens=10, levels=LEVELS, request=1) == ()


@given(
    st.lists(st.integers(0, 1_200), max_size=12),
    st.lists(st.floats(0.01, 0.99), max_size=4, unique=True).map(tuple),
)
def test_M114_what_is_told_rises_and_every_level_that_was_reached_is_covered(sizes, levels):
    story = begun()
    told = [level for tokens in sizes for level in send(story, tokens, levels=levels)]
    assert told == sorted(set(told))
    reached = [level for level in levels if sizes and max(sizes) / ROOM.usable_tokens >= level]
    assert max(reached, default=None) == (told[-1] if told else None)
