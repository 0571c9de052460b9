"""A home for every test of the served pages."""

from pathlib import Path

import pytest

from tests.cli.harness import Shell, make_shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return make_shell(tmp_path)
