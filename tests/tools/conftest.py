import pytest

from tests.tools.scene import Scene


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)
