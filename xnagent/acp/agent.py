"""The agent that an editor talks to: its sessions are xnagent's, under the same ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from acp import (
    PROTOCOL_VERSION,
    AuthenticateResponse,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    update_user_message_text,
)
from acp.schema import (
    AgentCapabilities,
    EmbeddedResourceContentBlock,
    Implementation,
    PromptCapabilities,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from xnagent import __version__
from xnagent.acp.talk import Editor, Talk
from xnagent.acp.updates import Narrator, Update
from xnagent.api.events import Reader
from xnagent.api.options import Chosen
from xnagent.api.session import last_settings
from xnagent.app.steering import tell_session
from xnagent.config.secrets import mask_for
from xnagent.core.ids import SessionId
from xnagent.core.text import clean
from xnagent.errors import UsageError, XnagentError
from xnagent.store.sessions import new_session_id

IGNORED_SERVERS: Final = (
    "The MCP servers that your editor offers ({}) are not used: xnagent starts servers only where its own settings "
    "name them, in the box of the run.\n\n"
)


class _Nobody:
    """Before there is a connection."""

    async def session_update(self, session_id: str, update: Update) -> None:
        """Nobody sees it."""


class EditorAgent:
    """What the SDK calls, by the names that it knows. Errors are those of JSON-RPC."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._talks: dict[str, Talk] = {}
        self._editor: Editor = _Nobody()

    def on_connect(self, editor: Editor) -> None:
        """The connection to answer over."""
        self._editor = editor

    async def initialize(self, protocol_version: int, **_more: object) -> InitializeResponse:
        """What this agent can do. There is one version of the protocol."""
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True, prompt_capabilities=PromptCapabilities(embedded_context=True)
            ),
            agent_info=Implementation(name="xnagent", version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_more: object) -> AuthenticateResponse:
        """Nothing is needed: keys of models are in the environment."""
        return AuthenticateResponse()

    async def new_session(
        self, cwd: str, mcp_servers: Iterable[Any] | None = None, **_more: object
    ) -> NewSessionResponse:
        """A session that begins with its first prompt."""
        name = new_session_id(self._chosen.host.clock)
        talk = self._talk(name, cwd=cwd, servers=mcp_servers or ())
        with _told_as_errors():
            await anyio.to_thread.run_sync(talk.chosen.settings)
        return NewSessionResponse(session_id=str(name))

    async def load_session(
        self, *, cwd: str, session_id: str, mcp_servers: Iterable[Any] | None = None, **_more: object
    ) -> LoadSessionResponse:
        """A session of the store, whichever program began it; what happened is told again first."""
        with _told_as_errors():
            place = self._chosen.host.place(session_id)
            settings = self._chosen.changed(await anyio.to_thread.run_sync(last_settings, place))
            mask = mask_for(self._chosen.host.environ, settings)
            reader = Reader(place=place, session=SessionId(session_id), mask=mask)
            events = await anyio.to_thread.run_sync(partial(reader.events, after=0))
        talk = self._talk(SessionId(session_id), cwd=cwd, servers=mcp_servers or ())
        for event in events:
            if event.type in {"session_started", "user_message_added"}:
                text = str(event.fields.get("objective") or event.fields.get("text"))
                await talk.show(update_user_message_text(text))
            await talk.tell(event)
        return LoadSessionResponse()

    async def prompt(self, prompt: list[Any], session_id: str, **_more: object) -> PromptResponse:
        """The first begins the session, a later one goes on with it; one beside another is told to the Planner."""
        talk = self._known(session_id)
        text = _text_of(prompt)
        with _told_as_errors():
            if talk.live is not None:
                await tell_session(talk.chosen.host, talk.session, text=text)
                return PromptResponse(stop_reason="end_turn")
            return PromptResponse(stop_reason=await talk.answer(text))

    async def cancel(self, session_id: str, **_more: object) -> None:
        """Stop what runs in order; the prompt is answered with `cancelled`."""
        talk = self._talks.get(session_id)
        if talk is not None:
            await talk.cancel("the editor cancelled")

    async def leave(self) -> None:
        """The editor is gone: stop everything in order."""
        async with anyio.create_task_group() as group:
            for talk in self._talks.values():
                group.start_soon(talk.cancel, "the editor is gone")

    def _talk(self, name: SessionId, *, cwd: str, servers: Iterable[Any]) -> Talk:
        if not Path(cwd).is_absolute():
            raise RequestError.invalid_params({"details": f"cwd is {cwd!r}; it must be an absolute path"})
        names = [str(getattr(server, "name", "?")) for server in servers]
        notice = IGNORED_SERVERS.format(", ".join(names)) if names else ""
        chosen = replace(self._chosen, directory=cwd)
        talk = Talk(
            chosen=chosen, session=name, narrator=Narrator(folder=Path(cwd)), editor=self._editor, notice=notice
        )
        self._talks[str(name)] = talk
        return talk

    def _known(self, session_id: str) -> Talk:
        if session_id not in self._talks:
            raise RequestError.invalid_params(
                {"details": f"there is no session {session_id!r}; begin or load it first"}
            )
        return self._talks[session_id]


@contextmanager
def _told_as_errors() -> Iterator[None]:
    """Errors of ours as errors of JSON-RPC, with the exit code that the command line would have."""
    try:
        yield
    except UsageError as error:
        raise RequestError.invalid_params({"details": str(error), "exit_code": error.exit_code}) from error
    except XnagentError as error:
        raise RequestError.internal_error({"details": str(error), "exit_code": error.exit_code}) from error


def _text_of(prompt: Iterable[Any]) -> str:
    """The prompt as text; what it points to is named, what it holds is quoted."""
    parts = [_part(block) for block in prompt]
    text = clean("\n\n".join(part for part in parts if part.strip()))
    if not text:
        raise RequestError.invalid_params({"details": "the prompt is empty; say what to do"})
    return text


def _part(block: object) -> str:
    match block:
        case TextContentBlock():
            return block.text
        case ResourceContentBlock():
            return f"[{block.name}]({block.uri})"
        case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
            return f'<file uri="{resource.uri}">\n{resource.text}\n</file>'
        case _:
            raise RequestError.invalid_params({"details": "only text, links and text files can be prompted"})
