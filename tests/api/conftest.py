"""Sessions of Python programs, on both backends."""

from pathlib import Path

import pytest

from tests.api.kit import Kit


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)
