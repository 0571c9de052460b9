"""The command line's grammar. Light: nothing is imported that a command needs only when it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from xnagent import __version__
from xnagent.core.values import dataclass
from xnagent.errors import UsageError

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
INSPECT_PARTS: Final = ("spine", "deltas", "rebases", "requests", "runs", "tasks", "facts", "cost", "events")


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """One line that says what is wrong and where help is."""
        raise UsageError(f"USAGE: {message}; see {self.prog} --help")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("objective", nargs="?", help="what to do; - reads it from stdin")
    parser.add_argument("-f", "--file", metavar="FILE", help="read the objective from a file")
    _add_dry_run(parser)
    _add_folder(parser)
    _add_model(parser)
    _add_limits(parser)
    parser.add_argument("--ephemeral", action="store_true", help="keep nothing of the session")


def _add_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--message", metavar="TEXT", help="something more for the Planner, such as an answer")
    _add_dry_run(parser)
    _add_model(parser)
    _add_limits(parser)


def _add_tell(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("text", metavar="TEXT", help="what to say; - reads it from stdin")


def _add_cancel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--reason", metavar="TEXT", help="why; it stands in the session's log and final record")


def _add_batch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", metavar="JOBS.jsonl")
    parser.add_argument(
        "--out", required=True, metavar="RESULTS.jsonl", help="one line for each job that came to an end"
    )
    _add_dry_run(parser)
    parser.add_argument(
        "--format",
        choices=("jobs", "swebench"),
        help="what the file holds (default jobs); swebench: instances, and --out gets predictions",
    )
    parser.add_argument(
        "--repos", type=_place, metavar="DIR", help="swebench: repositories as DIR/OWNER__NAME (default: from GitHub)"
    )
    parser.add_argument(
        "--bundle", type=_place, metavar="DIR", help="write each result there too, as SESSION.bundle for git fetch"
    )
    parser.add_argument("--retry-failed", action="store_true", help="run jobs again that did not end with exit code 0")
    group = parser.add_argument_group("how many at once, and how much in all")
    _add_slots(group, "sessions at the same time, in all processes (default 1)")
    group.add_argument("--processes", type=_count, metavar="N", help="worker processes, for sessions to be spread over")
    group.add_argument("--batch-usd", type=_amount, metavar="N", help="for the whole batch; lent to jobs beforehand")
    group.add_argument("--batch-tokens", type=_count, metavar="N", help="for the whole batch; lent to jobs beforehand")
    group.add_argument("--batch-deadline", type=_amount, metavar="SECONDS", help="then all stop, and can go on later")
    _add_server(parser)
    _add_folder(parser)
    _add_model(parser)
    _add_limits(parser)


def _add_worker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queue", metavar="FILE", help="the queue of a batch that runs (engine local)")
    _add_slots(parser, "sessions at the same time (default 1)")
    parser.add_argument("--sharers", type=_count, metavar="N", help="so many workers share the provider's limits")
    parser.add_argument("--with-stdin", action="store_true", help="end when stdin closes")
    _add_server(parser)


def _add_slots(parser: argparse._ActionsContainer, about: str) -> None:
    parser.add_argument("-j", "--jobs-at-once", type=_count, metavar="N", help=about)
    parser.add_argument(
        "--calls-at-once", type=_count, metavar="N", help="model calls at the same time to one endpoint (no limit)"
    )
    parser.add_argument("--engine", choices=("local", "temporal"), help="who hands out the jobs (default local)")
    parser.add_argument(
        "--lease-seconds", type=_amount, metavar="N", help="after so long a silence a worker is lost (default 30)"
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine temporal", "TLS and keys: TEMPORAL_… as in Temporal's own tools")
    group.add_argument("--address", metavar="HOST:PORT", help="the server (TEMPORAL_ADDRESS, else localhost:7233)")
    group.add_argument("--namespace", metavar="NAME", help="the server's namespace (TEMPORAL_NAMESPACE, else default)")
    group.add_argument("--task-queue", metavar="NAME", help="which workers do the jobs (default xnagent)")
    group.add_argument("--starts-per-second", type=_amount, metavar="N", help="for all workers of the queue together")


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as --output json")


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    for part in INSPECT_PARTS:
        parser.add_argument(f"--{part}", action="store_true", help=f"show the {part}")
    parser.add_argument("--json", action="store_true", help="as --output json")


def _add_rebase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("--dry-run", action="store_true", help="only say what it would do now")
    parser.add_argument("--agent", metavar="NAME", help="planner, or a run such as r1 (default: all that go on)")


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("request", type=_count, metavar="N")
    parser.add_argument("--against", type=_count, metavar="M", help="show the first item that differs from request M")


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument("-o", "--out", required=True, metavar="FILE.html", help="the page; - writes it to stdout")


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION")
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


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")


def _add_lab(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--window", type=_count, metavar="TOKENS", help="of every model (default 200000 at most)")
    parser.add_argument(
        "--reread-share",
        type=_share,
        metavar="N",
        help="what is read again of what tools answer, in the 20 steps after something was dropped (default 0.14)",
    )
    parser.add_argument("--limit", type=_count, metavar="N", help="only the first N runs")
    parser.add_argument("-o", "--out", metavar="FILE.html", help="write a page with pictures too")


def _add_place(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    _add_model(parser)


def _add_nothing(_parser: argparse.ArgumentParser) -> None:
    return


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the module that executes it, its line in the help, and its arguments."""

    module: str
    about: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


