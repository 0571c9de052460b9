"""`evolve` is `dataclasses.replace`, sooner."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.evolve import evolve
from xnagent.core.ids import AgentId
from xnagent.core.spine import Spine
from xnagent.core.state import SessionState, WorkLog

KINDS = [SessionState(), Spine(agent=AgentId("r1"), tokens=7), WorkLog(steps=3)]


@given(st.sampled_from(KINDS), st.data())
def test_it_does_what_replace_does(value, data):
    names = data.draw(st.sets(st.sampled_from([field.name for field in fields(value)])))
    changes = {name: data.draw(st.integers()) for name in names}
    assert evolve(value, **changes) == replace(value, **changes)
    assert evolve(value) == value
    assert evolve(value) is not value


def test_an_unknown_name_is_refused():
    with pytest.raises(KeyError):
        evolve(Spine(agent=AgentId("r1")), nothing=1)  # type: ignore[call-arg]
