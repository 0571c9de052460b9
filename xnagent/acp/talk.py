"""One session as an editor sees it: its prompts are runs and resumes, its events are updates."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import anyio.to_thread
from acp import RequestError, update_agent_message_text
from acp.schema import StopReason

from xnagent.acp.updates import Narrator, Update
from xnagent.api.events import Event, Events
from xnagent.api.final import Final
from xnagent.api.options import Chosen
from xnagent.api.session import Session, last_settings, opened
from xnagent.core.ids import SessionId, Ticket


class Editor(Protocol):
    """The other end."""

    async def session_update(self, session_id: str, update: Update) -> None:
        """Show it."""


@dataclass(slots=True, kw_only=True)
class Talk:
    """One session of the editor."""

    chosen: Chosen
    session: SessionId
    narrator: Narrator
    editor: Editor
    notice: str = ""
    """What is said once, before the first answer."""
    live: Session | None = None
    """While a prompt is answered."""
    is_cancelled: bool = False
    """The editor wants the prompt to end."""
    patches: dict[str, Ticket] = field(default_factory=dict)
    """By run."""

    async def answer(self, text: str) -> StopReason:
        """Begin the session with the prompt, or go on with it."""
        self.is_cancelled = False
        place = self.chosen.host.place(self.session)
        has_begun = await anyio.to_thread.run_sync(place.exists)
        if has_begun:
            settings = self.chosen.changed(await anyio.to_thread.run_sync(last_settings, place))
        else:
            settings = await anyio.to_thread.run_sync(self.chosen.settings)
        if self.notice:
            await self.show(update_agent_message_text(self.notice))
            self.notice = ""
        async with opened(self.chosen, name=self.session, settings=settings, has_begun=has_begun) as session:
            self.live = session
            try:
                await self._follow(session.resume(message=text) if has_begun else session.run(text))
            finally:
                self.live = None
            return "cancelled" if self.is_cancelled else await self._end(session.final)

    async def cancel(self, reason: str) -> None:
        """Stop what runs in order."""
        self.is_cancelled = True
        if self.live is not None:
            await self.live.cancel(reason)

    async def tell(self, event: Event) -> None:
        """Show what the event is told as."""
        if event.type == "patch_taken":
            self.patches[str(event.fields["run"])] = Ticket(str(event.fields["patch"]))
        patch = ""
        if event.type == "patch_merged" and (ticket := self.patches.get(str(event.fields["run"]))):
            place = self.chosen.host.place(self.session)
            content = await anyio.to_thread.run_sync(place.artifact, ticket)
            patch = self.chosen.mask().text((content or b"").decode("utf-8", "replace"))
        for update in self.narrator.updates(event, patch=patch):
            await self.show(update)

    async def show(self, update: Update) -> None:
        """One update. An editor that is gone is told by the end of the input, which stops everything."""
        with suppress(ConnectionError):
            await self.editor.session_update(str(self.session), update)

    async def _follow(self, events: Events) -> None:
        is_asked = False
        async for event in events:
            if self.is_cancelled and not is_asked:
                is_asked = True
                await self.cancel("the editor cancelled")
            await self.tell(event)

    async def _end(self, final: Final) -> StopReason:
        """The last words, and why the turn is over. A provider that failed is an error of the request."""
        for text in filter(None, (final.summary, final.question and f"\n\n{final.question}")):
            await self.show(update_agent_message_text(text))
        reason = stop_reason(final)
        if reason is None:
            message = final.error.message if final.error else final.outcome
            data = {"details": message, "outcome": final.outcome, "exit_code": final.exit_code}
            raise RequestError.internal_error(data)
        if reason != "cancelled" and final.error is not None:
            await self.show(update_agent_message_text(f"\n\n{final.outcome}: {final.error.message}"))
        return reason


def stop_reason(final: Final) -> StopReason | None:
    """Why the turn is over, in the words of the protocol; None: it failed."""
    kind = "" if final.error is None else final.error.kind
    match final.outcome:
        case "interrupted":
            return "cancelled"
        case "limit":
            return "max_tokens" if "tokens" in kind else "max_turn_requests"
        case "deadline":
            return "max_turn_requests"
        case "provider_error" | "prefix_broken" | "error":
            return "refusal" if kind == "content_refused" else None
        case _:
            return "end_turn"
