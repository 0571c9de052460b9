"""`xnagent resume`: a session from where its log ends."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial

from xnagent.app.running import resume_session
from xnagent.cli.console import Console
from xnagent.cli.follow import Follower
from xnagent.cli.forecast import forecast_record, forecast_text, forecasts
from xnagent.cli.options import changed_settings, chosen_roles, host_of, models_of
from xnagent.cli.run import announce, start_logging
from xnagent.cli.session import drive
from xnagent.config import Settings
from xnagent.config.entry import Role
from xnagent.config.load import stored_settings
from xnagent.core.events import SessionResumed, SessionStarted
from xnagent.core.fallback import forgive
from xnagent.core.ids import SessionId
from xnagent.core.text import clean
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry
from xnagent.store.place import Place, state_at


def execute(arguments: Namespace, console: Console) -> int:
    """Check, then go on; with `--dry-run` only tell what it would cost."""
    host = host_of(arguments)
    message = message_of(arguments)
    session = SessionId(arguments.session)
    place = host.place(session)
    settings = changed_settings(arguments, last_settings(place))
    chains = models_of(settings, host)
    chosen = chosen_roles(arguments)
    if getattr(arguments, "dry_run", False):
        return _tell_forecast(place, chains, chosen=chosen, console=console)
    start_logging(arguments, console)
    announce(settings, chains, host=host, console=console)
    console.say(f"session {session}")
    follower = Follower(place, session, console=console)
    follower.skip()
    work = partial(resume_session, host, session, settings=settings, message=message, chosen=chosen)
    return drive(work, follower, console=console)


def message_of(arguments: Namespace) -> str | None:
    """What the user has to say; raises UsageError if it is nothing."""
    message: str | None = getattr(arguments, "message", None)
    if message is None:
        return None
    if not message.strip():
        raise UsageError("MESSAGE_EMPTY: the message is empty; say something or leave --message out")
    return clean(message)


def last_settings(place: Place) -> Settings:
    """The settings that the session was begun or last resumed with."""
    events = (stored.event for stored in place.events())
    texts = [event.settings for event in events if isinstance(event, SessionStarted | SessionResumed)]
    text = next((text for text in reversed(texts) if text), "{}")
    return stored_settings(text, session=place.name)


def _tell_forecast(
    place: Place, chains: Mapping[Role, Sequence[ModelEntry]], *, chosen: Sequence[Role], console: Console
) -> int:
    rows = forecasts(forgive(state_at(place), chosen), chains)
    if console.output == "text":
        console.answer(forecast_text(rows))
    else:
        console.record(forecast_record(place.name, rows))
    return 0
