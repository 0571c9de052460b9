"""`xnagent resume`: a session from where its log ends."""

from __future__ import annotations

import time
from argparse import Namespace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from xnagent.app.boxing import choose
from xnagent.app.host import Host
from xnagent.app.prospects import session_prospects
from xnagent.app.running import resume_session
from xnagent.cli.console import Console
from xnagent.cli.follow import Follower
from xnagent.cli.forecast import Standing, forecast_record, forecast_text, forecasts, whole_forecast
from xnagent.cli.hosting import acting_host_of
from xnagent.cli.options import changed_settings, chosen_roles, models_of
from xnagent.cli.run import announce, start_logging
from xnagent.cli.session import drive
from xnagent.config import Settings
from xnagent.config.load import stored_settings
from xnagent.config.secrets import mask_for
from xnagent.core.events import SessionResumed, SessionStarted
from xnagent.core.fallback import forgive
from xnagent.core.fold import fold_all
from xnagent.core.ids import SessionId
from xnagent.core.text import clean
from xnagent.errors import UsageError
from xnagent.store.place import Place

POLL_SECONDS: Final = 1.0


def execute(arguments: Namespace, console: Console) -> int:
    """Check, then go on; with `--dry-run` only tell what it would cost."""
    host = acting_host_of(arguments)
    message = message_of(arguments)
    session = SessionId(arguments.session)
    place = host.place(session)
    settings = changed_settings(arguments, last_settings(place))
    chains = models_of(settings, host)
    chosen = chosen_roles(arguments)
    if getattr(arguments, "dry_run", False):
        return _tell_forecast(place, _standing(place, host, settings=settings, arguments=arguments), console=console)
    console.mask = mask_for(host.environ, settings)
    start_logging(arguments, console)
    announce(settings, chains, box=choose(settings.sandbox, host.environ), console=console)
    console.say(f"session {session}")
    wait_until_left(host, session, console=console)
    follower = Follower(place, session, console=console)
    follower.skip()
    work = partial(resume_session, host, session, settings=settings, message=message, chosen=chosen)
    return drive(work, follower, console=console)


def wait_until_left(host: Host, session: SessionId, *, console: Console) -> None:
    """Let the lease run out of a process that is gone and may have left commands running at its machine."""
    if (seconds := host.sessions.left_seconds(session)) > 0:
        console.say(
            f"waiting {seconds:.0f} s: the process that ran it ended without a word or lost its connection, and its "
            f"commands may still run where only it can end them"
        )
    while (seconds := host.sessions.left_seconds(session)) > 0:
        time.sleep(min(seconds, POLL_SECONDS))


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


def _tell_forecast(place: Place, standing: Standing, *, console: Console) -> int:
    rows = forecasts(standing)
    whole = whole_forecast(standing, rows)
    if console.output == "text":
        console.answer(forecast_text(rows, whole))
    else:
        console.record(forecast_record(place.name, rows, whole=whole))
    return 0


def _standing(place: Place, host: Host, *, settings: Settings, arguments: Namespace) -> Standing:
    """The session as it could go on now."""
    events = tuple(place.events())
    begun = datetime.fromisoformat(events[-1].at) if events else datetime.now(UTC)
    return Standing(
        state=forgive(fold_all(stored.event for stored in events), chosen_roles(arguments)),
        age_seconds=(datetime.fromisoformat(host.clock.now()) - begun).total_seconds(),
        chains=models_of(settings, host),
        prospects=session_prospects(host, settings),
        has_message=message_of(arguments) is not None,
    )
