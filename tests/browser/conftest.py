"""What all pages are shown with: a session of the demo."""

from pathlib import Path

import pytest

from tests.browser.chrome import xnagent


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home that `xnagent demo` leaves, made once for the pages of all tests."""
    folder = tmp_path_factory.mktemp("demo")
    xnagent("demo", folder=folder)
    (home,) = folder.glob("xnagent-demo-*/home")
    return home
