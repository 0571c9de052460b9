"""What an order carries to a worker, and what the worker reports back: plain JSON, so that any engine can carry it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from xnagent.config import Settings
from xnagent.config.load import stored_settings
from xnagent.core.ids import SessionId
from xnagent.core.limits import spent_tokens, spent_usd
from xnagent.core.state import SessionState
from xnagent.core.text import Json

LENT: Final = ("usd", "tokens")
"""The limits of a session that a batch may lend."""
Record = dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A session to begin or to go on with. Holds no key: keys are in each worker's own environment."""

    session: SessionId
    objective: str
    repository: str
    commit: str | None
    settings: Settings
    goes_on: bool = False
    """It used up what it was lent and may use more now."""

    def dump(self) -> str:
        """As JSON."""
        fields = {name: getattr(self, name) for name in self.__slots__} | {"settings": self.settings.model_dump_json()}
        return json.dumps(fields, ensure_ascii=False)


def parse_assignment(text: str) -> Assignment:
    """Read what `dump` wrote."""
    assignment = Assignment(**json.loads(text))
    return replace(assignment, settings=stored_settings(str(assignment.settings), session=assignment.session))


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a session used, from its beginning on."""

    usd: float | None = 0.0
    """None: the price is not known."""
    tokens: int = 0
    limit: str | None = None
    """The limit that it met, if that ended it."""


def use_of(state: SessionState | None) -> Use:
    """What the log says."""
    if state is None:
        return Use()
    is_ended_by_it = state.limit is not None and state.settled is not None and state.settled.outcome == "limit"
    limit = state.limit.limit if state.limit is not None and is_ended_by_it else None
    return Use(usd=spent_usd(state), tokens=spent_tokens(state), limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a worker left a job."""

    use: Use
    record: Record | None = None
    """The final record; None: it is not at its end, and goes on another time."""
    problem: str | None = None
    """Why it could not be done now."""

    def dump(self) -> str:
        """As JSON."""
        use = {name: getattr(self.use, name) for name in Use.__slots__}
        return json.dumps({"use": use, "record": self.record, "problem": self.problem}, ensure_ascii=False)


def parse_report(text: str) -> Report | None:
    """Read what `dump` wrote; None: nobody had the job."""
    if not text:
        return None
    fields = json.loads(text)
    return Report(use=Use(**fields["use"]), record=fields["record"], problem=fields["problem"])
