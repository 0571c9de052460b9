"""`xnagent models`: what is known of which model."""

from __future__ import annotations

import os
from argparse import Namespace

from xnagent.cli.console import Console
from xnagent.cli.hosting import home_of
from xnagent.cli.options import folder_of, settings_of
from xnagent.config import ModelTable
from xnagent.config.entry import catalog_of
from xnagent.core.text import Json
from xnagent.inspect.plain import UNKNOWN, count, table

COLUMNS = (
    "model",
    "wire",
    "window",
    "output",
    "in $/M",
    "cached",
    "cache write",
    "for long",
    "out",
    "dearer above",
    "key",
    "as of",
)


def execute(arguments: Namespace, console: Console) -> int:
    """List them, the user's own included."""
    settings = settings_of(arguments, home_of(arguments), repository=folder_of(arguments))
    known = catalog_of(settings)
    if console.output == "text":
        console.answer(table(COLUMNS, [_row(name, entry) for name, entry in known.items()]))
        return 0
    listed: list[Json] = [{"name": name, **entry.model_dump(mode="json")} for name, entry in known.items()]
    console.record({"type": "models", "models": listed})
    return 0


def _row(name: str, entry: ModelTable) -> tuple[str, ...]:
    price = entry.price
    prices = (
        (None,) * 5
        if price is None
        else (price.input_usd, price.cached_usd, price.cache_write_usd, price.cache_write_long_usd, price.output_usd)
    )
    tiers = () if price is None else price.tiers
    key = entry.api_key_env or "-"
    return (
        name,
        entry.wire or UNKNOWN,
        count(entry.window_tokens),
        count(entry.max_output_tokens),
        *(UNKNOWN if usd is None else f"{usd:g}" for usd in prices),
        count(min(tier.above_tokens for tier in tiers)) if tiers else "-",
        f"{key} (set)" if os.environ.get(key) else key,
        entry.date or UNKNOWN,
    )
