"""`xnagent completion SHELL`: a script that completes what is typed, from the same grammar as `--help`.

The script stands on its own: pressing Tab starts no Python.
"""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Final

import shtab

from xnagent.cli.arguments import make_parser
from xnagent.cli.console import Console
from xnagent.config import Settings
from xnagent.config.entry import catalog_of
from xnagent.errors import UsageError

FILES: Final = frozenset({"FILE", "FILE.html", "JOBS.jsonl", "RESULTS.jsonl", "RUN"})
"""What an argument that is a file is called in the help."""
SESSION: Final = "SESSION"
WORDS: Final[Mapping[str, Sequence[str]]] = {
    "wire": ("chat", "responses", "messages"),
    "prefix": ("off", "warn", "strict"),
    "sandbox": ("required", "auto", "external", "off"),
    "network": ("on", "off"),
}
"""What the settings behind these options may be: the settings check them, with better words than the grammar could."""
MODELS: Final = frozenset({"model", "worker_model"})

_FOLDER: Final = '"${XNAGENT_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/xnagent}"/sessions'
_BASH: Final = f"""
_xnagent_sessions() {{
  local place found=()
  for place in {_FOLDER}/*.db; do
    [ -e "$place" ] && place="${{place##*/}}" && found+=("${{place%.db}}")
  done
  compgen -W "${{found[*]}}" -- "$1"
}}
"""
_ZSH: Final = f"""
_xnagent_sessions() {{
  local -a found
  found=({_FOLDER}/*.db(N:t:r))
  compadd -a found
}}
"""
_FISH: Final = """
function _xnagent_sessions
    set -l home "$XNAGENT_HOME"
    if test -z "$home"
        set -l state "$XDG_STATE_HOME"
        test -z "$state"; and set state "$HOME/.local/state"
        set home "$state/xnagent"
    end
    for place in $home/sessions/*.db
        string replace -r '.*/(.*)\\.db$' '$1' -- $place
    end
end
"""
SESSIONS: Final[Mapping[str, str]] = {
    "bash": "_xnagent_sessions",
    "zsh": "_xnagent_sessions",
    "fish": "(_xnagent_sessions)",
}
"""Sessions that are kept as files where no option says otherwise; in tcsh there are no functions to look for them."""
PREAMBLE: Final[Mapping[str, str]] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def execute(arguments: Namespace, console: Console) -> int:
    """Write it to stdout."""
    script = completion(arguments.shell)
    if console.output != "text":
        console.record({"type": "completion", "shell": arguments.shell, "script": script})
        return 0
    console.answer(script)
    return 0


def completion(shell: str) -> str:
    """The script. Raises UsageError where the installed shtab does not know the shell."""
    parser = make_parser()
    models = tuple(catalog_of(Settings()))
    for part in (parser, *parser.commands.values()):
        for action in part.arguments:
            _complete(action, models=models)
            if shell == "tcsh" and action.choices and not isinstance(action.choices, Mapping):
                # There a slash ends the list.
                action.choices = [word for word in action.choices if "/" not in word]
    try:
        return shtab.complete(parser, shell, preamble=PREAMBLE.get(shell, ""))
    except NotImplementedError as error:
        raise UsageError(
            f"NOT_AVAILABLE: the installed shtab {shtab.__version__} makes no script for {shell}; install a newer one"
        ) from error


def _complete(action: argparse.Action, *, models: Sequence[str]) -> None:
    name = str(action.metavar or "")
    if name in FILES:
        vars(action)["complete"] = shtab.FILE
    elif name == "DIR":
        vars(action)["complete"] = shtab.DIRECTORY
    elif name in {SESSION, "OTHER"}:
        vars(action)["complete"] = SESSIONS
    elif action.dest in WORDS:
        action.choices = WORDS[action.dest]
    elif action.dest in MODELS:
        action.choices = models
    # In a specification of zsh a colon ends the name.
    action.metavar = re.sub(r"\W+", "-", name).strip("-") or None
