"""The command line's grammar. Light: nothing is imported that a command needs only when it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from xnagent import __version__
from xnagent.cli.looking import (
    SESSION_HELP,
    add_export,
    add_inspect,
    add_lab,
    add_rebase,
    add_replay,
    add_report,
    add_request,
    add_serve,
    add_sessions,
)
from xnagent.cli.numbers import amount, count, place
from xnagent.core.values import dataclass
from xnagent.errors import UsageError

ABOUT: Final = (
    "Works on an objective in a repository until it is done: a Planner splits it into tasks, Workers do them, checks "
    "decide. Nobody has to watch; the exit code tells how it ended."
)
FIRST_STEPS: Final = (
    "First steps: `xnagent doctor`, `xnagent demo`, then `xnagent run 'make the tests pass' --check 'make test'`. "
    "Options of a command: `xnagent COMMAND --help`."
)
SPENT: Final[Mapping[str, str]] = {
    "usd": "dollars for the whole session",
    "tokens": "tokens, sent and received",
    "steps": "model calls",
    "runs": "attempts at tasks",
}
"""What `--max-…` limits."""


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of ending the process."""

    commands: Mapping[str, Parser]
    """Of the whole grammar: its commands by name."""

    @property
    def arguments(self) -> Sequence[argparse.Action]:
        """What may be given, in the order of the help."""
        return self._actions

    @property
    def groups(self) -> Mapping[str, Sequence[argparse.Action]]:
        """The same by the headings of the help."""
        return {str(group.title): vars(group)["_group_actions"] for group in self._action_groups}

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
    parser.add_argument("--ephemeral", action="store_true", help="keep nothing of the session when it is over")


def _add_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument("--message", metavar="TEXT", help="something more for the Planner, such as an answer")
    _add_dry_run(parser)
    _add_model(parser)
    _add_limits(parser)


