"""`SKILL.md` as people write it, and why some of them cannot be used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.skills import SkillText, parse_skill


def test_m113_a_skill_is_its_name_description_and_body():
    text = "---\nname: pdf-forms\ndescription: Fill forms: all kinds.\nmetadata:\n  a: b\n---\n\n# Do\n\n---\nthat\n"
    assert parse_skill(text, folder="pdf-forms") == SkillText(
        name="pdf-forms", description="Fill forms: all kinds.", body="# Do\n\n---\nthat"
    )


@pytest.mark.parametrize(
    "written",
    [
        "Use it well.",
        '"Use it well."',
        "'Use it well.'",
        ">\n  Use it\n  well.",
        ">-\n  Use it\n  well.",
        "Use it\n  well.",
    ],
)
def test_m113_a_description_may_be_written_in_the_ways_of_yaml(written: str):
    parsed = parse_skill(f"---\ndescription: {written}\nname: s\n---\nBody", folder="s")
    assert isinstance(parsed, SkillText)
    assert parsed.description == "Use it well."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# No front matter", "no front matter"),
        ("", "no front matter"),
        ("---\nname: s\ndescription: d\n", "no end"),
        ("---\ndescription: d\n---\n", "no `name`"),
        ("---\nname: s\n---\n", "no `description`"),
        ("---\nname: S\ndescription: d\n---\n", "hyphens"),
        ("---\nname: s--t\ndescription: d\n---\n", "hyphens"),
        ("---\nname: other\ndescription: d\n---\n", "not that of its folder, 's'"),
        (f"---\nname: s\ndescription: {'d' * 1025}\n---\n", "1,025 characters"),
    ],
)
def test_m113_what_is_wrong_is_said(text: str, reason: str):
    parsed = parse_skill(text, folder="s")
    assert isinstance(parsed, str)
    assert reason in parsed


@given(st.text())
def test_m113_any_text_is_a_skill_or_has_a_reason(text: str):
    assert parse_skill(text, folder="s")
    assert parse_skill(f"---\n{text}\n---\n", folder="s")
