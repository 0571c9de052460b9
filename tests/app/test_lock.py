"""What stands before every history is locked: it changes on purpose, and a replay says so."""

from dataclasses import replace

import pytest

from xnagent.agents.prompting import system_text
from xnagent.app.lock import changed_since, committed_lock, lock_text
from xnagent.core.spine_events import ManifestRecorded
from xnagent.models.fingerprint import renderer_of


def test_M42_prompts_tools_and_renderers_are_as_the_lock_says():
    """If this fails and the change is wanted: scripts/lock-prompts, and a line in CHANGELOG.md."""
    assert committed_lock() == lock_text()


RECORDED = ManifestRecorded(
    manifest="m1",
    role="worker:big",
    wire="chat",
    model="m",
    system=system_text("worker"),
    tools="[]",
    max_output_tokens=1,
    window_tokens=2,
    renderer=renderer_of("chat"),
)


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        (RECORDED, None),
        (replace(RECORDED, renderer=""), None),
        (replace(RECORDED, renderer="chat-0-00"), f"chat-0-00 made the requests of worker:big, {renderer_of('chat')}"),
        (replace(RECORDED, system="Be good."), "prompts/worker.md is another: "),
        (
            replace(RECORDED, tools='[{"name":"bash"},{"name":"gone"}]'),
            "other definitions of tools of worker:big: bash",
        ),
        (replace(RECORDED, role="extra", system=""), None),
    ],
)
def test_M42_what_is_otherwise_than_recorded_is_named(recorded: ManifestRecorded, told: str | None):
    found = list(changed_since(recorded))
    assert len(found) == (told is not None)
    assert all(told in one.what for one in found)
