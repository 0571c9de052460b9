"""The connection to a Temporal server: made once, asked what it can do, and patient when the server is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode

from xnagent.batch.engine import EngineError
from xnagent.batch.remote import Remote
from xnagent.errors import UsageError

DEFAULT_ADDRESS: Final = "localhost:7233"
CONNECT_SECONDS: Final = 15.0
AWAY_SECONDS: Final = 600.0
"""A server that is away for so long is given up."""
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
PASSING: Final = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    }
)
"""What may be gone a moment later: the server is away, begins, or has too much to do."""
PROBE: Final = "xnagent-probe"
T = TypeVar("T")


async def connect(remote: Remote) -> Client:
    """A client whose server answered. Raises UsageError."""
    try:
        settings = ClientConfig.load_client_connect_config(override_env_vars=dict(remote.environ))
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"ENGINE_SETTINGS: Temporal's settings (TEMPORAL_…) can't be read: {error}") from error
    address = remote.address or settings.get("target_host") or DEFAULT_ADDRESS
    settings["target_host"] = address
    settings["namespace"] = remote.namespace or settings.get("namespace") or "default"
    quiet = TelemetryConfig(logging=LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR")))
    try:
        with anyio.fail_after(CONNECT_SECONDS):
            client = await Client.connect(**settings, runtime=Runtime(telemetry=quiet))
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except (RPCError, RuntimeError, TimeoutError, ValueError) as error:
        raise UsageError(_unreachable(error, address, namespace=settings["namespace"])) from error
    return client


def _unreachable(error: Exception, address: str, *, namespace: str) -> str:
    if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
        return f"ENGINE_NAMESPACE: the Temporal server at {address} has no namespace {namespace}; choose --namespace"
    if isinstance(error, RPCError) and error.status in {
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
    }:
        return f"ENGINE_REFUSED: the Temporal server at {address}: {error.message}; look at TEMPORAL_API_KEY and TLS"
    detail = " ".join(str(error).split()) or f"no answer within {CONNECT_SECONDS:.0f} s"
    return (
        f"ENGINE_UNREACHABLE: no Temporal server answers at {address} ({detail}); start one, or name it with --address"
    )


async def has_standalone_activities(client: Client) -> bool:
    """Whether the server knows activities without a workflow around them."""
    try:
        await lasting(client.get_activity_handle(PROBE).describe)
    except RPCError as error:
        return error.status is not RPCStatusCode.UNIMPLEMENTED
    return True


async def lasting(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call again until the server is back. Raises RPCError for what waiting does not help, and EngineError."""
    pause, limit = FIRST_PAUSE_SECONDS, anyio.current_time() + AWAY_SECONDS
    while True:
        try:
            return await call()
        except RPCError as error:
            if error.status not in PASSING:
                raise
            trouble = error.message
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            trouble = "the server broke the call off"
        if anyio.current_time() > limit:
            raise EngineError(
                f"ENGINE_AWAY: the Temporal server did not answer for {AWAY_SECONDS:.0f} s ({trouble}); "
                "run the same command again when it is back: nothing is lost"
            )
        await anyio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def is_being_cancelled() -> bool:
    """Whether this task was cancelled, and not only a call to a server that went away."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
