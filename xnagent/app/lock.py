"""What stands before every history, by hash: system texts, tool definitions on each wire, renderers.

A session's log holds its own texts and tools, so an upgrade changes neither. This is the same for the product itself:
`agents/prompts/lock.toml` is renewed on purpose, with `scripts/lock-prompts`, or a test fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Final

from xnagent.agents.prompting import system_text
from xnagent.app.crew import planner_toolbox, worker_toolbox
from xnagent.core.limits import Limits
from xnagent.core.permissions import Rules
from xnagent.core.spine_events import ManifestRecorded
from xnagent.models.fingerprint import VERSIONS, renderer_of
from xnagent.models.wires import encode
from xnagent.workspaces.shell import ProcessShell

PLACE: Final = "prompts/lock.toml"
"""In `xnagent/agents`."""
ROLES: Final = ("planner", "worker")
SHOWN_DIGITS: Final = 12
HEADING: Final = """\
# What stands before every history, by SHA-256. A change makes new sessions write their caches anew and shows in the
# `replay` of older ones; what those were sent stays as it was. Renew with scripts/lock-prompts, and say why in the
# changelog. A change of a renderer raises its version in xnagent/models/fingerprint.py too: it breaks sessions that are
# resumed.
"""


def lock_text() -> str:
    """The lock as it should be."""
    tables = {
        "system": {role: _digest(system_text(role)) for role in ROLES},
        **{f"head.{role}": {wire: _head_digest(role, wire) for wire in VERSIONS} for role in ROLES},
        "renderer": {wire: renderer_of(wire) for wire in VERSIONS},
    }
    return HEADING + "".join(_table(name, values) for name, values in tables.items())


def committed_lock() -> str:
    """The lock as it is."""
    return resources.files("xnagent.agents").joinpath(PLACE).read_text(encoding="utf-8")


def _table(name: str, values: Mapping[str, str]) -> str:
    return f"\n[{name}]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items())


def _head_digest(role: str, wire: str) -> str:
    """Of a request with a system text of one letter and no history: the tools as the wire sends them."""
    manifest = ManifestRecorded(
        manifest="lock",
        role=role,
        wire=wire,
        model="m",
        system="s",
        tools=definitions_of(role),
        max_output_tokens=1,
        window_tokens=1,
    )
    return sha256(encode(manifest, ())).hexdigest()


@cache
def definitions_of(role: str) -> str:
    """A role's tools as canonical JSON, every one of them: no rule takes one away."""
    if role == "planner":
        return planner_toolbox(Limits(), rules=Rules()).definitions
    return worker_toolbox(ProcessShell(environ={}), rules=Rules()).definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Something before a history that is otherwise here than it was for whoever recorded."""

    segment: str
    """The part of a request that it makes: `system`, `tools`, or all of it: `renderer`."""
    source: str
    """The file or the definitions that it comes from."""
    what: str
    """For people."""


def changed_since(recorded: ManifestRecorded) -> Iterator[Changed]:
    """What is otherwise here than it was for whoever recorded; a manifest of no known role is passed over."""
    role = recorded.role.partition(":")[0]
    if recorded.renderer and recorded.wire in VERSIONS and recorded.renderer != renderer_of(recorded.wire):
        here = renderer_of(recorded.wire)
        what = f"another renderer: {recorded.renderer} made the requests of {recorded.role}, {here} does here"
        yield Changed(segment="renderer", source=here, what=what)
    if role not in ROLES:
        return
    if names := list(_changed_tools(recorded.tools, definitions_of(role))):
        what = f"other definitions of tools of {recorded.role}: {', '.join(names)}"
        yield Changed(segment="tools", source=", ".join(names), what=what)
    if (text := system_text(role)) != recorded.system:
        what = f"prompts/{role}.md is another: {_short(recorded.system)} was recorded, {_short(text)} is here"
        yield Changed(segment="system", source=f"prompts/{role}.md", what=what)


def _changed_tools(before: str, after: str) -> Iterable[str]:
    """Those that are in both: rules may have taken others away."""
    old, new = ({tool["name"]: tool for tool in json.loads(text or "[]")} for text in (before, after))
    return sorted(name for name in old.keys() & new.keys() if old[name] != new[name])


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _short(text: str) -> str:
    return _digest(text)[:SHOWN_DIGITS]
