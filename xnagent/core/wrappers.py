"""Commands that run other commands (`timeout`, `env`, `sh -c`, `find -exec`): what they come to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from xnagent.core.shell_words import DYNAMIC, Redirect, Script, Simple, Word, read_script
from xnagent.core.values import dataclass

MAX_DEPTH: Final = 4
SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
OPAQUE: Final[Mapping[str, str]] = {
    "eval": "`eval` runs its arguments as a command line",
    "trap": "`trap` keeps a command line for later",
    "parallel": "`parallel` runs commands that it puts together",
    "watch": "`watch` runs its arguments as a command line",
    "alias": "`alias` gives a command another name",
    "enable": "`enable` changes what a name means",
    "hash": "`hash` changes what a name means",
}
DANGEROUS: Final = re.compile(
    r"LD_.*|DYLD_.*|GIT_.*|BASH.*|ENV|IFS|SHELL.*|PS4|PROMPT_COMMAND|.*PATH|.*_?OPT(S|ION|IONS)?|.*PAGER|.*EDITOR"
    r"|.*VISUAL|.*BROWSER|.*_CMD|.*COMMAND|.*STARTUP|.*PRELOAD|.*RC|HOME|.*_HOME|PERL5.*|RUBY.*|PYTHON(?!UNBUFFERED$|"
    r"DONTWRITEBYTECODE$|HASHSEED$|WARNINGS$).*"
)
"""Variables that change which program runs, or what it runs."""
HARMLESS_SHELL_OPTIONS: Final = frozenset({"--login", "--norc", "--noprofile", "--posix"})
DEVICES: Final = re.compile(r"/dev/(null|stdout|stderr|fd/\d+)")
MOVERS: Final = frozenset({"cd", "pushd", "popd"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapper:
    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    positional: int = 0
    """Words before the command."""
    is_transparent: bool = True
    """It adds nothing to what the command can do."""
    has_more: bool = False
    """Words that nobody sees go to the end of the command."""


def _wrapper(flags: str = "", valued: str = "", *, positional: int = 0) -> _Wrapper:
    return _Wrapper(flags=frozenset(flags.split()), valued=frozenset(valued.split()), positional=positional)


def _judged(flags: str, valued: str, *, has_more: bool = False) -> _Wrapper:
    return replace(_wrapper(flags, valued), is_transparent=False, has_more=has_more)


WRAPPERS: Final[Mapping[str, _Wrapper]] = {
    "timeout": _wrapper("--foreground --preserve-status -v --verbose", "-k --kill-after -s --signal", positional=1),
    "nohup": _wrapper(),
    "nice": _wrapper("", "-n --adjustment"),
    "ionice": _wrapper("-t", "-c --class -n --classdata"),
    "stdbuf": _wrapper("", "-i --input -o --output -e --error"),
    "setsid": _wrapper("-f --fork -w --wait -c --ctty"),
    "env": _wrapper("-i - --ignore-environment", "-u --unset"),
    "exec": _wrapper("-c -l", "-a"),
    "command": _wrapper("-p"),
    "builtin": _wrapper(),
    "sudo": _judged("-n -E -H --non-interactive", "-u --user -g --group"),
    "doas": _judged("-n", "-u"),
    "xargs": _judged(
        "-0 --null -r --no-run-if-empty -t --verbose -x",
        "-n --max-args -P --max-procs -L --max-lines -d --delimiter -a --arg-file -I -s",
        has_more=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A command that would run."""

    words: tuple[Word, ...]
    is_judged: bool = True
    """It needs an allow rule itself; false for a wrapper that only passes on, whose command needs one."""
    redirects: tuple[Redirect, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Its words."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a command line comes to."""

    parts: tuple[Part, ...]
    problems: tuple[str, ...]
    """Why nobody can say for certain what it runs; empty: the parts are all of it."""


def read_command(text: str, *, depth: int = 0) -> Reading:
    """All commands of a command line, those inside wrappers too."""
    if depth > MAX_DEPTH:
        return Reading(parts=(), problems=("shells in shells",))
    script = read_script(text)
    parts: list[Part] = []
    problems = [*script.problems, *_places(script)]
    for command in script.commands:
        _read_simple(command, parts, problems=problems, depth=depth)
    return Reading(parts=tuple(parts), problems=tuple(dict.fromkeys(problems)))


def _read_simple(command: Simple, parts: list[Part], *, problems: list[str], depth: int) -> None:
    problems += [f"the assignment to {name}" for name, _ in command.assignments if DANGEROUS.fullmatch(name)]
    if not command.words:
        return
    first = command.words[0]
    if not first.is_known:
        problems.append("a variable or pattern in the place of a command")
    name = base_name(first.text)
    if name in OPAQUE:
        problems.append(OPAQUE[name])
    wrapper = WRAPPERS.get(name)
    is_query = name == "command" and any(word.text in {"-v", "-V"} for word in command.words[1:2])
    is_passed_on = wrapper is not None and wrapper.is_transparent and not is_query
    is_script = name in SHELLS and _script_of(command) is not None
    is_judged = not (is_passed_on or is_script) or first.text not in {name, f"/bin/{name}", f"/usr/bin/{name}"}
    parts.append(Part(words=command.words, redirects=command.redirects, is_judged=is_judged))
    if name in SHELLS:
        _read_shell(command, parts, problems=problems, depth=depth)
    elif name == "find":
        _read_find(command, parts, problems=problems, depth=depth)
    elif wrapper is not None and not is_query:
        _read_wrapped(command, parts, problems=problems, depth=depth)


def base_name(program: str) -> str:
    """The program without its folder."""
    return program.rpartition("/")[2]


def _read_wrapped(command: Simple, parts: list[Part], *, problems: list[str], depth: int) -> None:
    name = base_name(command.words[0].text)
    wrapper = WRAPPERS[name]
    at = _after_options(command.words, wrapper)
    if at is None or depth >= MAX_DEPTH:
        problems.append(f"options of `{name}` that are not known")
        return
    inner = list(command.words[at + wrapper.positional :])
    assignments: list[tuple[str, Word]] = []
    while name in {"env", "sudo"} and inner and "=" in inner[0].text:
        word = inner.pop(0)
        assignments.append((word.text.partition("=")[0], word))
    if not inner:
        parts[-1] = replace(parts[-1], is_judged=True)
        return
    more = [Word(text=DYNAMIC, bare=DYNAMIC)] if wrapper.has_more else []
    passed = Simple(words=(*inner, *more), assignments=tuple(assignments))
    _read_simple(passed, parts, problems=problems, depth=depth + 1)


def _after_options(words: tuple[Word, ...], wrapper: _Wrapper) -> int | None:
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        name, equals, _ = text.partition("=")
        if text == "--":
            return at + 1
        if text in wrapper.flags or (equals and name in wrapper.valued):
            at += 1
        elif text in wrapper.valued:
            at += 2
        elif text[:2] in wrapper.valued and DYNAMIC not in text:
            at += 1
        else:
            return None
    return at


def _script_of(command: Simple) -> Word | None:
    """The command line after `-c`."""
    words = list(command.words[1:])
    while words:
        word = words.pop(0).text
        if word in HARMLESS_SHELL_OPTIONS:
            continue
        if not word.startswith(("-", "+")) or word.startswith("--"):
            return None
        if word[-1] in "oO":
            words = words[1:]
        elif "c" in word and word.startswith("-"):
            return words[0] if words else None
    return None


def _read_shell(command: Simple, parts: list[Part], *, problems: list[str], depth: int) -> None:
    script = _script_of(command)
    if script is not None and DYNAMIC not in script.text:
        inner = read_command(script.text, depth=depth + 1)
        parts += inner.parts
        problems += inner.problems
        return
    names_file = any(not word.text.startswith(("-", "+")) for word in command.words[1:])
    if script is not None or not names_file or any(word.text == "-s" for word in command.words):
        problems.append("a shell whose commands come from elsewhere")


def _read_find(command: Simple, parts: list[Part], *, problems: list[str], depth: int) -> None:
    if any(DYNAMIC in word.text for word in command.words):
        problems.append("`find` with variables")
    rest = list(command.words[1:])
    while rest:
        if rest.pop(0).text not in {"-exec", "-execdir", "-ok", "-okdir"}:
            continue
        end = next((at for at, word in enumerate(rest) if word.text in {";", "+"}), len(rest))
        found = Word(text=DYNAMIC, bare=DYNAMIC)
        inner = tuple(found if "{}" in word.text else word for word in rest[:end])
        _read_simple(Simple(words=inner), parts, problems=problems, depth=depth + 1)
        rest = rest[end + 1 :]


def _places(script: Script) -> list[str]:
    """Redirections that lead out of the workspace, or may."""
    targets = [redirect.target for command in script.commands for redirect in command.redirects]
    found = [f"a redirection to {word.text.replace(DYNAMIC, '$…')!r}" for word in targets if not _is_inside(word)]
    is_moved = any(_moves_out(command) for command in script.commands)
    if is_moved and any(not DEVICES.fullmatch(word.text) for word in targets):
        found.append("a redirection after a change of folder")
    return found


def _is_inside(word: Word) -> bool:
    if DEVICES.fullmatch(word.text):
        return True
    return word.is_known and not word.text.startswith("/") and ".." not in word.text.split("/")


def _moves_out(command: Simple) -> bool:
    if not command.words or command.words[0].text not in MOVERS:
        return False
    aims = command.words[1:]
    return len(aims) != 1 or not _is_inside(aims[0]) or aims[0].text.startswith("-")
