"""Tools of MCP servers as models see them: names, descriptions, and whether they are told at once or on demand.

M111, M112: definitions stand behind search, inspect and invoke only where that pays, and never those that a rule allows
by name: whoever wrote such a rule counts on the whole schema.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from xnagent.core.mcp_events import McpServer, McpTool, McpToolsFrozen
from xnagent.core.mcp_schema import sound_schema
from xnagent.core.text import Json, clean, clip
from xnagent.core.tokens import PER_TOOL, estimate_text

PREFIX: Final = "mcp__"
NAME_CHARACTERS: Final = 64
DESCRIPTION_CHARACTERS: Final = 1_000
MOST_TOOLS: Final = 500
"""Of one server."""
LEAST_DEFERRED: Final = 5
MOST_SHARE: Final = 0.1
"""Of a window: definitions that take less are told at once."""
META_TOKENS: Final = 500
"""About what the definitions of search, inspect and invoke take."""
STEPS: Final = 12
"""Requests of a Worker, as forecasts assume."""
STEP_TOKENS: Final = 1_250
"""By how much each is longer than the one before."""
DETOUR_STEPS: Final = 2
"""Requests more: a search and an inspection, each with the whole history."""
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Controls, and what turns or hides text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool as its server describes it."""

    tool: str
    description: str
    parameters: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What became of asking one server for its tools."""

    server: str
    protocol: str = ""
    offers: tuple[Offer, ...] = ()
    fault: str = ""
    """Why there are none."""


def frozen(
    listings: Iterable[Listing],
    *,
    wanted: Mapping[str, Collection[str]],
    window_tokens: int,
    gated: Collection[str] = (),
) -> McpToolsFrozen:
    """What a session goes on with, whatever the order in which servers answered.

    `wanted` names the tools by server where not all are; `gated` are names that are never deferred.
    """
    ordered = sorted(listings, key=lambda one: one.server)
    taken = [_taken(one, wanted.get(one.server)) for one in ordered]
    tools = _named(tool for _, tools in taken for tool in tools)
    pool = [tool for tool in tools if tool.name not in gated]
    weighed = _weighed(pool, window_tokens=window_tokens)
    return replace(weighed, servers=tuple(server for server, _ in taken), listed=tuple(tools))


def _taken(listing: Listing, wanted: Collection[str] | None) -> tuple[McpServer, list[McpTool]]:
    """The server as it is recorded, and its tools that can be used, without names."""
    found: dict[str, McpTool] = {}
    skipped = [f"{name}: the server has no such tool" for name in sorted(wanted or ())]
    skipped = [] if listing.fault else skipped
    for offer in sorted(listing.offers, key=lambda one: one.tool):
        shown = plain(offer.tool, 80)
        if wanted is not None and offer.tool not in wanted:
            continue
        skipped = [line for line in skipped if not line.startswith(f"{offer.tool}: ")]
        parameters = sound_schema(offer.parameters)
        if parameters is None:
            skipped.append(f"{shown}: its schema is too large, or names arguments in a way that no provider takes")
        elif len(found) >= MOST_TOOLS:
            skipped.append(f"{shown}: there are {MOST_TOOLS} tools already")
        elif offer.tool not in found:
            found[offer.tool] = McpTool(
                name="",
                server=listing.server,
                tool=offer.tool,
                description=_described(listing.server, offer.description),
                parameters=parameters,
            )
    server = McpServer(
        server=listing.server, protocol=listing.protocol, fault=plain(listing.fault, 500), skipped=tuple(skipped)
    )
    return server, list(found.values())


def plain(text: str, limit: int) -> str:
    """Foreign text without what cannot be seen, within the limit."""
    return clip(_UNSEEN.sub("", clean(text)).strip(), limit, head_share=0.8)


def _described(server: str, description: str) -> str:
    text = plain(description, DESCRIPTION_CHARACTERS)
    return f"[described by MCP server {server}] {text}" if text else f"[a tool of MCP server {server}]"


def _named(tools: Iterable[McpTool]) -> list[McpTool]:
    """With names of letters, digits, `_` and `-`; where two would have the same, those that were changed get a hash."""
    listed = list(tools)
    simple = [f"{PREFIX}{tool.server}__{_OTHER.sub('_', tool.tool)}" for tool in listed]
    wishes = [name for name in simple if len(name) <= NAME_CHARACTERS]
    named: list[McpTool] = []
    taken = {name for tool, name in zip(listed, simple, strict=True) if _is_as_it_is(tool, name)}
    for tool, name in zip(listed, simple, strict=True):
        is_free = wishes.count(name) == 1 or _is_as_it_is(tool, name)
        chosen = name if is_free and len(name) <= NAME_CHARACTERS else _hashed(tool, name, taken=taken)
        taken.add(chosen)
        named.append(replace(tool, name=chosen))
    return named


def _is_as_it_is(tool: McpTool, name: str) -> bool:
    return name == f"{PREFIX}{tool.server}__{tool.tool}" and len(name) <= NAME_CHARACTERS


def _hashed(tool: McpTool, name: str, *, taken: Collection[str]) -> str:
    digest = sha256(f"{tool.server}\0{tool.tool}".encode("utf-8", "replace")).hexdigest()
    sizes = range(8, NAME_CHARACTERS // 2)
    names = (f"{name[: NAME_CHARACTERS - size - 1]}_{digest[:size]}" for size in sizes)
    return next(one for one in names if one not in taken)


def _weighed(pool: Sequence[McpTool], *, window_tokens: int) -> McpToolsFrozen:
    """Whether the pool is deferred: enough tools, a share of the window, and less in all requests than the detour."""
    tokens = sum(map(definition_tokens, pool))
    inline = tokens * STEPS
    detour = META_TOKENS * (STEPS + DETOUR_STEPS) + DETOUR_STEPS * STEP_TOKENS * STEPS // 2
    is_worth = tokens > META_TOKENS and tokens > MOST_SHARE * window_tokens and inline > detour
    deferred = [tool.name for tool in pool] if is_worth and len(pool) >= LEAST_DEFERRED else []
    return McpToolsFrozen(
        servers=(),
        listed=(),
        deferred=tuple(deferred),
        pool_tokens=tokens,
        inline_tokens=inline,
        detour_tokens=detour,
    )


def definition_tokens(tool: McpTool) -> int:
    """About what its definition takes in every request."""
    return PER_TOOL + estimate_text(tool.name) + estimate_text(tool.description) + estimate_text(tool.parameters)


def difference(known: McpToolsFrozen, listing: Listing) -> str:
    """What a server offers otherwise than when the session began; empty: nothing that the session uses."""
    before = {tool.tool: tool.parameters for tool in known.listed if tool.server == listing.server}
    now = {offer.tool: offer for offer in listing.offers}
    gone = sorted(before.keys() - now.keys())
    other = sorted(name for name in before.keys() & now.keys() if sound_schema(now[name].parameters) != before[name])
    told = [f"{', '.join(gone)} gone"] if gone else []
    told += [f"{', '.join(other)} with another schema"] if other else []
    return plain("; ".join(told), 500)
