"""What every test gets: both async backends, and property tests that repeat themselves."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import temporal_server as temporal
from tests.database import Server, running, why_not

pytest_plugins = ["tests.watchdog"]

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("ci")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test on both; a module that needs one overrides this fixture."""
    return request.param


@pytest.fixture(scope="session")
def database_server() -> Iterator[Server]:
    """A PostgreSQL server, started when the first test asks for it."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[temporal.Server]:
    """A Temporal server for all tests of this process that only need one."""
    if (reason := temporal.why_not()) is not None:
        pytest.skip(reason)
    with temporal.server(*temporal.EXACT) as server:
        yield server


@pytest.fixture(scope="session")
def older_temporal_server() -> Iterator[temporal.Server]:
    """One that does not know standalone activities."""
    if (reason := temporal.why_not()) is not None:
        pytest.skip(reason)
    with temporal.server(*temporal.EXACT, *temporal.WRAPPED) as server:
        yield server
