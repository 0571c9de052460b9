"""Which limits a session's commands get, and what holds them."""

from pathlib import Path

import pytest

from xnagent.app.boxing import limits_told, rules_of
from xnagent.config import SandboxSettings

ALWAYS = "processor time, open files, size of a file by the kernel for each process; disk by measuring"


def test_settings_become_the_limits_of_the_box():
    rules = rules_of(SandboxSettings(processors=1.5, cpu_seconds=7, open_files=8, processes=9, disk_bytes=10))
    assert (rules.processors, rules.cpu_seconds, rules.open_files, rules.processes) == (1.5, 7, 8, 9)
    assert (rules.disk_bytes, rules.file_bytes) == (10, 10)
    usual = rules_of(SandboxSettings())
    assert (usual.processors, usual.cpu_seconds, usual.open_files) == (None, 3_600, 4_096)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "memory, processes by counting, as no control group can be made for it"),
        ({"processors": 2}, "processors by nothing: sandbox.processors needs control groups with cpu"),
    ],
)
def test_where_no_control_groups_are_it_is_said_what_holds_instead(tmp_path: Path, settings, told: str):
    said = limits_told(SandboxSettings(**settings), "landlock", root=tmp_path)
    assert told in said
    assert said.endswith(ALWAYS)


@pytest.mark.parametrize("kind", [None, "sockets"])
def test_without_a_box_there_are_no_limits(kind):
    assert limits_told(SandboxSettings(), kind) == "none: commands run without a box"
