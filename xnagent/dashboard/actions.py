"""What a page can do to a session: the letters of `xnagent tell` and `xnagent cancel`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from xnagent.app.host import Host
from xnagent.app.steering import cancel_session, tell_session
from xnagent.core.ids import SessionId
from xnagent.core.text import clean
from xnagent.dashboard.watch import READ_FAULTS
from xnagent.errors import UsageError
from xnagent.store.mailbox import LONGEST_BYTES

REASON: Final = "cancelled in the browser"
JSON: Final = "application/json"


class _RefusedError(Exception):
    """The request is no action."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """Both answer with one object: what became of it, or `error`."""

    host: Host

    async def tell(self, request: Request) -> Response:
        """`{"text": …}`: say something more to the Planner; kept for the next `resume` where nobody runs it."""

        async def work(session: SessionId, told: Mapping[str, object]) -> dict[str, object]:
            text = clean(str(told.get("text", "")))
            if not text.strip():
                raise _RefusedError(400, "MESSAGE_EMPTY: the message is empty; say something")
            outcome = await tell_session(self.host, session, text=text)
            return {"status": outcome.status, "message": outcome.message, "is_running": outcome.is_running}

        return await _answered(request, work)

    async def cancel(self, request: Request) -> Response:
        """`{}` or `{"reason": …}`: stop a running session in order."""

        async def work(session: SessionId, told: Mapping[str, object]) -> dict[str, object]:
            reason = clean(str(told.get("reason") or REASON))
            outcome = await cancel_session(self.host, session, reason=reason)
            return {"status": outcome.status, "outcome": outcome.outcome}

        return await _answered(request, work)


Work = Callable[[SessionId, Mapping[str, object]], Awaitable[dict[str, object]]]


async def _answered(request: Request, work: Work) -> Response:
    try:
        session = SessionId(request.path_params["session"])
        return JSONResponse(await work(session, await _content(request)))
    except _RefusedError as error:
        return JSONResponse({"error": str(error)}, error.status)
    except READ_FAULTS as error:
        return JSONResponse({"error": clean(str(error))}, 400 if isinstance(error, UsageError) else 500)


async def _content(request: Request) -> Mapping[str, object]:
    """The object that was sent. Raises `_RefusedError`."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != JSON:
        raise _RefusedError(415, f"CONTENT_TYPE: send {JSON}")
    content = b""
    async for piece in request.stream():
        content += piece
        if len(content) > LONGEST_BYTES:
            raise _RefusedError(413, f"MESSAGE_TOO_LONG: {LONGEST_BYTES:,} bytes are allowed")
    try:
        told = json.loads(content or b"{}")
    except ValueError:
        raise _RefusedError(400, "CONTENT: this is no JSON") from None
    if not isinstance(told, dict):
        raise _RefusedError(400, "CONTENT: send an object")
    return told
