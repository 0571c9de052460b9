"""The list as it was drawn last: a line for each session, and what a viewer of it does not have yet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xnagent.core.masking import Mask
from xnagent.core.text import Json
from xnagent.dashboard.frames import Cursor, told
from xnagent.dashboard.listing import Entry, totals
from xnagent.inspect.page.markup import Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A session's line as it was drawn last."""

    html: Markup
    drawn: int


@dataclass(slots=True, kw_only=True)
class Roll:
    """Lines are made anew only for sessions that changed."""

    mask: Mask
    lines: dict[str, Line] = field(default_factory=dict)
    """Newest session first."""
    totals: Markup = field(default_factory=Markup)
    drawn: int = 0
    """When a line or the list last changed, in milliseconds since 1970."""
    ordered: int = 0
    """The same of the list's order."""
    _entries: dict[str, Entry] = field(default_factory=dict)
    _frames: tuple[int, dict[int, bytes]] = field(default_factory=lambda: (0, {}))

    def draw(self, order: Sequence[str], changed: Mapping[str, Entry]) -> bool:
        """Make the lines of these anew; whether anything came out another way. `order` names all that stay."""
        now = max(time.time_ns() // 1_000_000, self.drawn + 1)
        made = {name: self._line(name, entry, now=now) for name, entry in changed.items()}
        is_same_list = [*self.lines] == [*order]
        if is_same_list and not any(line.drawn == now for line in made.values()):
            return False
        lines, entries = self.lines | made, {**self._entries, **changed}
        self.lines = {name: lines[name] for name in order}
        self._entries = {name: entries[name] for name in order}
        self.totals = totals(self._entries.values())
        self.ordered = self.ordered if is_same_list else now
        self.drawn = now
        return True

    def _line(self, name: str, entry: Entry, *, now: int) -> Line:
        html, known = Markup(self.mask.text(entry.html())), self.lines.get(name)
        return known if known is not None and known.html == html else Line(html=html, drawn=now)

    def frame(self, after: int) -> bytes:
        """What changed since then: made once for all viewers that have the same."""
        if self._frames[0] != self.drawn:
            self._frames = self.drawn, {}
        made = self._frames[1]
        if after not in made:
            changed: dict[str, Json] = {name: line.html for name, line in self.lines.items() if line.drawn > after}
            order: list[Json] | None = [*self.lines] if self.ordered > after else None
            now: dict[str, Json] = {"lines": changed, "order": order, "totals": self.totals}
            made[after] = told("lines", now, cursor=Cursor(drawn=self.drawn))
        return made[after]
