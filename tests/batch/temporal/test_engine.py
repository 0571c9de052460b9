"""What only an engine with a server can do: be reached or not, lose the server, be shared by batches."""

from contextlib import suppress
from functools import partial

import anyio
import pytest

from tests import temporal_server
from tests.batch.engines import SECONDS, Doing, orders, results
from xnagent.batch.engine import JobContext, JobOrder, LeaseLostError
from xnagent.batch.queue import Terms
from xnagent.batch.remote import Remote, release_when_asked_again, temporal_engine
from xnagent.batch.stopping import BatchStop
from xnagent.errors import UsageError

pytest.importorskip("temporalio", reason="the extra temporal is not installed")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def remote(server: temporal_server.Server, batch: str, **more: object) -> Remote:
    return Remote(environ={}, address=server.address, task_queue=batch, batch=batch, **more)


async def test_the_environment_names_the_server_as_for_temporals_own_tools(temporal_server: temporal_server.Server):
    environ = {"TEMPORAL_ADDRESS": temporal_server.address, "TEMPORAL_NAMESPACE": "default"}
    async with temporal_engine(Remote(environ=environ)) as engine:
        assert engine.notes == ()
    with pytest.raises(UsageError, match=r"ENGINE_NAMESPACE: .* no namespace elsewhere"):
        async with temporal_engine(Remote(environ={**environ, "TEMPORAL_NAMESPACE": "elsewhere"})):
            pass


async def test_a_server_that_does_not_answer_is_told_before_anything_begins():
    address = f"127.0.0.1:{temporal_server.free_port()}"
    with pytest.raises(UsageError, match=f"ENGINE_UNREACHABLE: no Temporal server answers at {address}.*--address"):
        async with temporal_engine(Remote(environ={}, address=address)):
            pass


async def test_an_older_server_is_told_of(older_temporal_server: temporal_server.Server):
    async with temporal_engine(remote(older_temporal_server, "older")) as engine:
        assert "each job is a workflow" in "".join(engine.notes)


async def test_higher_priorities_come_before_what_waits(temporal_server: temporal_server.Server):
    done: list[str] = []

    async def do(context: JobContext) -> str:
        done.append(context.order.job)
        if context.order.job == "first":
            begun.set()
            await submitted.wait()
        return ""

    begun, submitted, closing = anyio.Event(), anyio.Event(), anyio.Event()
    low = [JobOrder(job=f"low-{number}", payload="", priority=-1) for number in range(3)]
    async with temporal_engine(remote(temporal_server, "priorities")) as engine, anyio.create_task_group() as group:
        group.start_soon(partial(engine.work, Doing(do), slots=1, closing=closing))
        await engine.submit(orders("first"))
        await begun.wait()
        await engine.submit([*low, JobOrder(job="urgent", payload="", priority=7)])
        submitted.set()
        await results(engine, count=5)
        closing.set()
    assert done.index("urgent") < done.index("low-2")


async def test_B061_jobs_outlive_their_batch_and_its_successor_takes_them_up(temporal_server: temporal_server.Server):
    handled: list[str] = []

    async def do(context: JobContext) -> str:
        handled.append(context.order.payload)
        begun.set()
        await again.wait()
        return "done"

    begun, again, closing = anyio.Event(), anyio.Event(), anyio.Event()
    async with temporal_engine(remote(temporal_server, "outlived")) as worker, anyio.create_task_group() as group:
        group.start_soon(partial(worker.work, Doing(do), slots=1, closing=closing))
        async with temporal_engine(remote(temporal_server, "outlived")) as first:
            await first.submit(orders("a"))
            await begun.wait()
        async with temporal_engine(remote(temporal_server, "outlived")) as second:
            await second.submit([JobOrder(job="a", payload="another")])
            again.set()
            assert await results(second, count=1) == {"a": "done"}
        closing.set()
    assert handled == ["payload of a"]


async def test_who_asks_twice_to_stop_waits_for_no_worker(temporal_server: temporal_server.Server):
    stop = BatchStop()
    async with temporal_engine(remote(temporal_server, "let-go")) as engine, anyio.create_task_group() as group:
        await engine.submit(orders("a", "b"))
        group.start_soon(release_when_asked_again, engine, stop)
        stop.request("SIGINT")
        stop.request("SIGINT")
        assert await results(engine, count=2) == {"a": "", "b": ""}


async def test_M92_a_server_that_is_killed_comes_back_to_the_same_worker_and_the_same_batch():
    if (reason := temporal_server.why_not()) is not None:
        pytest.skip(reason)
    attempts: list[tuple[str, int]] = []

    async def do(context: JobContext) -> str:
        attempts.append((context.order.job, context.attempt))
        begun.set()
        while not back.is_set():
            with suppress(LeaseLostError):
                await context.heartbeat()
            await anyio.sleep(0.1)
        return "done"

    begun, back, closing = anyio.Event(), anyio.Event(), anyio.Event()
    with temporal_server.server() as server:
        terms = Terms(lease_seconds=60)
        async with (
            temporal_engine(remote(server, "killed", terms=terms)) as engine,
            anyio.create_task_group() as group,
        ):
            group.start_soon(partial(engine.work, Doing(do), slots=1, closing=closing))
            await engine.submit(orders("a", "b"))
            await begun.wait()
            await anyio.to_thread.run_sync(server.crash)
            await anyio.to_thread.run_sync(server.start)
            back.set()
            with anyio.fail_after(SECONDS):
                assert await results(engine, count=2) == {"a": "done", "b": "done"}
            closing.set()
    assert sorted(job for job, _ in attempts) == ["a", "b"]
