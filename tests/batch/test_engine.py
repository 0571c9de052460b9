"""What every engine must do. Another engine joins by an entry in `engines.ENGINES`."""

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

import anyio
import pytest

from tests.batch.engines import ENGINES, SECONDS, Doing, Place, orders, place_of, results
from xnagent.batch.engine import (
    JobCancelledError,
    JobContext,
    JobOrder,
    JobPostponedError,
    LeaseLostError,
)
from xnagent.batch.queue import Terms

PATIENT = Terms(lease_seconds=60)


@pytest.fixture(params=sorted(ENGINES))
async def place(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Place]:
    async with place_of(request, anyio_backend, terms=PATIENT) as place:
        yield place


@pytest.fixture(params=["local", "temporal"])
async def hasty(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Place]:
    """A place where a silent worker is soon taken for lost."""
    async with place_of(request, anyio_backend, terms=Terms(lease_seconds=0.3, most_losses=2)) as place:
        yield place


@pytest.fixture(params=["local", "temporal"])
async def brisk(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Place]:
    """A place where a worker is not taken for lost because the machine has much to do."""
    async with place_of(request, anyio_backend, terms=Terms(lease_seconds=1.2, most_losses=2)) as place:
        yield place


async def test_each_job_is_done_once_and_handed_back_once(place: Place):
    done: list[str] = []

    async def do(context: JobContext) -> str:
        done.append(context.order.payload)
        assert context.attempt == 1
        return f"result of {context.order.job}"

    engine, closing = await place.connect(), anyio.Event()
    await engine.submit(orders("a", "b"))
    await engine.submit(orders("a", "c"))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(engine.work, Doing(do), slots=2, closing=closing))
        found = await results(engine, count=3)
        await engine.submit(orders("a"))
        await engine.submit(orders("d"))
        found |= await results(engine, count=1)
        closing.set()
    assert found == {job: f"result of {job}" for job in "abcd"}
    assert sorted(done) == [f"payload of {job}" for job in "abcd"]


async def test_higher_priorities_come_first_then_the_order_of_submission(place: Place):
    done: list[str] = []

    async def do(context: JobContext) -> str:
        done.append(context.order.job)
        return ""

    if not place.is_exact:
        pytest.skip("the order is only about that of submission")
    engine, closing = await place.connect(), anyio.Event()
    await engine.submit(orders("a", "b"))
    await engine.submit([JobOrder(job="urgent", payload="", priority=5), *orders("c")])
    async with anyio.create_task_group() as group:
        group.start_soon(partial(engine.work, Doing(do), slots=1, closing=closing))
        await results(engine, count=4)
        closing.set()
    assert done == ["urgent", "a", "b", "c"]


async def test_no_more_than_its_slots_and_none_after_closing(place: Place):
    now, most, done, full, closing, engine = 0, 0, 0, anyio.Event(), anyio.Event(), await place.connect()

    async def do(context: JobContext) -> str:
        nonlocal now, most, done
        now, most = now + 1, max(most, now + 1)
        if most == 3:
            full.set()
        await full.wait()
        await anyio.sleep(0.02)
        now, done = now - 1, done + 1
        if done == 5:
            closing.set()
        return ""

    await engine.submit(orders(*(f"j{number}" for number in range(12))))
    with anyio.fail_after(SECONDS):
        await engine.work(Doing(do), slots=3, closing=closing)
    assert most == 3
    assert 5 <= len(await results(engine, count=5)) < 12


async def test_B049_a_cancelled_job_ends(place: Place):
    begun, engine, other, closing = anyio.Event(), await place.connect(), await place.connect(), anyio.Event()

    async def do(context: JobContext) -> str:
        assert context.order.job == "held"
        begun.set()
        try:
            while True:
                await context.heartbeat()
                await anyio.sleep(0.02)
        except JobCancelledError as error:
            return f"cancelled: {error}"

    await engine.submit(orders("held"))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(engine.work, Doing(do), slots=1, closing=closing))
        await begun.wait()
        await engine.submit(orders("waiting"))
        await engine.cancel("waiting", "enough")
        assert await results(engine, count=1) == {"waiting": ""}
        await other.cancel("held", "enough")
        assert await results(engine, count=1) == {"held": "cancelled: enough"}
        closing.set()


async def test_a_postponed_job_comes_again(place: Place):
    async def do(context: JobContext) -> str:
        if context.attempt < 3:
            raise JobPostponedError("busy", after_seconds=0.05)
        return f"attempt {context.attempt}"

    engine, closing = await place.connect(), anyio.Event()
    await engine.submit(orders("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(engine.work, Doing(do), slots=1, closing=closing))
        assert await results(engine, count=1) == {"a": "attempt 3"}
        closing.set()


async def test_B049_a_cancelled_job_that_is_given_back_ends(place: Place):
    async def do(context: JobContext) -> str:
        begun.set()
        try:
            while True:
                await context.heartbeat()
                await anyio.sleep(0.02)
        except JobCancelledError as error:
            raise JobPostponedError("busy", after_seconds=0) from error

    begun, engine, closing = anyio.Event(), await place.connect(), anyio.Event()
    await engine.submit(orders("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(engine.work, Doing(do), slots=1, closing=closing))
        await begun.wait()
        closing.set()
        await engine.cancel("a", "enough")
        assert await results(engine, count=1) == {"a": ""}


async def test_B048_a_silent_worker_loses_its_job_and_what_it_says_later(hasty: Place):
    taken, told, over, closing = anyio.Event(), anyio.Event(), anyio.Event(), anyio.Event()

    async def silent(context: JobContext) -> str:
        taken.set()
        await told.wait()
        with pytest.raises(LeaseLostError):
            await context.heartbeat()
        return "too late"

    async def lively(context: JobContext) -> str:
        await context.heartbeat()
        return f"attempt {context.attempt}"

    first, second = await hasty.connect(), await hasty.connect()
    await first.submit(orders("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(first.work, Doing(silent), slots=1, closing=over))
        await taken.wait()
        group.start_soon(partial(second.work, Doing(lively), slots=1, closing=closing))
        assert await results(first, count=1) == {"a": "attempt 2"}
        over.set()
        told.set()
        await first.submit(orders("b"))
        assert await results(first, count=1) == {"b": "attempt 1"}
        closing.set()


async def test_a_heartbeat_keeps_a_job_that_takes_longer_than_the_lease(brisk: Place):
    async def slow(context: JobContext) -> str:
        for _ in range(14):
            await anyio.sleep(context.beat_seconds / 2)
            await context.heartbeat()
        return f"attempt {context.attempt}"

    first, second, closing = await brisk.connect(), await brisk.connect(), anyio.Event()
    await first.submit(orders("a"))
    async with anyio.create_task_group() as group:
        for engine in (first, second):
            group.start_soon(partial(engine.work, Doing(slow), slots=1, closing=closing))
        assert await results(first, count=1) == {"a": "attempt 1"}
        closing.set()


@pytest.mark.parametrize("gets_on", [True, False])
async def test_a_job_that_loses_worker_after_worker_is_given_up_unless_it_gets_on(hasty: Place, gets_on: bool):
    closing = anyio.Event()

    async def do(context: JobContext) -> str:
        with suppress(LeaseLostError):
            await context.heartbeat(context.attempt if gets_on else 7)
        if context.attempt >= 4:
            return "done"
        await closing.wait()
        return "never heard"

    engine = await hasty.connect()
    await engine.submit(orders("a"))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(engine.work, Doing(do), slots=9, closing=closing))
        assert await results(engine, count=1) == {"a": "done" if gets_on else "lost"}
        closing.set()
