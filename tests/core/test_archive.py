"""What is over is short in a checkpoint, and stays so until it changes."""

import pytest

from tests.core.sessions import Story, delegated, settled, task
from xnagent.core import events as ev
from xnagent.core.archive import archived, carried
from xnagent.core.board import Board
from xnagent.core.checkpoint import checkpoint
from xnagent.core.delta import delta
from xnagent.core.ids import PLANNER, RunId, TaskId
from xnagent.core.view import view

LONG = "What was done, at length. " * 60


def story_of(count: int) -> Story:
    """Tasks that are completed, each with a run that has much to say."""
    story = Story()
    story.begin()
    for number in range(1, count + 1):
        run = RunId(f"r{number}")
        story.add(task(f"t{number}"), delegated(run, f"t{number}"))
        story.add(ev.RunSubmitted(run=run, status="completed", summary=LONG), settled(run))
    return story


def test_I8_M23_a_checkpoint_grows_by_a_line_for_what_is_over_and_the_board_stays_whole():
    ten, twenty = (len(checkpoint(story_of(count).state, PLANNER)) for count in (10, 20))
    assert (twenty - ten) / 10 < 500
    story = story_of(1)
    story.tell()
    story.rebase()
    assert story.state.board.runs[RunId("r1")].summary == LONG
    assert LONG not in story.spine().items[1].text


def test_I2_a_delta_after_a_rebase_does_not_tell_again_what_was_shortened():
    story = story_of(3)
    story.tell()
    story.rebase()
    assert delta(story.spine().base, story.state.board) == ()
    story.add(task("new"))
    assert [operation["path"] for operation in delta(story.spine().base, story.state.board)] == ["/tasks/new"]
    story.tell()
    assert delta(story.spine().base, story.state.board) == ()


def test_I2_a_task_that_is_opened_again_is_told_whole():
    story = story_of(2)
    story.tell()
    story.rebase()
    story.add(ev.TaskRevised(task=TaskId("t1"), title="Again", objective="Once more."))
    changed = {operation["path"] for operation in delta(story.spine().base, story.state.board)}
    assert {"/tasks/t1/objective", "/tasks/t1/status"} <= changed
    assert all(path.startswith("/tasks/t1") for path in changed)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_the_newest_run_of_an_open_task_stays_whole(status: str):
    story = Story()
    story.begin()
    story.add(task("a"), delegated("r1", "a"), settled("r1", status))
    assert not archived(story.state.board).runs[RunId("r1")].is_archived
    story.add(delegated("r2", "a"))
    assert archived(story.state.board).runs[RunId("r1")].is_archived


def test_carrying_over_without_an_archive_changes_nothing():
    board = story_of(2).state.board
    assert carried(Board(), board) == board
    assert view(carried(archived(board), board)) == view(archived(board))
