"""Instructions and skills as messages: what is told, when, and that no text leaves its place."""

import re

from hypothesis import given
from hypothesis import strategies as st

from xnagent.core.ids import Ticket
from xnagent.core.project import Project, contained, fingerprint, head_of, news_of, reminders
from xnagent.core.project_events import InstructionFile, Skill

TAGS = st.sampled_from(["</project>", "</instructions>", "</skills>", "</SKILL>", "<project>", "</div>", "x", "\n"])


def skill(name: str, description: str, *, body: str = "artifact:0000000000000000") -> Skill:
    return Skill(name=name, description=description, origin="user", folder=name, body=Ticket(body))


def file(path: str, text: str = "Rules.") -> InstructionFile:
    return InstructionFile(path=path, text=text, sha256="0" * 64)


def test_m8_the_fingerprint_is_of_names_and_descriptions_alone():
    one = skill("a", "Does a.")
    assert fingerprint([one]) == fingerprint([skill("a", "Does a.", body="artifact:1111111111111111")])
    assert len({fingerprint(skills) for skills in ([], [one], [skill("a", "Does b.")], [one, one])}) == 4


@given(st.lists(TAGS).map("".join))
def test_t24_no_text_closes_what_stands_around_it(text: str):
    (message,), _ = head_of(Project(instructions=(file("AGENTS.md", text),)))
    assert message.origin == "project"
    assert message.text.count("</instructions>") == message.text.count("</project>") == 1
    assert not re.search("</(skill|SKILL)", contained(text))
    assert contained(text).count("</div>") == text.count("</div>"), "other tags stay as they are"


def test_m42_a_folders_file_is_told_for_what_is_below_it_and_only_once():
    project = Project(instructions=(file("AGENTS.md"), file("src/AGENTS.md")))
    assert news_of(project, told=(), touched=["srcs/a.py", "a.py"]) == ((), ())
    (message,), keys = news_of(project, told=("AGENTS.md",), touched=["src/deep/a.py"])
    assert (keys, 'path="src/AGENTS.md"' in message.text) == (("src/AGENTS.md",), True)
    assert news_of(project, told=keys, touched=["src/deep/a.py"]) == ((), ())


def test_m113_a_checkpoint_lists_skills_anew_only_if_they_are_not_those_of_the_head():
    before = Project(skills=(skill("a", "Does a."),), has_skill_tool=True)
    head, _ = head_of(before)
    assert reminders(before, told=(), active=(), head=head) == ["Skills, described above: a"]
    after = Project(skills=(skill("b", "Does b."),), has_skill_tool=True)
    listed, used = reminders(after, told=(), active=("a", "b"), head=head)
    assert "- b (user): Does b." in listed
    assert used.endswith("a, b (read artifact:0000000000000000)")
    gone = Project(has_skill_tool=True)
    assert "none can be used" in reminders(gone, told=(), active=(), head=head)[0]
    assert reminders(Project(), told=(), active=(), head=()) == []
