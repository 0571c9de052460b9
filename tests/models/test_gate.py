"""Calls of many sessions on their way to one provider: places, allowances, and one first for a cold head."""

import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from xnagent.core.caching import CacheRule
from xnagent.core.pricing import Price
from xnagent.errors import ModelError
from xnagent.models.catalog import ModelEntry, create_model
from xnagent.models.gate import Ask, Gate, Gates
from xnagent.models.places import Places
from xnagent.models.warming import Warmth
from xnagent.ports import Body

SECONDS = 20


def ask(head: bytes = b"head") -> Ask:
    return Ask(head=head, size_bytes=400)


class Calls:
    """Calls that last until they are let go."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.begun: list[str] = []
        self.over: list[str] = []
        self.first_piece: dict[str, anyio.Event] = {}
        self.end: dict[str, anyio.Event] = {}

    async def call(self, name: str, head: bytes = b"head", headers: Mapping[str, str] | None = None) -> None:
        self.first_piece[name], self.end[name] = anyio.Event(), anyio.Event()
        async with self.gate.turn(ask(head)) as turn:
            self.begun.append(name)
            if headers is not None:
                turn.headers(200, headers)
            async with anyio.create_task_group() as group:
                group.start_soon(self._tell, name, turn)
                await self.end[name].wait()
                group.cancel_scope.cancel()
        self.over.append(name)

    async def _tell(self, name: str, turn: object) -> None:
        await self.first_piece[name].wait()
        turn.first_piece()


async def until(condition: object) -> None:
    with anyio.fail_after(SECONDS):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def settled() -> None:
    """Everything that could begin has begun."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def test_no_more_calls_at_once_than_places_for_all_models_of_an_endpoint():
    gates = Gates(at_once=2)
    one, other = (gates.to(endpoint="e", key="K", model=name, warmth=None) for name in ("a", "b"))
    assert gates.to(endpoint="e", key="K", model="a", warmth=None) is one
    calls, others = Calls(one), Calls(other)
    async with anyio.create_task_group() as group:
        for name in ("a1", "a2"):
            group.start_soon(calls.call, name)
        await until(lambda: len(calls.begun) == 2)
        group.start_soon(others.call, "b1")
        await settled()
        assert others.begun == []
        calls.end["a1"].set()
        await until(lambda: others.begun == ["b1"])
        calls.end["a2"].set()
        others.end["b1"].set()


async def test_siblings_of_a_cold_head_wait_for_the_first_token_and_no_longer():
    calls = Calls(Gate(places=None, warmth=Warmth()))
    async with anyio.create_task_group() as group:
        for name in ("first", "second", "third"):
            group.start_soon(calls.call, name)
            await settled()
        group.start_soon(calls.call, "other", b"another head")
        await until(lambda: calls.begun == ["first", "other"])
        calls.first_piece["first"].set()
        await until(lambda: len(calls.begun) == 4)
        group.start_soon(calls.call, "late")
        await until(lambda: "late" in calls.begun)
        for event in calls.end.values():
            event.set()


async def test_a_first_call_that_fails_hands_the_lead_on():
    calls = Calls(Gate(places=None, warmth=Warmth()))
    async with anyio.create_task_group() as group:
        for name in ("first", "second", "third"):
            group.start_soon(calls.call, name)
            await settled()
        calls.end["first"].set()
        await until(lambda: len(calls.begun) == 2)
        await settled()
        assert len(calls.begun) == 2
        calls.first_piece[calls.begun[1]].set()
        await until(lambda: len(calls.begun) == 3)
        for event in calls.end.values():
            event.set()


@pytest.mark.parametrize("warmth", [None, Warmth(minimum_bytes=5), Warmth(lifetime_seconds=-1)])
async def test_nobody_waits_where_there_is_nothing_to_warm(warmth: Warmth | None):
    calls = Calls(Gate(places=None, warmth=warmth))
    async with anyio.create_task_group() as group:
        group.start_soon(calls.call, "first")
        await until(lambda: calls.begun == ["first"])
        if warmth is not None and warmth.lifetime_seconds < 0:
            calls.first_piece["first"].set()
            await settled()
        group.start_soon(calls.call, "second")
        await until(lambda: len(calls.begun) == 2)
        for event in calls.end.values():
            event.set()


async def test_of_the_calls_that_wait_the_one_whose_cache_expires_first_goes_first():
    gate = Gate(places=Places(1))
    order: list[float | None] = []
    end = anyio.Event()

    async def call(due: float | None) -> None:
        async with gate.turn(Ask(head=b"", size_bytes=1, due=due)):
            order.append(due)
            if len(order) == 1:
                await end.wait()

    async with anyio.create_task_group() as group:
        now = anyio.current_time()
        for due in (now, None, now + 200, now + 5):
            group.start_soon(call, due)
            await settled()
        end.set()
    assert order == [now, now + 5, None, now + 200]