COMMANDS: Final[Mapping[str, Command]] = {
    "run": Command("xnagent.cli.run", "one session to its end", _add_run),
    "resume": Command("xnagent.cli.resume", "go on after a crash, a limit or a question", _add_resume),
    "tell": Command("xnagent.cli.tell", "say something more to a session, running or not", _add_tell),
    "cancel": Command("xnagent.cli.cancel", "stop a running session in order; it can be resumed", _add_cancel),
    "batch": Command("xnagent.cli.batch", "many sessions; again: go on where it stopped", _add_batch),
    "worker": Command("xnagent.cli.worker", "do the jobs of batches, of this machine or at a server", _add_worker),
    "sessions": Command("xnagent.cli.sessions", "the sessions in the store, newest first", _add_sessions),
    "inspect": Command("xnagent.cli.inspect", "what happened in a session", _add_inspect),
    "rebase": Command(
        "xnagent.cli.rebase", "have a running session rebase its histories, or say what that would do", _add_rebase
    ),
    "request": Command("xnagent.cli.request", "the exact bytes of a request", _add_request),
    "replay": Command(
        "xnagent.cli.replay", "check every request of a session byte for byte, without a model", _add_session
    ),
    "report": Command("xnagent.cli.report", "one self-contained HTML page of a session, with pictures", _add_report),
    "export": Command("xnagent.cli.export", "a session in a form that other programs read", _add_export),
    "demo": Command("xnagent.cli.demo", "a whole session with a scripted model: no key, no network", _add_nothing),
    "doctor": Command("xnagent.cli.doctor", "what works here", _add_place),
    "lab": Command(
        "xnagent.cli.lab", "what the same work costs under other context strategies and price tables", _add_lab
    ),
    "models": Command("xnagent.cli.models", "known models", _add_place),
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; options that were not given are missing. Raises UsageError; SystemExit after help or version."""
    parser = Parser(
        prog="xnagent",
        description="Headless Planner-Executor orchestrator.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"xnagent {__version__}")
    _add_common(parser, prefix="early_")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.about,
            description=command.about,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        _add_common(sub)
        command.add_arguments(sub)
    arguments = parser.parse_args(argv)
    if getattr(arguments, "command", None) is None:
        raise UsageError(f"USAGE: which command? One of {', '.join(COMMANDS)}; see xnagent --help")
    _join_early(arguments)
    return arguments


def _add_common(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    group = parser.add_argument_group("common options")
    group.add_argument("--home", metavar="DIR", help="where sessions are kept")
    group.add_argument(
        "--config", action="append", dest=f"{prefix}config", metavar="FILE", help="more settings; later files win"
    )
    group.add_argument(
        "-s", "--set", action="append", dest=f"{prefix}set", metavar="KEY=VALUE", help="any setting, such as parallel=2"
    )
    group.add_argument("--output", choices=("text", "json", "jsonl"), help="what stdout carries (default text)")
    group.add_argument("-q", "--quiet", action="store_true", help="only errors on stderr")
    group.add_argument("-v", "--verbose", action="store_true", help="every event, debug messages and tracebacks")
    group.add_argument("--log-file", metavar="FILE", help="logs go there instead of stderr")


def _join_early(arguments: argparse.Namespace) -> None:
    """Lists may be given before and after the command; argparse would keep only the later ones."""
    for name in ("config", "set"):
        both = [*getattr(arguments, f"early_{name}", []), *getattr(arguments, name, [])]
        setattr(arguments, name, both)


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what it is going to cost; send and keep nothing")


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-C", "--directory", metavar="DIR", help="the repository (default: here)")


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="NAME", help="for both roles")
    group.add_argument("--worker-model", metavar="NAME", help="another one for the Workers")
    group.add_argument("--wire", metavar="WIRE", help="chat, responses or messages")
    group.add_argument("--base-url", metavar="URL")
    group.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds the key")
    group.add_argument(
        "--budget", type=_count, metavar="TOKENS", help="room for the Planner's history, within its window"
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits and policy")
    group.add_argument("--check", action="append", metavar="CMD", help="must pass on the result (repeatable)")
    for name in ("usd", "tokens", "steps", "runs"):
        group.add_argument(f"--max-{name}", metavar="N")
    group.add_argument("--deadline", metavar="SECONDS")
    group.add_argument("--parallel", metavar="N", help="runs at the same time")
    group.add_argument("--apply", action=argparse.BooleanOptionalAction, help="bring the result into the checkout")
    group.add_argument("--prefix", metavar="MODE", help="off, warn or strict")
    group.add_argument("--sandbox", metavar="MODE", help="required, auto, external or off")
    group.add_argument("--network", metavar="on|off")
    group.add_argument(
        "--allow", action="append", metavar="RULE", help="only this of the rule's tool, such as 'Bash(npm run *)'"
    )
    group.add_argument("--deny", action="append", metavar="RULE", help="never this, such as 'Read(.env)' or 'Bash'")
    group.add_argument("--max-denials", metavar="N", help="so many denied calls end the session")
    group.add_argument(
        "--secret-env", action="append", metavar="NAME", help="mask this variable's value everywhere (repeatable)"
    )
    group.add_argument("--trust-project-skills", action="store_true", help="let agents use the repository's skills")


def _place(text: str) -> str:
    """A folder by its whole path: workers may stand elsewhere."""
    return str(Path(text).expanduser().absolute())


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 1")
    return number


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return number
