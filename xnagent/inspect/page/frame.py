"""What surrounds the content of a page: its head with the policy, and the bar at its top."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import Final

from xnagent.inspect.page.markup import Markup, joined, tag

ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath "
    "d='M2 3h12M2 8h8M2 13h10' stroke='%235b5bd6' stroke-width='3'/%3E%3C/svg%3E"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Style and scripts of a page. Nothing else can run or be loaded in it."""

    style: str
    scripts: Sequence[str]
    connects: bool = False
    """The scripts may ask the page's own server."""

    @property
    def policy(self) -> str:
        """The content security policy."""
        scripts = " ".join(f"'{_digest(script)}'" for script in self.scripts) or "'none'"
        own = "; connect-src 'self'" if self.connects else ""
        return (
            "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
            f"style-src '{_digest(self.style)}'; script-src {scripts}{own}"
        )

    def head(self, title: str) -> Markup:
        """The head of the page."""
        return tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=self.policy),
            tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name_="color-scheme", content="light dark"),
            tag("meta", name_="referrer", content="no-referrer"),
            tag("title", title),
            tag("link", rel="icon", href=Markup(ICON)),
            tag("style", Markup(self.style)),
        )

    def tail(self) -> Markup:
        """The scripts, which need the content before them."""
        return joined(tag("script", Markup(script)) for script in self.scripts)


def bar(brand: Markup, links: Sequence[tuple[str, str]], *, search: str) -> Markup:
    """Links to the sections by name and title, the field of the search with its name, and the switch of colours."""
    found = tag(
        "input",
        id="search",
        type="search",
        placeholder=f"{search}  ( / )",
        aria_label=search,
        autocomplete="off",
        spellcheck="false",
    )
    theme = tag(
        "button", "◐", id="theme", type="button", title="Light or dark (t)", aria_label="Switch between light and dark"
    )
    nav = tag("nav", *(tag("a", title, href=f"#{name}") for name, title in links), aria_label="Sections")
    skip = tag("a", "Skip to the content", href="#main", class_="skip")
    return joined([skip, tag("div", brand, nav, found, theme, class_="bar")])


def resource(name: str, package: str = "xnagent.inspect.page") -> str:
    """A style sheet or script that comes with the package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"
