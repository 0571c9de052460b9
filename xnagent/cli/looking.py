"""The grammar of the commands that only look at what is stored."""

from __future__ import annotations

import argparse
from typing import Final

from xnagent.cli.numbers import count, port, share

LAB_PROVIDERS: Final = ("deepseek", "openai", "anthropic", "no-cache")
LAB_STRATEGIES: Final = (
    "snapshot-replace",
    "append-snapshot",
    "append",
    "delta+rebase",
    "delta+rebase/threshold",
    "sliding-window",
    "clear-old-results",
    "summary",
    "aligned-summary",
)
EXPORT_FORMATS: Final = ("atif", "otel", "swebench", "github", "jsonl")
INSPECT_PARTS: Final = {
    "spine": "the Planner's history as it is now, item by item",
    "deltas": "what the Planner was told of changes",
    "rebases": "how histories were shortened, and what that cost and saved",
    "requests": "each model call: tokens, cached share, price",
    "runs": "each attempt at a task: status, steps, checks, changed files",
    "tasks": "the plan",
    "facts": "what was found out, with its history",
    "cost": "tokens and money by role and model",
    "events": "the whole log",
}
"""What each part shows."""
SESSION_HELP: Final = "its id, as `xnagent sessions` lists them"


def add_sessions(parser: argparse.ArgumentParser) -> None:
    """Arguments of `sessions`."""
    parser.add_argument("--json", action="store_true", help="as --output json")


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Arguments of `inspect`."""
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    for part, about in INSPECT_PARTS.items():
        parser.add_argument(f"--{part}", action="store_true", help=about)
    parser.add_argument("--json", action="store_true", help="as --output json")
    parser.add_argument("--sql", metavar="SELECT", help="ask the views of the session (docs/inspect.md)")
    parser.add_argument("--limit", type=count, metavar="N", help="only the first N events, or rows of an answer")
    group = parser.add_argument_group("which events; without a part these show the events")
    group.add_argument("--kind", action="append", metavar="KIND", help="such as tool_finished (repeatable)")
    group.add_argument("--agent", metavar="NAME", help="planner, or a run such as r1")
    group.add_argument("--task", metavar="TASK", help="the task and its runs")
    group.add_argument("--from", type=count, dest="from_seq", metavar="SEQ", help="from this place in the log on")
    group.add_argument("--to", type=count, dest="to_seq", metavar="SEQ", help="up to this place")
    group.add_argument("--since", metavar="TIME", help="not before it, such as 2026-11-30T17:30Z (no zone: UTC)")
    group.add_argument("--until", metavar="TIME", help="not after it")


def add_rebase(parser: argparse.ArgumentParser) -> None:
    """Arguments of `rebase`."""
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument("--dry-run", action="store_true", help="only say what it would do now")
    parser.add_argument("--agent", metavar="NAME", help="planner, or a run such as r1 (default: all that go on)")


def add_request(parser: argparse.ArgumentParser) -> None:
    """Arguments of `request`."""
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument("request", type=count, metavar="N", help="1, 2, 3… as `inspect --requests` lists them")
    parser.add_argument("--against", type=count, metavar="M", help="show the first item that differs from request M")
    parser.add_argument("--explain", action="store_true", help="its parts as the model reads them, with what each cost")
    parser.add_argument(
        "--what-if",
        action="append",
        metavar="KEY=VALUE",
        help="what a change before it would have lost: cwd=DIR, model=NAME, add-tool=NAME, drop-tool=NAME (repeatable)",
    )


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Arguments of `replay`."""
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--at",
        type=count,
        metavar="N",
        help="stop after event N, as `inspect --events` numbers them, and show how the session stood",
    )
    either.add_argument("--diff", metavar="OTHER", help="show the first decision that session OTHER made otherwise")
    parser.add_argument("--json", action="store_true", help="as --output json")


def add_report(parser: argparse.ArgumentParser) -> None:
    """Arguments of `report`."""
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument("-o", "--out", required=True, metavar="FILE.html", help="the page; - writes it to stdout")


def add_export(parser: argparse.ArgumentParser) -> None:
    """Arguments of `export`."""
    parser.add_argument("sessions", nargs="+", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument(
        "--format",
        required=True,
        choices=EXPORT_FORMATS,
        help="atif: a trajectory; otel: OTLP JSON; swebench: a prediction; github: Markdown; jsonl: the events",
    )
    parser.add_argument("-o", "--out", metavar="FILE", help="where to (default -, stdout)")
    parser.add_argument(
        "--instance", action="append", metavar="ID", help="swebench: the instance, one for each session (its own name)"
    )
    parser.add_argument("--content", action="store_true", help="otel: with what was said; otherwise only numbers")


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Arguments of `serve`."""
    parser.add_argument("--host", metavar="ADDRESS", help="where to listen (default 127.0.0.1: this machine alone)")
    parser.add_argument("--port", type=port, metavar="N", help="default 8421; 0: any that is free")
    parser.add_argument("--read-only", action="store_true", help="pages can't tell or cancel sessions")
    parser.add_argument("--json", action="store_true", help="as --output json")


def add_lab(parser: argparse.ArgumentParser) -> None:
    """Arguments of `lab`."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a session; a .jsonl or .jsonl.gz file of recorded runs, or a folder of them; an ATIF trajectory (.json); "
        "none: all sessions in the store",
    )
    parser.add_argument(
        "--strategy",
        action="append",
        choices=LAB_STRATEGIES,
        metavar="NAME",
        help=f"one of {', '.join(LAB_STRATEGIES)}",
    )
    parser.add_argument(
        "--provider", action="append", choices=LAB_PROVIDERS, metavar="NAME", help=f"one of {', '.join(LAB_PROVIDERS)}"
    )
    parser.add_argument(
        "--price", action="append", metavar="[PROVIDER=]MODEL", help="whose prices and cache numbers hold (repeatable)"
    )
    parser.add_argument("--window", type=count, metavar="TOKENS", help="of every model (default 200000 at most)")
    parser.add_argument(
        "--reread-share",
        type=share,
        metavar="N",
        help="what is read again of what tools answer, in the 20 steps after something was dropped (default 0.14)",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="only the first N runs")
    parser.add_argument("-o", "--out", metavar="FILE.html", help="write a page with pictures too")
