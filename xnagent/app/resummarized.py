"""What a stored summary must be: a function of the replies that it was read from, and of the values before it."""

from __future__ import annotations

from functools import reduce

from xnagent.agents.summary_request import read_reply, stored_value
from xnagent.core.ids import summarizer_of
from xnagent.core.items import UserText, closed_groups
from xnagent.core.state import SessionState, spine_of, work_of
from xnagent.core.summary import joined, replaced_values
from xnagent.core.summary_events import SummaryMade
from xnagent.store.artifacts import digest, ticket_of


def is_same_summary(event: SummaryMade, before: SessionState) -> bool:
    """Whether text and values come out of the replies again as they are stored."""
    summary, spine = work_of(before, event.agent).summary, spine_of(before, event.agent)
    if summary.attempt is None:
        return False
    own = summary.attempt.covers if summary.attempt.form == "aligned" else 0
    said = spine_of(before, summarizer_of(event.agent)).items[own + len(summary.attempt.items) :]
    replies = [read_reply(group) for group in closed_groups(said) if not isinstance(group[0], UserText)]
    if not replies:
        return False
    answer = reduce(joined, replies)
    found = replaced_values(summary.values, answer, history=spine.items).values
    values = {name: stored_value(value, put=lambda data: ticket_of(digest(data))) for name, value in found.items()}
    return (answer.text, tuple(sorted(values.items()))) == (event.text, event.values)
