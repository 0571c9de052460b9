"""What a model's summary of a history is: fixed sections, and exact values that are kept apart from its prose.

A summary is lossy, and each further one is made from the one before. Numbers do not survive that (T19), so they are
stored by name, copied and never written again: a summary says which names stay, and xnagent copies their values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Final

from xnagent.core.ids import Ticket
from xnagent.core.items import AssistantText, Item, ToolCall, ToolResult, UserText
from xnagent.core.pricing import PER_MILLION, Price
from xnagent.core.rent import Costs, Rent
from xnagent.core.summary_events import SummaryStarted
from xnagent.core.text import one_line
from xnagent.core.values import dataclass

SECTIONS: Final = (
    "Goal",
    "Constraints",
    "Done",
    "In progress",
    "Blocked",
    "Decisions",
    "Findings",
    "Files",
    "Left to do",
)
OTHER: Final = "Other"
"""For what the answer says outside of the sections."""
NONE: Final = "none"
MOST_FAILURES: Final = 3
"""In a row; then no more summaries are tried in the run (T10)."""
MOST_VALUES: Final = 60
NAME_CHARACTERS: Final = 80
LIKELY_OUTPUT_TOKENS: Final = 1_500
"""What a summary is taken to be long, before it is made."""

_HEADING: Final = re.compile(r"#{1,4}\s*\**(?P<name>[^#*:]+?)\**:?\s*")
_VALUES: Final = re.compile(r"<values>(.*?)</values>", re.DOTALL)

Said = Mapping[str, str | None]
"""Values as an answer names them; None: as stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryLog:
    """What came of summaries in a run."""

    rounds: int = 0
    text: str = ""
    """Of the newest round; empty: there is none."""
    values: Mapping[str, str] = field(default_factory=dict)
    call_count: int = 0
    """How many calls the run had made when it was written."""
    cause: str = ""
    """Why room was needed then."""
    failures: int = 0
    """In a row."""
    has_been_blank: bool = False
    """A model said nothing where it could have called tools: from then on it is asked without them."""
    attempt: SummaryStarted | None = None
    """One that began and has no end yet."""
    notes: tuple[tuple[int, Ticket], ...] = ()
    """Rounds and where the text of each can be read, the newest last."""

    @property
    def is_given_up(self) -> bool:
        """Whether no more are tried."""
        return self.failures >= MOST_FAILURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model wrote when it was asked for a summary."""

    text: str
    """All sections in their order; empty: it said nothing."""
    missing: tuple[str, ...]
    values: Said | None
    """None: it said nothing that could be read of values, and they stay as they are."""
    refused: tuple[str, ...] = ()
    """Names whose value is no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The set after an answer."""

    values: Mapping[str, str]
    kept: int
    dropped: tuple[str, ...]
    refused: tuple[str, ...]


def read_answer(text: str) -> Answer:
    """The sections and values of an answer; a section that is missing says `none` (M67)."""
    found: dict[str, list[str]] = {}
    name = OTHER
    for line in _VALUES.sub("", text).splitlines():
        heading = _heading(line)
        if heading is None:
            found.setdefault(name, []).append(line)
        else:
            name = heading
    told = {name: "\n".join(lines).strip() for name, lines in found.items()}
    told = {name: content for name, content in told.items() if content}
    values, refused = _values(text)
    is_blank = all(content.casefold().rstrip(".") == NONE for content in told.values())
    return Answer(
        text="" if is_blank else _rendered(told),
        missing=tuple(name for name in SECTIONS if name not in told),
        values=values,
        refused=refused,
    )


def joined(first: Answer, second: Answer) -> Answer:
    """What two answers to the same request say: the second one, with what only the first one had."""
    told = second if second.text else replace(first, values=second.values, refused=second.refused)
    return told if told.values is not None else replace(told, values=first.values, refused=first.refused)


def _heading(line: str) -> str | None:
    match = _HEADING.fullmatch(line.strip())
    wanted = match["name"].strip().casefold() if match else ""
    return next((name for name in SECTIONS if name.casefold() == wanted), None)


def _rendered(told: Mapping[str, str]) -> str:
    names = (*SECTIONS, *([OTHER] if OTHER in told else []))
    return "\n\n".join(f"## {name}\n{told.get(name, NONE)}" for name in names).replace("</", "<\\/")


def _values(text: str) -> tuple[Said | None, tuple[str, ...]]:
    """The last set in the answer. Numbers are read as the characters that stand there."""
    blocks = _VALUES.findall(text)
    if not blocks:
        return None, ()
    try:
        parsed = json.loads(blocks[-1], parse_int=str, parse_float=str, parse_constant=str)
    except ValueError:
        return None, ()
    if not isinstance(parsed, dict):
        return None, ()
    named = {one_line(name)[:NAME_CHARACTERS]: value for name, value in parsed.items()}
    plain = {name: value for name, value in named.items() if value is None or isinstance(value, str)}
    return plain, tuple(name for name in named if name not in plain)


def replaced_values(old: Mapping[str, str], answer: Answer, *, history: Sequence[Item]) -> Values:
    """The set that an answer leaves: what it names, and nothing else; an empty set clears it, no set changes nothing.

    A value is stored by its name the first time, if it stands somewhere in the history. From then on it is copied from
    the store: another one takes its place only if that stands in the history as well (M81, M84, T13).
    """
    if answer.values is None:
        return Values(values=dict(old), kept=len(old), dropped=(), refused=answer.refused)
    said: Said = {**dict.fromkeys(answer.refused, ""), **answer.values}
    known = {name: _value(old.get(name), text, history=history) for name, text in said.items()}
    stored = ((name, value) for name, value in known.items() if value is not None)
    taken = dict(islice(stored, MOST_VALUES))
    return Values(
        values=taken,
        kept=sum(old.get(name) == value for name, value in taken.items()),
        dropped=tuple(name for name in old if name not in taken),
        refused=tuple(name for name, text in said.items() if name not in taken or text not in {None, taken[name]}),
    )


def _value(old: str | None, said: str | None, *, history: Sequence[Item]) -> str | None:
    """A part of what is stored is no new value: it was cut on the way."""
    if not said or (old is not None and said in old):
        return old
    return said if stands_in(history, said) else old


def stands_in(history: Iterable[Item], value: str) -> bool:
    """Whether the text stands somewhere in the items, whole, as it is or as it is written inside of JSON."""
    written = json.dumps(value, ensure_ascii=False)[1:-1]
    pattern = re.compile("|".join(_whole(form) for form in {value, written}))
    return any(pattern.search(text) for item in history for text in _texts(item))


def _whole(value: str) -> str:
    """The text with nothing around it that would make it a part of a longer word or number."""
    before = r"(?<![0-9A-Za-z_])" if re.match(r"[0-9A-Za-z_]", value) else ""
    before += r"(?<![0-9]\.)" if value[:1].isdecimal() else ""
    after = r"(?![0-9A-Za-z_])" if re.search(r"[0-9A-Za-z_]$", value) else ""
    after += r"(?!\.[0-9])" if value[-1:].isdecimal() else ""
    return f"{before}{re.escape(value)}{after}"


def _texts(item: Item) -> tuple[str, ...]:
    match item:
        case UserText() | AssistantText() | ToolResult():
            return (item.text,)
        case ToolCall():
            return (item.arguments,)
        case _:
            return ()


def call_usd(size_tokens: int, held_tokens: int, *, price: Price) -> float:
    """What asking for a summary is likely to cost: the history is read once more, most of it from the cache."""
    held = min(size_tokens, held_tokens)
    read = held * price.cached_usd + (size_tokens - held) * price.input_usd
    return (read + LIKELY_OUTPUT_TOKENS * price.output_usd) / PER_MILLION


def pays(rent: Rent, now: Costs, *, call_usd: float) -> bool:
    """Whether re-reading has cost more than a rebase whose checkpoint must be written by a model first (M52, T30)."""
    return now.rent_usd > 0.0 and rent.paid_usd + now.rent_usd > now.price_usd + call_usd
