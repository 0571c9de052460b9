"""What bash would run, as far as that can be said without running it.

The reader is exact where it answers and says so where it cannot: whatever it does not know for certain is a problem.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from xnagent.core.values import dataclass

DYNAMIC: Final = "\ufffc"
"""Stands in a word for what is only known when the command runs."""
RESERVED: Final = frozenset(
    {
        "!",
        "[[",
        "{",
        "}",
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
    }
)
PIECE: Final = re.compile(
    r"""(?P<joined>\\\n)
    |\\(?P<escaped>.)
    |'(?P<single>[^']*)'
    |"(?P<double>(?:\\.|[^"\\])*)"
    |(?P<ansi>\$'(?:\\.|[^'\\])*')
    |(?P<variable>\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*\#?$!-]|\{[A-Za-z_][A-Za-z0-9_]*\}))
    |(?P<dollar>\$(?=[\s;&|<>)]|$))
    |(?P<plain>[^\ \t\n\\'"$`;&|<>()]+)""",
    re.DOTALL | re.VERBOSE,
)
OPERATOR: Final = re.compile(r"&&|\|\||;;&?|;&|\|&|&>>|&>|>>|>\||>&|<<<|<<-|<<|<&|<>|[<>;&|()\n]")
DESCRIPTOR: Final = re.compile(r"\d+(?=[<>])")
VARIABLE: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]|\{[A-Za-z_][A-Za-z0-9_]*\})")
ESCAPE_IN_DOUBLE: Final = re.compile(r"\\([$`\"\\\n])")
ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=|\[)")
DUPLICATE: Final = re.compile(r"\d*-?")
NAMED_DESCRIPTOR: Final = re.compile(r"\{\w+\}")
GLOB: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word after quoting; `text` holds DYNAMIC for each expansion."""

    text: str
    bare: str
    """The unquoted part of it, quoted parts as NUL."""

    @property
    def has_glob(self) -> bool:
        """Whether bash may put file names in its place."""
        return GLOB.search(self.bare) is not None

    @property
    def is_known(self) -> bool:
        """Whether it is one word with this text, whatever the variables and files are."""
        return DYNAMIC not in self.text and not self.has_glob and not self.bare.startswith("~")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """A file that a command reads from or writes to; descriptors that are only duplicated are none."""

    operator: str
    target: Word

    @property
    def is_output(self) -> bool:
        """Whether the file may be written."""
        return ">" in self.operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """One simple command."""

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()
    """Name and the whole word, for each assignment before the command."""
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A command line in its simple commands. With problems they are what was seen, and not to be relied on."""

    commands: tuple[Simple, ...]
    problems: tuple[str, ...]


class _UnreadableError(Exception):
    """From here on nothing is certain."""


@dataclass(slots=True, kw_only=True)
class _Heredoc:
    delimiter: Word
    strips_tabs: bool