def _add_acp(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_limits(parser)


def _add_tell(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument("text", metavar="TEXT", help="what to say; - reads it from stdin")


def _add_cancel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument("--reason", metavar="TEXT", help="why; it stands in the session's log and final record")


def _add_batch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "jobs", metavar="JOBS.jsonl", help="one job a line; only `objective` is required (docs/batch.md)"
    )
    parser.add_argument(
        "--out", required=True, metavar="RESULTS.jsonl", help="one line for each job that came to an end"
    )
    _add_dry_run(parser)
    parser.add_argument(
        "--format",
        choices=("jobs", "swebench", "polyglot"),
        help="what is read (default jobs); swebench: instances, --out gets predictions; polyglot: folders of exercises",
    )
    parser.add_argument(
        "--repos", type=place, metavar="DIR", help="swebench: repositories as DIR/OWNER__NAME (default: from GitHub)"
    )
    parser.add_argument(
        "--bundle", type=place, metavar="DIR", help="write each result there too, as SESSION.bundle for git fetch"
    )
    parser.add_argument("--retry-failed", action="store_true", help="run jobs again that did not end with exit code 0")
    group = parser.add_argument_group("how many at once, and how much in all")
    _add_slots(group, "sessions at the same time, in all processes (default 1)")
    group.add_argument("--processes", type=count, metavar="N", help="worker processes, for sessions to be spread over")
    group.add_argument("--batch-usd", type=amount, metavar="N", help="for the whole batch; lent to jobs beforehand")
    group.add_argument("--batch-tokens", type=count, metavar="N", help="for the whole batch; lent to jobs beforehand")
    group.add_argument("--batch-deadline", type=amount, metavar="SECONDS", help="then all stop, and can go on later")
    _add_server(parser)
    _add_folder(parser)
    _add_model(parser)
    _add_limits(parser)


def _add_worker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queue", metavar="FILE", help="the queue of a batch that runs (engine local)")
    _add_slots(parser, "sessions at the same time (default 1)")
    parser.add_argument(
        "--sharers",
        type=count,
        metavar="N",
        help="how many workers in all share the provider's limits",
    )
    parser.add_argument("--with-stdin", action="store_true", help="end when stdin closes")
    _add_server(parser)


def _add_slots(parser: argparse._ActionsContainer, about: str) -> None:
    parser.add_argument("-j", "--jobs-at-once", type=count, metavar="N", help=about)
    parser.add_argument(
        "--calls-at-once", type=count, metavar="N", help="model calls at the same time to one endpoint (no limit)"
    )
    parser.add_argument("--engine", choices=("local", "temporal"), help="who hands out the jobs (default local)")
    parser.add_argument(
        "--lease-seconds", type=amount, metavar="N", help="after so long a silence a worker is lost (default 30)"
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine temporal", "TLS and keys: TEMPORAL_… as in Temporal's own tools")
    group.add_argument("--address", metavar="HOST:PORT", help="the server (TEMPORAL_ADDRESS, else localhost:7233)")
    group.add_argument("--namespace", metavar="NAME", help="the server's namespace (TEMPORAL_NAMESPACE, else default)")
    group.add_argument("--task-queue", metavar="NAME", help="which workers do the jobs (default xnagent)")
    group.add_argument("--starts-per-second", type=amount, metavar="N", help="for all workers of the queue together")


def _add_fork(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument(
        "--at",
        type=count,
        required=True,
        metavar="N",
        help="the last event that the new session has, as `inspect --events` numbers them",
    )
    parser.add_argument(
        "--message", action="append", metavar="TEXT", help="something more for the Planner of the new one (repeatable)"
    )
    parser.add_argument("--run", action="store_true", help="go on with the new session at once, as `resume` does")
    parser.add_argument("--json", action="store_true", help="as --output json")
    _add_model(parser)
    _add_limits(parser)


def _add_place(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    _add_model(parser)


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh", "fish"), help="the shell; docs/shell.md says where to")


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
    "sessions": Command("xnagent.cli.sessions", "the sessions in the store, newest first", add_sessions),
    "inspect": Command("xnagent.cli.inspect", "what happened in a session", add_inspect),
    "rebase": Command(
        "xnagent.cli.rebase", "have a running session rebase its histories, or say what that would do", add_rebase
    ),
    "request": Command("xnagent.cli.request", "the exact bytes of a request", add_request),
    "replay": Command(
        "xnagent.cli.replay", "run a session again from its log, without a model, and check every byte", add_replay
    ),
    "fork": Command("xnagent.cli.fork", "a new session that goes on from a point in another one's log", _add_fork),
    "report": Command("xnagent.cli.report", "one self-contained HTML page of a session, with pictures", add_report),
    "export": Command("xnagent.cli.export", "a session in a form that other programs read", add_export),
    "serve": Command("xnagent.cli.serve", "pages of all sessions in the store, live", add_serve),
    "acp": Command("xnagent.cli.acp", "an agent for editors (Agent Client Protocol) over stdin and stdout", _add_acp),
    "demo": Command("xnagent.cli.demo", "a whole session with a scripted model: no key, no network", _add_nothing),
    "doctor": Command("xnagent.cli.doctor", "what works here, and whether a run could start", _add_place),
    "lab": Command(
        "xnagent.cli.lab", "what the same work costs under other context strategies and price tables", add_lab
    ),
    "models": Command("xnagent.cli.models", "known models, with window, prices and key", _add_place),
    "completion": Command("xnagent.cli.completion", "a script that completes commands in your shell", _add_completion),
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; options that were not given are missing. Raises UsageError; SystemExit after help or version."""
    arguments = make_parser().parse_args(argv)
    if getattr(arguments, "command", None) is None:
        raise UsageError(f"USAGE: which command? One of {', '.join(COMMANDS)}; see xnagent --help")
    _join_early(arguments)
    return arguments


def make_parser() -> Parser:
    """The whole grammar."""
    parser = Parser(
        prog="xnagent",
        description=ABOUT,
        epilog=FIRST_STEPS,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"xnagent {__version__}")
    _add_common(parser, prefix="early_")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    made: dict[str, Parser] = {}
    for name, command in COMMANDS.items():
        made[name] = commands.add_parser(
            name,
            help=command.about,
            description=command.about,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        _add_common(made[name])
        command.add_arguments(made[name])
    parser.commands = made
    return parser


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
    group.add_argument("--model", metavar="NAME", help="for both roles; `xnagent models` lists known ones")
    group.add_argument("--worker-model", metavar="NAME", help="another one for the Workers")
    group.add_argument("--wire", metavar="WIRE", help="what the endpoint speaks: chat, responses or messages")
    group.add_argument("--base-url", metavar="URL", help="an endpoint of your own, such as http://127.0.0.1:8080/v1")
    group.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds the key")
    group.add_argument(
        "--budget", type=count, metavar="TOKENS", help="room for the Planner's history, within its window"
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits and policy")
    group.add_argument(
        "--check", action="append", metavar="CMD", help="a command that the result must pass (repeatable)"
    )
    for name, about in SPENT.items():
        group.add_argument(f"--max-{name}", metavar="N", help=f"{about}; then the session ends and can be resumed")
    group.add_argument("--deadline", metavar="SECONDS", help="the same for its time")
    group.add_argument("--parallel", metavar="N", help="runs at the same time")
    group.add_argument("--apply", action=argparse.BooleanOptionalAction, help="bring the result into the checkout")
    group.add_argument(
        "--prefix",
        metavar="MODE",
        help="when a request does not extend the one before: off, warn or strict (end)",
    )
    group.add_argument(
        "--sandbox", metavar="MODE", help="commands run in a box: required (or not at all), auto, external or off"
    )
    group.add_argument("--network", metavar="on|off", help="whether commands reach it (off in a box)")
    group.add_argument(
        "--allow", action="append", metavar="RULE", help="only this of the rule's tool, such as 'Bash(npm run *)'"
    )
    group.add_argument("--deny", action="append", metavar="RULE", help="never this, such as 'Read(.env)' or 'Bash'")
    group.add_argument("--max-denials", metavar="N", help="so many denied calls end the session")
    group.add_argument(
        "--secret-env", action="append", metavar="NAME", help="mask this variable's value everywhere (repeatable)"
    )
    group.add_argument("--trust-project-skills", action="store_true", help="let agents use the repository's skills")
