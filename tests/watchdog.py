"""The last guard against a test that never ends.

pytest-timeout raises inside the test, once. What waits on in a `finally`, in a fixture's end or in code that swallows
the exception has nobody left to end it, and one such test holds up the whole run. So a thread that needs no Python to
run writes where every thread stands and ends the process; pytest-xdist tells of the test by name and goes on.
"""

import faulthandler
import os
import signal
from collections.abc import Iterator

import pytest

GRACE = 60.0  # seconds that a test has to end after its own timeout

_held = pytest.StashKey[tuple[int, float]]()  # where to write, and the seconds of the test that runs


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    own = marker.args[0] if marker is not None and marker.args else item.config.getini("timeout")
    return float(own) + GRACE


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what runs in its background with SIGINT ignored; servers that tests end by it would never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_held] = (os.dup(2), 0.0)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (held := config.stash.get(_held, None)) is not None:
        os.close(held[0])
        del config.stash[_held]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    where, _ = item.config.stash[_held]
    item.config.stash[_held] = (where, _limit(item))
    faulthandler.dump_traceback_later(_limit(item), file=where, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Start again: pytest's own plugin has just taken the timer away, and what follows is a fixture's end."""
    where, limit = node.config.stash[_held]
    if limit:
        faulthandler.dump_traceback_later(limit, file=where, exit=True)