@dataclass(slots=True, kw_only=True)
class _Reader:
    text: str
    at: int = 0
    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    heredocs: list[_Heredoc] = field(default_factory=list)
    commands: list[Simple] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def read(self) -> Script:
        try:
            while self.at < len(self.text):
                self._next()
            self._end_heredocs()
        except _UnreadableError as error:
            self.problems.append(str(error))
        self._end_command()
        return Script(commands=tuple(self.commands), problems=tuple(dict.fromkeys(self.problems)))

    def _next(self) -> None:
        if self.text[self.at] in " \t":
            self.at += 1
        elif self.text.startswith("\\\n", self.at):
            self.at += 2
        elif self.text[self.at] == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif self.text[self.at] in "<>()" and self.text[self.at : self.at + 2] in {"<(", ">("}:
            raise _UnreadableError("process substitution")
        elif found := OPERATOR.match(self.text, self.at):
            self.at = found.end()
            self._operator(found[0])
        elif found := DESCRIPTOR.match(self.text, self.at):
            self.at = found.end()
        else:
            self._add(self._word())

    def _add(self, word: Word) -> None:
        if NAMED_DESCRIPTOR.fullmatch(word.bare) and self.text[self.at : self.at + 1] in {"<", ">"}:
            self.problems.append("a redirection that names a variable")
        self.words.append(word)

    def _operator(self, operator: str) -> None:
        if operator in {"(", ")", ";;", ";;&", ";&"}:
            raise _UnreadableError(f"`{operator}` (subshells, functions and case are not read)")
        if "<" in operator or ">" in operator:
            self._redirect(operator)
            return
        self._end_command()
        if operator == "\n":
            self._end_heredocs()

    def _redirect(self, operator: str) -> None:
        while self.text[self.at : self.at + 1] in {" ", "\t"}:
            self.at += 1
        start = self.at
        if start == len(self.text) or OPERATOR.match(self.text, start):
            raise _UnreadableError(f"`{operator}` without a target")
        target = self._word()
        if operator in {"<<", "<<-"}:
            self.heredocs.append(_Heredoc(delimiter=target, strips_tabs=operator == "<<-"))
        is_duplicate = operator in {">&", "<&"} and DUPLICATE.fullmatch(target.text)
        if operator not in {"<<", "<<-", "<<<"} and not is_duplicate:
            self.redirects.append(Redirect(operator=operator, target=target))

    def _word(self) -> Word:
        texts: list[str] = []
        bare: list[str] = []
        start = self.at
        while piece := PIECE.match(self.text, self.at):
            self.at = piece.end()
            text, unquoted = self._piece(piece)
            texts.append(text)
            bare.append(unquoted)
        if self.at == start or self.text[self.at : self.at + 1] in {"\\", "'", '"', "$", "`"}:
            raise _UnreadableError(_name_of(self.text[self.at : self.at + 2]))
        word = Word(text="".join(texts), bare="".join(bare))
        if _has_braces(word.bare):
            self.problems.append("brace expansion")
        return word

    def _piece(self, piece: re.Match[str]) -> tuple[str, str]:
        match piece.lastgroup:
            case "joined":
                return "", ""
            case "single" | "escaped":
                return piece[piece.lastgroup], "\0"
            case "double":
                return self._double(piece["double"]), "\0"
            case "ansi":
                return DYNAMIC, "\0"
            case "variable":
                return DYNAMIC, DYNAMIC
            case _:
                return piece[0], piece[0]

    def _double(self, inner: str) -> str:
        hidden = ESCAPE_IN_DOUBLE.sub(lambda found: "" if found[1] == "\n" else f"\0{ord(found[1]):02x}", inner)
        if "`" in hidden:
            raise _UnreadableError(_name_of("`"))
        shown = VARIABLE.sub(DYNAMIC, hidden)
        if re.search(r"\$[({\[]", shown):
            raise _UnreadableError(_name_of("$("))
        return re.sub("\0(..)", lambda found: chr(int(found[1], 16)), shown)

    def _end_heredocs(self) -> None:
        for heredoc in self.heredocs:
            self._end_heredoc(heredoc)
        self.heredocs.clear()

    def _end_heredoc(self, heredoc: _Heredoc) -> None:
        if DYNAMIC in heredoc.delimiter.text:
            raise _UnreadableError("a heredoc whose end is not known")
        begin = self.at
        while True:
            if self.at >= len(self.text):
                raise _UnreadableError("a heredoc without its end")
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line, start = self.text[self.at : end], self.at
            self.at = end + 1
            if (line.lstrip("\t") if heredoc.strips_tabs else line) == heredoc.delimiter.text:
                self.at = min(self.at, len(self.text))
                break
        is_quoted = "\0" in heredoc.delimiter.bare
        if not is_quoted and re.search(r"`|\$[({\[]|\\\n", self.text[begin:start]):
            raise _UnreadableError("a heredoc in which bash substitutes")

    def _end_command(self) -> None:
        words, self.words = self.words, []
        redirects, self.redirects = tuple(self.redirects), []
        assignments: list[tuple[str, Word]] = []
        while words and (found := ASSIGNMENT.match(words[0].bare)):
            if found[2] == "[":
                self.problems.append("an assignment to an array")
            assignments.append((found[1], words.pop(0)))
        if words and words[0].bare in RESERVED:
            self.problems.append(f"`{words[0].bare}` (compound commands are not read)")
        if words or assignments or redirects:
            self.commands.append(Simple(words=tuple(words), assignments=tuple(assignments), redirects=redirects))


def _has_braces(bare: str) -> bool:
    """Whether bash may make several words of it."""
    inner = bare[bare.find("{") + 1 : max(0, bare.rfind("}"))] if "{" in bare else ""
    return "," in inner or ".." in inner


def _name_of(opening: str) -> str:
    match opening[:1]:
        case "`" | "$":
            return "command or parameter substitution"
        case "'" | '"':
            return "a quote that is not closed"
        case _:
            return "a word that cannot be read"


def read_script(text: str) -> Script:
    """The simple commands of a command line, or why they cannot be told."""
    if "\0" in text or DYNAMIC in text:
        return Script(commands=(), problems=("a character that cannot be read",))
    return _Reader(text=text).read()
