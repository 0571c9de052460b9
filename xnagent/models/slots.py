"""Slot pinning for llama.cpp: each agent keeps to one of the server's slots, and so to its own cached prefix.

A slot holds one prompt. Left to itself the server takes the slot whose prompt has a tenth in common with a request, so
agents with one preamble overwrite each other's histories.
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
    more: dict[str, Json] = {} if slot is None else {SLOT_FIELD: slot}
    return replace(manifest, options=canonical({**options, **more}))
