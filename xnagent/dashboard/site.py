"""The application: which address gives what, and who is let in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Final

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xnagent.dashboard.actions import Actions
from xnagent.dashboard.frames import RETRY, Cursor, cursor_of, told
from xnagent.dashboard.gate import Asked, Gate, Verdict
from xnagent.dashboard.hub import Hub
from xnagent.dashboard.pages import Offers, frame_of, list_frame, list_page, plain_page, session_frame, session_page
from xnagent.dashboard.watch import READ_FAULTS, in_thread
from xnagent.errors import UsageError

SLOW_SECONDS: Final = 30.0
"""A viewer that takes nothing for so long is let go; it comes back to where it was."""
MOST_VIEWERS: Final = 256
HEADERS: Final = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
REFUSALS: Final[Mapping[Verdict, tuple[int, str]]] = {
    "wrong_host": (421, "HOST_REFUSED: this server is not called that; open the address that xnagent serve printed"),
    "wrong_site": (403, "SITE_REFUSED: a page from elsewhere asked for this; open the address in a window of its own"),
    "no_token": (401, "TOKEN_MISSING: open the address that xnagent serve printed, with its token"),
}


class EventStream(StreamingResponse):
    """Server-sent events; whoever does not take them is let go."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        self._frames = frames
        super().__init__(frames)

    async def stream_response(self, send: Send) -> None:
        """Send them as long as they are taken."""

        async def sent(message: Message) -> None:
            with anyio.fail_after(SLOW_SECONDS):
                await send(message)

        try:
            await super().stream_response(sent)
        except TimeoutError:
            return
        finally:
            with anyio.CancelScope(shield=True):
                await self._frames.aclose()


@dataclass(slots=True, kw_only=True)
class Site:
    """The endpoints."""

    hub: Hub
    offers: Offers
    actions: Actions
    viewers: int = 0

    async def list(self, _request: Request) -> Response:
        """All sessions."""
        directory = self.hub.directory
        if not directory.viewers:
            await directory.look()
        return HTMLResponse(list_page(directory), headers=_policy(list_frame().policy))

    async def list_events(self, request: Request) -> Response:
        """What changes in the list."""
        return self._stream(_listing(self.hub, _place(request)))

    async def session(self, request: Request) -> Response:
        """One session."""
        name = request.path_params["session"]
        try:
            exists = await in_thread(self.hub.sessions.place(name).exists)
        except READ_FAULTS as error:
            return _plain(404 if isinstance(error, UsageError) else 503, str(error), title="It cannot be shown")
        if not exists:
            return _plain(404, f"SESSION_NOT_FOUND: there is no session {name}", title="Not found")
        content = session_page(name, self.hub.watching(name), offers=self.offers)
        return StreamingResponse(content, media_type="text/html", headers=_policy(session_frame().policy))

    async def session_events(self, request: Request) -> Response:
        """What changes in one session."""
        return self._stream(_session(self.hub, request.path_params["session"], cursor=_place(request)))

    def _stream(self, frames: AsyncGenerator[bytes, None]) -> Response:
        if self.viewers >= MOST_VIEWERS:
            return JSONResponse({"error": "TOO_MANY_VIEWERS: close a window and open this one again"}, 503)
        return EventStream(self._counted(frames))

    async def _counted(self, frames: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        self.viewers += 1
        try:
            yield RETRY
            async for frame in frames:
                yield frame
        finally:
            self.viewers -= 1
            await frames.aclose()


async def _listing(hub: Hub, cursor: Cursor) -> AsyncGenerator[bytes, None]:
    with hub.directory.viewed():
        async for frame in hub.directory.frames(cursor):
            yield frame


async def _session(hub: Hub, name: str, *, cursor: Cursor) -> AsyncGenerator[bytes, None]:
    try:
        async with hub.watching(name) as watch:
            async for frame in watch.frames(cursor):
                yield frame
    except READ_FAULTS as error:
        yield told("problem", {"text": hub.mask.text(str(error))})


def _place(request: Request) -> Cursor:
    """Where the viewer is: what it says when it comes back, or what its page says."""
    return cursor_of(request.headers.get("last-event-id") or request.query_params.get("after", ""))


def _policy(policy: str) -> dict[str, str]:
    return {"content-security-policy": f"{policy}; frame-ancestors 'none'"}


def _plain(status: int, text: str, *, title: str, target: str = "") -> Response:
    page = plain_page(title, text, target=target)
    return HTMLResponse(page, status, headers=_policy(frame_of().policy))


class Guarded:
    """The application behind its gate; every answer has the headers that keep it to itself."""

    def __init__(self, app: ASGIApp, *, gate: Gate, cookie: str) -> None:
        """`cookie` is the name of the token's: each port has its own."""
        self._app = app
        self._gate = gate
        self._cookie = cookie

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        """Let in, or refuse."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await _send(message)

        asked = self._asked(scope)
        verdict = self._gate.verdict(asked)
        answer = self._app if verdict == "let_in" else self._answer(verdict, scope)
        await answer(scope, _receive, guarded)

    def _asked(self, scope: Scope) -> Asked:
        headers = Headers(scope=scope)
        found = SimpleCookie()
        found.load(headers.get("cookie", ""))
        cookie = found[self._cookie].value if self._cookie in found else ""
        token = QueryParams(scope["query_string"]).get("token", "")
        return Asked(method=scope["method"], headers=headers, cookie=cookie, token=token)

    def _answer(self, verdict: Verdict, scope: Scope) -> Response:
        if verdict != "welcome":
            status, text = REFUSALS[verdict]
            return _plain(status, text, title="Refused")
        # No redirect: the browser would count it to the page from which it came, and send no strict cookie.
        response = _plain(200, "one moment", title="xnagent", target=f"/{scope['path'].lstrip('/')}")
        response.set_cookie(self._cookie, self._gate.token, httponly=True, samesite="strict", path="/")
        return response


def application(site: Site, *, gate: Gate, cookie: str) -> ASGIApp:
    """Everything behind the gate."""
    routes = [
        Route("/", site.list),
        Route("/events", site.list_events),
        Route("/sessions/{session}", site.session),
        Route("/sessions/{session}/events", site.session_events),
    ]
    if site.offers.can_act:
        routes.append(Route("/sessions/{session}/tell", site.actions.tell, methods=["POST"]))
        routes.append(Route("/sessions/{session}/cancel", site.actions.cancel, methods=["POST"]))
    return Guarded(Starlette(routes=routes), gate=gate, cookie=cookie)
