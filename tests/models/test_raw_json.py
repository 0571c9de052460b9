"""JSON taken apart without being rewritten."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.speaking import TEXTS
from xnagent.models.raw_json import UNPARSED, argument_text, elements, members, object_text, whole_pairs

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
SPACE = st.sampled_from(["", " ", "\n\t", "\r\n "])


@given(value=st.dictionaries(TEXTS, VALUES, max_size=4), space=SPACE, indent=st.sampled_from([None, 0, 2]))
def test_members_are_the_text_as_it_was_written(value: dict[str, object], space: str, indent: int | None):
    parts = {name: json.dumps(part, indent=indent) for name, part in value.items()}
    joined = ",".join(f"{space}{json.dumps(name)}{space}:{space}{part}{space}" for name, part in parts.items())
    text = f"{space}{{{joined or space}}}{space}"
    assert json.loads(text) == value
    assert members(text) == parts
    assert object_text(text) == whole_pairs(text.strip())


@given(value=st.lists(VALUES, max_size=4), space=SPACE)
def test_elements_are_the_text_as_it_was_written(value: list[object], space: str):
    parts = [json.dumps(part) for part in value]
    text = f"{space}[{','.join(f'{space}{part}{space}' for part in parts) or space}]"
    assert list(elements(text)) == parts


@pytest.mark.parametrize("text", ["1", '"x"', "null", "true"])
def test_what_has_no_parts_has_none(text: str):
    assert members(text) == {}
    assert list(elements(text)) == []
    assert members("[1]") == {}
    assert list(elements("{}")) == []


@given(text=st.one_of(TEXTS, VALUES.map(json.dumps), VALUES.map(json.dumps).map(json.dumps), VALUES.map(repr)))
def test_B004_whatever_was_written_becomes_an_object_that_strict_parsers_take(text: str):
    made = object_text(text)
    value = json.loads(made, parse_constant=pytest.fail)
    assert isinstance(value, dict)
    json.dumps(value, ensure_ascii=False).encode()
    assert object_text(made) == made


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ('{"a":"x\ny"}', '{"a":"x\\ny"}'),
        ('\ufeff{"a":1}', '{"a":1}'),
        ('{"a":"\\ud83d"}', '{"a":"\\ufffd"}'),
        ('{"a":"\\ud83d\\ude00"}', '{"a":"\\ud83d\\ude00"}'),
        ('{"a":"\\\\ud83d \\u00e9"}', '{"a":"\\\\ud83d \\u00e9"}'),
        ('{"a":"\ud83d"}', '{"a":"\ufffd"}'),
        ('"\\"null\\""', "{}"),
        ('{"a":' + "[" * 120 + "]" * 120 + "}", None),
        ('{"a":"' + "[" * 120 + '"}', '{"a":"' + "[" * 120 + '"}'),
        ("[" * 100_000, None),
        ('{"a":' + "9" * 5000 + "}", None),
    ],
)
def test_B055_B020_arguments_that_strict_parsers_would_refuse(text: str, sent: str | None):
    assert object_text(text) == (sent or json.dumps({UNPARSED: text}, separators=(",", ":")))


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ('{"a": "x\\ud83dy"}', '{"a": "x\\ufffdy"}'),
        ('{ "a":"\\ud83d\\ude00" , "b":"\\u00e9"}', None),
        ('{"a":"\\\\ud83d"}', None),
    ],
)
def test_B055_a_string_that_servers_read_as_json_has_no_half_pair_and_stays_as_written_otherwise(
    text: str, sent: str | None
):
    assert argument_text(text) == (sent or text)
