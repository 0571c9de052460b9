"""From messages, as all kinds of recordings hold them, to threads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeGuard

from xnagent.core.text import Json
from xnagent.core.tokens import PER_CALL, PER_MESSAGE, estimate_text
from xnagent.lab.threads import Recorded, Result, Step, Thread, anchored

READ_TOOLS: Final = frozenset(
    {
        "read",
        "view",
        "cat",
        "grep",
        "glob",
        "ls",
        "list",
        "search",
        "find",
        "webfetch",
        "websearch",
        "read_file",
        "open",
    }
)
PATH_NAMES: Final = ("file_path", "path", "filePath", "absolute_path", "notebook_path")
COMMAND_NAMES: Final = ("command", "cmd", "input")
LOOKING: Final = re.compile(
    r"\s*(cd [^&;|]+&&\s*)?(cat|ls|grep|rg|find|head|tail|wc|nl|pwd|sed -n|git (status|log|diff|show|grep|blame))\b"
)
WRITING: Final = re.compile(r"(?<![0-9&])>(?!&)|\b(rm|mv|cp|tee|xargs)\b|-delete\b|-exec\b")
LABEL_CHARACTERS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call of a reply."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message or event of a thread."""

    kind: Literal["user", "reply", "result", "compaction"]
    text: str = ""
    call_id: str = ""
    """Of a result."""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    recorded: Recorded | None = None
    at: float | None = None
    is_of_client: bool = False
    """Whether the client put it in, not a person."""
    is_summary: bool = False
    """Whether it stands for history that the recorded client had dropped."""


@dataclass(slots=True)
class _Draft:
    """The thread as far as its messages were read."""

    steps: list[Step] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    user_tokens: int = 0
    person_tokens: int = 0
    results: list[Result] = field(default_factory=list)
    is_compacted: bool = False

    def take(self, message: Message) -> None:
        """One more message. Summaries and what came with them are the recorded client's own way, no work."""
        match message.kind:
            case "compaction":
                self.is_compacted = True
            case "user" if message.is_summary or (self.is_compacted and message.is_of_client):
                self.is_compacted = True
            case "user":
                tokens = PER_MESSAGE + estimate_text(message.text)
                self.user_tokens += tokens
                self.person_tokens += 0 if message.is_of_client else tokens
            case "result":
                self.results.append(_result(message, self.calls.get(message.call_id)))
            case "reply":
                self._reply(message)

    def _reply(self, message: Message) -> None:
        tokens = _reply_tokens(message)
        self.steps.append(
            Step(
                user_tokens=self.user_tokens,
                person_tokens=self.person_tokens,
                results=tuple(self.results),
                reply_tokens=tokens,
                output_tokens=tokens,
                at=message.at,
                is_compacted=self.is_compacted,
                recorded=message.recorded,
            )
        )
        self.calls.update((call.call_id, call) for call in message.calls)
        self.user_tokens, self.person_tokens, self.results, self.is_compacted = 0, 0, [], False


def thread_of(messages: Iterable[Message], *, run: str, agent: str, head_tokens: int) -> Thread:
    """The thread of one agent, in the order of its messages; `head_tokens` estimates what is known of its head."""
    draft = _Draft()
    for message in messages:
        draft.take(message)
    return anchored(Thread(run=run, agent=agent, head_tokens=head_tokens, steps=tuple(draft.steps)))


def _reply_tokens(message: Message) -> int:
    calls = sum(PER_CALL + estimate_text(call.name) + estimate_text(call.arguments) for call in message.calls)
    text = PER_MESSAGE + estimate_text(message.text) if message.text or not message.calls else 0
    return text + estimate_text(message.reasoning) + calls


def _result(message: Message, call: Call | None) -> Result:
    name = "" if call is None else call.name
    arguments = {} if call is None else _arguments(call.arguments)
    path, command = _first_text(arguments, PATH_NAMES), _first_text(arguments, COMMAND_NAMES)
    label = (path or command or message.text)[:LABEL_CHARACTERS].partition("\n")[0]
    return Result(
        tokens=PER_MESSAGE + estimate_text(message.text),
        tool=name,
        path=path,
        is_read_only=_is_looking(name, command),
        digest=hash(message.text),
        line_tokens=2 + estimate_text(name) + estimate_text(label),
    )


def _arguments(text: str) -> Mapping[str, Json]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {"command": text}
    return value if isinstance(value, dict) else {"command": text}


def _first_text(arguments: Mapping[str, Json], names: Iterable[str]) -> str:
    values = (arguments.get(name) for name in names)
    for value in values:
        if isinstance(value, str) and value:
            return value
        if _is_words(value):
            return " ".join(value)
    return ""


def _is_words(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _is_looking(name: str, command: str) -> bool:
    if name.lower() in READ_TOOLS:
        return True
    inner = re.sub(r"^(bash|sh|zsh) -l?c ", "", command)
    return bool(command) and bool(LOOKING.match(inner)) and not WRITING.search(inner)
