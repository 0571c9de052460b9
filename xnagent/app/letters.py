"""The receiving end of a session's mailbox."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol, assert_never

from xnagent.app.host import Host
from xnagent.core.events import UserMessageAdded
from xnagent.core.ids import PLANNER, AgentId, SessionId, agent_of
from xnagent.core.state import SessionState, active_runs, spine_of
from xnagent.core.summary_events import RebaseAsked
from xnagent.core.values import dataclass
from xnagent.store.mailbox import FolderMailbox, Letter, Mailbox, mailbox_folder
from xnagent.store.placed import PlacedLog
from xnagent.store.sessions import session_path


class Cancellable(Protocol):
    """What can be asked to stop."""

    def cancel(self, letter: Letter) -> None:
        """Ask, because the letter says so."""


def mailbox_of(host: Host, session: SessionId) -> Mailbox:
    """Where letters to the session are put."""
    return FolderMailbox(mailbox_folder(session_path(host.home, session)))


async def waiting_letters(mailbox: Mailbox, state: SessionState) -> tuple[Letter, ...]:
    """The messages that came since the last process; what is in the log, or was meant for that process, is removed."""
    letters = await mailbox.letters()
    new = tuple(letter for letter in letters if letter.kind == "message" and letter.letter not in state.letters)
    for letter in letters:
        if letter not in new:
            await mailbox.discard(letter.letter)
    return new


def messages_in(letters: tuple[Letter, ...], state: SessionState) -> list[UserMessageAdded]:
    """What the user says in letters that are not in the log yet."""
    return [
        UserMessageAdded(message=f"m{number}", text=letter.text, letter=letter.letter)
        for number, letter in enumerate(letters, len(state.board.messages) + 1)
    ]


async def discard_delivered(mailbox: Mailbox, said: list[UserMessageAdded]) -> None:
    """Remove the letters of messages that are in the log now."""
    for event in said:
        if event.letter:
            await mailbox.discard(event.letter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    """Takes letters while the session runs. What comes too late is kept for the next process."""

    log: PlacedLog
    mailbox: Mailbox
    stop: Cancellable
    taken: set[str] = field(default_factory=set)
    """Letters that were dealt with, should one not be removable."""

    async def open(self) -> None:
        """Until cancelled; a letter is in the log before it is removed."""
        while True:
            await self.mailbox.arrival()
            for letter in await self.mailbox.letters():
                if letter.letter not in self.taken and self.log.ahead.settled is None:
                    await self._take(letter)

    async def _take(self, letter: Letter) -> None:
        match letter.kind:
            case "message":
                await self._deliver(letter)
            case "cancel":
                self._cancel(letter)
            case "rebase":
                await self._ask_for_rebases(letter)
            case _:
                assert_never(letter.kind)
        self.taken.add(letter.letter)
        await self.mailbox.discard(letter.letter)

    async def _deliver(self, letter: Letter) -> None:
        if letter.letter not in self.log.ahead.letters:
            await self.log.append(*messages_in((letter,), self.log.ahead))

    async def _ask_for_rebases(self, letter: Letter) -> None:
        if letter.epoch != self.log.epoch:
            return
        state = self.log.ahead
        agents = (
            [AgentId(letter.text)] if letter.text else [PLANNER, *(agent_of(run.run) for run in active_runs(state))]
        )
        asked = [RebaseAsked(agent=agent, letter=letter.letter) for agent in agents if spine_of(state, agent).items]
        if asked:
            await self.log.append(*asked)

    def _cancel(self, letter: Letter) -> None:
        if letter.epoch == self.log.epoch:
            self.stop.cancel(letter)
