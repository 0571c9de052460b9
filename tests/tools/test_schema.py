"""B004 and B020: arguments as models write them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.ports import ToolSpec
from xnagent.tools.schema import ArgumentProblem, parse_arguments

EDIT = ToolSpec(
    name="edit",
    description="",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "old": {"type": "string"},
            "new": {"type": "string"},
            "all": {"type": "boolean"},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    },
)
READ = ToolSpec(
    name="read",
    description="",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "integer"},
            "mode": {"enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        },
        "additionalProperties": False,
    },
)


def problem(raw, spec=READ):
    found = parse_arguments(raw, spec)
    assert isinstance(found, ArgumentProblem), found
    assert found.text.startswith("BAD_ARGS: ")
    return found.text


def test_B004_cut_off_arguments_are_refused_with_place_and_shape():
    text = problem('{"path":"a.py","old_text":"x"', EDIT)
    assert "position 29" in text
    assert "cut off" in text
    assert '{"path": string, "old": string, "new": string, "all"?: boolean}' in text


@pytest.mark.parametrize("raw", ["", "   ", "null", "{}", '"{}"', '""', "\ufeff{}", '"null"'])
def test_B020_nothing_is_an_empty_object(raw):
    assert parse_arguments(raw, READ) == {}
    assert "missing: path; missing: old; missing: new" in problem(raw, EDIT)


def test_B020_double_encoded_arguments_are_read():
    assert parse_arguments('"{\\"path\\":\\"a\\"}"', READ) == {"path": "a"}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("[]", "an array, not an object"),
        ("3", "an integer, not an object"),
        ("true", "a boolean, not an object"),
        ('{"path":"a"', "cut off"),
        ('{"path":"a', "cut off"),
        ('{"path":"a"}{"path":"b"}', "second begins at position 12"),
        ('{"path":"a"} and so on', "more than one"),
        ('{"path":a}', "position 8"),
        ("path=a", "not valid JSON"),
        ('"path"', "not valid JSON"),
        ("[" * 100_000, "JSON"),
        ('{"limit":' + "9" * 5000 + "}", "JSON"),
    ],
)
def test_B020_broken_arguments_are_not_run(raw, why):
    assert why in problem(raw)


def test_an_unknown_field_names_the_nearest():
    assert "unknown field limt, did you mean limit?" in problem('{"limt":3}')
    assert "unknown field zzz" in problem('{"zzz":3}')


def test_other_names_are_accepted_silently():
    raw = '{"file_path":"a","old_string":"x","new_string":"y","replace_all":"true"}'
    assert parse_arguments(raw, EDIT) == {"path": "a", "old": "x", "new": "y", "all": True}


def test_a_name_and_its_alias_must_agree():
    assert parse_arguments('{"path":"a","file":"a"}', READ) == {"path": "a"}
    assert "unknown field file" in problem('{"path":"a","file":"b"}')


@pytest.mark.parametrize(("value", "number"), [("5", 5), ('"5"', 5), ('"-3"', -3), ("5.0", 5), ('"5.0"', 5)])
def test_numbers_are_coerced_when_exact(value, number):
    found = parse_arguments(f'{{"limit":{value}}}', READ)
    assert found == {"limit": number}
    assert type(found["limit"]) is int


@pytest.mark.parametrize("value", ["5.5", '"five"', '"5.5"', "true", "[]", '""', "1e999", "NaN"])
def test_other_numbers_are_refused(value):
    assert "must be an integer" in problem(f'{{"limit":{value}}}')


def test_values_are_checked_at_every_depth():
    text = problem('{"mode":"c","tags":["x",[]],"where":{"y":1}}')
    for part in ['mode is "c" (string)', "tags[1] is [] (array)", "unknown field where.y", "missing: where.x"]:
        assert part in text


def test_containers_written_as_strings_are_read():
    found = parse_arguments('{"tags":"[\\"x\\"]","where":"{\\"x\\":\\"1\\"}","path":7,"limit":null}', READ)
    assert found == {"tags": ["x"], "where": {"x": 1}, "path": "7"}


def test_lone_surrogates_do_not_get_in():
    found = parse_arguments('{"path":"\\ud83d\\ude00 \\ud83d"}', READ)
    assert found == {"path": "😀 \ufffd"}


@given(
    st.text(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["path", "file", "limit", "where", "x", "q"]), inner, max_size=3)
        ),
    ).map(json.dumps)
)
def test_B020_no_argument_string_raises(raw):
    for spec in (READ, EDIT):
        found = parse_arguments(raw, spec)
        if isinstance(found, ArgumentProblem):
            found.text.encode()
        else:
            assert set(found) <= set(spec.parameters["properties"])
            json.dumps(found, ensure_ascii=False).encode()
