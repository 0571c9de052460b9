"""Secrets leave what a page is made of, however much is looked through at once."""

import html
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xnagent.core.masking import SHELL_SPECIAL, Mask, Secret, mask_of
from xnagent.inspect.page.hiding import CHUNK, HiddenRecords, hidden, hidden_lines
from xnagent.inspect.page.markup import written

VALUE = 'sk-"a$b\\n<é\U0001f600>&0123456789'
MASK = mask_of([Secret(name="A_KEY", value=VALUE)])
FORMS = {
    "as it is": VALUE,
    "a piece of it": VALUE[:16],
    "wrapped": "\n".join((VALUE[:9], VALUE[9:])),
    "with tabs": "\t".join(VALUE),
    "for a shell": SHELL_SPECIAL.sub(r"\\\1", VALUE),
    "as JSON": json.dumps(VALUE)[1:-1],
    "as JSON in JSON": json.dumps(json.dumps(VALUE, ensure_ascii=False)[1:-1])[1:-1],
    "as HTML": html.escape(VALUE),
    "as hexadecimal digits": VALUE.encode().hex(),
}

pieces = st.one_of(st.sampled_from(sorted(FORMS.values())), st.text('\\"n\n\0 é\U0001f600'))
texts = st.lists(pieces, max_size=3).map("".join)
values = st.recursive(
    st.one_of(texts, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_form_of_a_secret_is_left(form):
    told = {"text": f"before\\{form}\\ after", "other": "x"}
    assert hidden(told, MASK) == {"text": "before\\[secret:A_KEY]\\ after", "other": "x"}


@given(value=values)
@example(value=[VALUE[:10], VALUE[10:]])
def test_it_is_what_the_mask_makes_of_each_text(value):
    assert hidden(value, MASK) == MASK.value(value)


def test_what_holds_none_is_handed_on_as_it_is():
    value = {"text": f"{VALUE[:4]} is no secret"}
    assert hidden(value, MASK) is value
    assert hidden({"text": VALUE}, Mask()) == {"text": VALUE}


def test_lines_stay_in_their_order_and_only_those_that_hold_one_are_made_anew():
    records = [{"seq": seq, "text": f"{seq}\n<\\"} for seq in range(2 * CHUNK + 1)]
    records[CHUNK] = {"seq": CHUNK, "text": FORMS["wrapped"]}
    lines = list(hidden_lines(map(written, records), records, mask=MASK))
    assert lines == [written(record) for record in MASK.value(records)]
    assert lines[CHUNK] == '{"seq":1000,"text":"[secret:A_KEY]"}'
    assert list(hidden_lines(map(written, records), records, mask=Mask())) == list(map(written, records))


def test_events_that_are_looked_at_one_by_one_hold_none_either():
    assert HiddenRecords([{"text": VALUE}], MASK)[0] == {"text": "[secret:A_KEY]"}
