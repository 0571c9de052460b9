"""What a llama.cpp server is asked beyond the wire: a slot for each agent, and to say how far it is.

A slot holds one prompt. Left to itself the server takes the slot whose prompt has a tenth in common with the
request, so agents with one preamble overwrite each other's histories.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from xnagent.core.ids import PLANNER, AgentId
from xnagent.core.spine_events import ManifestRecorded
from xnagent.core.text import Json, canonical

SLOTS_OPTION: Final = "slots"
"""An option that is not sent: how many slots the server has; `id_slot` is sent in its place."""
SLOT_FIELD: Final = "id_slot"
PROGRESS_FIELD: Final = "return_progress"
"""Without it the server sends nothing, not even headers, before the whole prompt is read: it would look dead."""
PINNED_WIRES: Final = ("chat", "responses")
"""Those on which llama.cpp reads the field; on its Messages endpoint it is lost."""


def slot_of(agent: AgentId, slots: int) -> int | None:
    """The Planner has the first slot to itself, Workers take the others in turn; None: with one there is no choice.

    Runs are numbered in order, so as many of them as there are other slots can be at work without sharing one.
    """
    if slots <= 1:
        return None
    return 0 if agent == PLANNER else 1 + (_number(agent) - 1) % (slots - 1)


def _number(run: AgentId) -> int:
    digits = run.removeprefix("r")
    return int(digits) if digits.isascii() and digits.isdigit() else 1


def pinned(manifest: ManifestRecorded, agent: AgentId | None) -> ManifestRecorded:
    """The manifest with the agent's slot among its options; unchanged where nobody said that there are slots."""
    options: dict[str, Json] = json.loads(manifest.options or "{}")
    slots = options.pop(SLOTS_OPTION, None)
    if slots is None:
        return manifest
    slot = slot_of(agent, slots) if agent and isinstance(slots, int) else None
    asked: dict[str, Json] = {} if slot is None else {SLOT_FIELD: slot}
    if manifest.wire == "chat":
        asked[PROGRESS_FIELD] = True
    return replace(manifest, options=canonical({**asked, **options}))
