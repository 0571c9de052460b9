"""Names of things. All are strings; the types keep them apart."""

from __future__ import annotations

import re
from typing import Final, NewType

SessionId = NewType("SessionId", str)
"""`s-…`, chosen when the session starts."""
TaskId = NewType("TaskId", str)
"""Chosen by the Planner; matches `TASK_ID`."""
RunId = NewType("RunId", str)
"""`r1`, `r2`… in order of delegation."""
FactId = NewType("FactId", str)
"""`f1`, `f2`… in order of recording."""
CallId = NewType("CallId", str)
"""Unique within one spine; what the wire carries."""
AgentId = NewType("AgentId", str)
"""`planner`, or the id of the run whose Worker it is."""
Ticket = NewType("Ticket", str)
"""`artifact:` and the first 16 hex digits of the content's SHA-256."""

PLANNER: Final = AgentId("planner")
TASK_ID: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
TICKET: Final = re.compile(r"artifact:[0-9a-f]{16}")


_SUMMARIZER: Final = ":summary"


def role_of(agent: AgentId) -> str:
    """`planner`, `worker`, or `summary`: who summarizes a Worker's history."""
    if agent == PLANNER:
        return "planner"
    return "summary" if agent.endswith(_SUMMARIZER) else "worker"


def summarizer_of(agent: AgentId) -> AgentId:
    """Under whose name the requests for summaries of an agent's history stand in the log."""
    return AgentId(f"{agent}{_SUMMARIZER}")


def owner_of(agent: AgentId) -> AgentId:
    """The agent whose history a request is about: its own, but for a summarizer."""
    return AgentId(agent.removesuffix(_SUMMARIZER))


def agent_of(run: RunId) -> AgentId:
    """The agent that works on a run."""
    return AgentId(run)