async def test_calls_wait_for_the_reset_instead_of_being_refused():
    calls = Calls(Gate(places=None))
    used_up = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-limit-requests": "9"}
    async with anyio.create_task_group() as group:
        group.start_soon(calls.call, "first", b"", used_up | {"x-ratelimit-reset-requests": "100h"})
        await until(lambda: calls.begun == ["first"])
        group.start_soon(calls.call, "second")
        group.start_soon(calls.call, "third")
        await settled()
        assert calls.begun == ["first"]
        calls.gate.learn(200, used_up | {"x-ratelimit-reset-requests": "50ms"})
        await until(lambda: len(calls.begun) == 3)
        for event in calls.end.values():
            event.set()


async def test_a_call_that_waits_can_be_cancelled():
    gate = Gate(places=Places(1), warmth=Warmth())
    calls = Calls(gate)
    async with anyio.create_task_group() as group:
        group.start_soon(calls.call, "first")
        await until(lambda: calls.begun == ["first"])
        with anyio.move_on_after(0.01):
            async with gate.turn(ask()):
                pytest.fail("it should wait")
        with anyio.move_on_after(0.01):
            async with gate.turn(ask(b"other")):
                pytest.fail("it should wait")
        calls.end["first"].set()
        group.start_soon(calls.call, "second")
        await until(lambda: "second" in calls.begun)
        calls.end["second"].set()
    assert calls.over == ["first", "second"]


@pytest.mark.parametrize(
    ("price", "whole", "waits"),
    [
        (None, False, False),
        (Price(input_usd=1, cached_usd=1, output_usd=1), False, False),
        (Price(input_usd=1, cached_usd=0.1, output_usd=1), False, True),
        (Price(input_usd=1, cached_usd=0.1, output_usd=1), True, False),
    ],
)
async def test_only_models_with_a_cheaper_cache_are_warmed(price: Price | None, waits: bool, whole: bool):
    gates = Gates()
    cache = CacheRule(has_whole_requests=whole)
    create_model(ModelEntry(name="m", base_url="http://127.0.0.1:1/v1", price=price, cache=cache), None, gates=gates)
    (gate,) = gates.gates.values()
    calls = Calls(gate)
    async with anyio.create_task_group() as group:
        group.start_soon(calls.call, "first")
        await until(lambda: calls.begun == ["first"])
        group.start_soon(calls.call, "second")
        await settled()
        assert (calls.begun == ["first"]) is waits
        group.cancel_scope.cancel()


class Limited(ThreadingHTTPServer):
    """A provider with a fixed window: so many requests in each, told in headers, and 429 for what comes above."""

    daemon_threads = True
    limit, window_seconds = 4, 1.5

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), LimitedHandler)
        self.lock = threading.Lock()
        self.begins, self.left, self.answered, self.refused = 0.0, 0, 0, 0

    def take(self) -> tuple[int, dict[str, str]]:
        with self.lock:
            now = time.monotonic()
            if now >= self.begins + self.window_seconds:
                self.begins, self.left = now, self.limit
            is_allowed = self.left > 0
            self.left -= is_allowed
            self.answered, self.refused = self.answered + is_allowed, self.refused + (not is_allowed)
            reset = f"{max(self.begins + self.window_seconds - now, 0) * 1000:.0f}ms"
            told = {"limit": str(self.limit), "remaining": str(self.left), "reset": reset}
            headers = {f"x-ratelimit-{name}-requests": value for name, value in told.items()}
            return (200, headers) if is_allowed else (429, {"retry-after-ms": "50"})


class LimitedHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, headers = self.server.take()
        body = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        self.send_response(status)
        for name, value in {"content-type": "text/event-stream", "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        return


@pytest.fixture
def limited() -> Iterator[Limited]:
    with Limited() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_many_calls_wait_for_each_window_and_none_is_refused(limited: Limited):
    url = f"http://127.0.0.1:{limited.server_port}/v1"
    gates = Gates()
    models = [create_model(ModelEntry(name="m", base_url=url), None, gates=gates) for _ in range(4)]
    body = Body(content=b"{}", sha256="", segments=(b"{}",))
    await models[0].send(body)
    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(models[number % 4].send, body)
    for model in models:
        await model.aclose()
    assert (limited.answered, limited.refused) == (9, 0)


async def test_one_refusal_with_retry_after_pauses_the_others_too(limited: Limited):
    url = f"http://127.0.0.1:{limited.server_port}/v1"
    gates = Gates()
    model = create_model(ModelEntry(name="m", base_url=url), None, gates=gates)
    (gate,) = gates.gates.values()
    limited.begins, limited.left = time.monotonic() + 60, 0
    with pytest.raises(ModelError) as caught:
        await model.send(Body(content=b"{}", sha256="", segments=()))
    await model.aclose()
    assert caught.value.fault == "rate_limited"
    assert gate.quota.not_before > 0
