"""What a command leaves beside the tree: its output and how it ended, so that a later process can tell.

For a spool named `c1` in the run's scratch folder: `c1.out` the output; `c1.run` the shell's line of `/proc/N/stat`,
written before the command; `c1.rc` its exit status, in one write; `c1.end` why it was stopped, written before it was.
Of a box: `c1.left` if processes were left in it; `c1.box` that it was made and what the command came to.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from xnagent.core.values import dataclass
from xnagent.errors import WorkspaceError
from xnagent.workspaces.processes import Family, Identity, identify

HEAD_BYTES: Final = 8 * 1024 * 1024
TAIL_BYTES: Final = 8 * 1024 * 1024
NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,150}")
LONGEST_ARGUMENT: Final = 100_000
"""Linux takes 128 KiB for one argument."""
_PARTS: Final = ("out", "run", "rc", "end", "tail", "count", "sh", "left", "box")

WRAPPER: Final = """\
place=$1; shift
ulimit -c 0
read -r line < "/proc/$$/stat" || line=$$
printf '%s\\n' "$line" > "$place.run"
trap : TERM INT HUP
( exec "$@" 2>&1 )
code=$?
printf '%s\\n' "$code" > "$place.rc"
exit "$code"
"""
"""Runs the command as a child and records both ends. Its own messages go nowhere: what it says of a child that a signal
has ended would go where that child's do, were these set outside of the brackets."""

BOXED_WRAPPER: Final = """\
place=$1; shift
exec 5<&0 < /dev/null
{ read -r line <&5; kill -KILL 0; } > /dev/null 2>&1 &
watch=$!
ulimit -c 0
ulimit -f "$1"; ulimit -n "$2"; ulimit -S -t "$3"; ulimit -H -t "$4"; shift 4
read -r line < "/proc/$$/stat" || line=$$
printf '%s\\n' "$line" > "$place.run"
trap : TERM INT HUP
while [ "$1" != -- ]; do printf 0 > "$1"; shift; done
shift
( exec "$@" 2>&1 3> "$place.left" 4> "$place.box" 5<&- )
code=$?
printf '%s\\n' "$code" > "$place.rc"
kill "$watch"
wait "$watch" 2> /dev/null
exit "$code"
"""
"""The same for a box, which ends with whoever holds the other end of its input: a process, not one of its threads.

Takes limits of each process (the size of a file in blocks, open files, processor time at which it is asked to end and
at which it is killed), and files that make the writer a member of a control group, up to `--`.
"""

TIED_WRAPPER: Final = """\
place=$1; shell=$2; ender=$3; mark=$4; shift 4
exec 5<&0 < /dev/null
set -m
(unset XNAGENT_RUN; exec "$shell" -c "$ender" ender "$$" "$mark" <&5 5<&-) > /dev/null 2>&1 &
ender=$!
set +m
ulimit -c 0
read -r line < "/proc/$$/stat" || line=$$
printf '%s\\n' "$line" > "$place.run"
trap : TERM INT HUP
"$@" 2>&1 5<&-
code=$?
printf '%s\\n' "$code" > "$place.rc.tmp" && mv -f "$place.rc.tmp" "$place.rc"
kill -KILL "$ender"
wait "$ender" 2> /dev/null
exit "$code"
"""
"""The same without a box, for a command that must end with whoever holds the other end of its input."""

ENDER: Final = """\
trap '' TERM INT HUP
read -r line
kill -KILL -- "-$1"
round=0
while [ "$round" -lt 100 ]; do
  round=$((round + 1))
  found=$(grep -lszE "^XNAGENT_RUN=(.*:)?$2(:|$)" /proc/[0-9]*/environ)
  [ -n "$found" ] || break
  for place in $found; do place=${place#/proc/}; kill -KILL "${place%/environ}"; done
done
"""
"""Ends the wrapper's group, the wrapper first of all that could write a result down, then whatever left that group.

`set -m` gave it a group of its own; it is in the wrapper's session, so the group's number names nobody else meanwhile.
"""

COLLECTOR: Final = """\
trap '' TERM INT HUP
head -c "$2" >> "$1.out"
dd bs=65536 2> "$1.count" | tail -c "$3" > "$1.tail"
"""
"""Keeps the beginning and the end of what it reads. It is not the command's child and outlives whoever started it."""


@dataclass(frozen=True, slots=True)
class Spool:
    """The files of one command."""

    place: Path
    """Path without suffix."""

    @property
    def output(self) -> Path:
        """What it printed."""
        return self.part("out")

    @property
    def mark(self) -> str:
        """Marks the command's processes; the same in every process that asks."""
        return hashlib.sha256(str(self.place).encode("utf-8", "surrogateescape")).hexdigest()[:24]

    def clear(self) -> None:
        """Begin anew."""
        for part in _PARTS:
            self.part(part).unlink(missing_ok=True)
        self.output.touch(mode=0o600)

    def family(self) -> Family:
        """The command's processes, by marker, and by session if the shell had begun."""
        return Family(mark=self.mark, leader=self.leader())

    def leader(self) -> Identity | None:
        """The shell; None if it did not get as far as writing its name down."""
        return identify(self.text("run"))

    def has_begun(self) -> bool:
        """Whether the command may have had an effect."""
        return self.part("run").exists()

    def exit_code(self) -> int | None:
        """The exit status; None if the shell did not get to write it."""
        text = self.text("rc")
        return int(text) if re.fullmatch(r"[0-9]+\n", text) else None

    def stop_because(self, ending: str) -> None:
        """Note that it is about to be stopped by us."""
        self.part("end").write_text(ending, "utf-8")

    def ending(self) -> str | None:
        """Why it was stopped by us, if it was."""
        return self.text("end") or None

    def part(self, name: str) -> Path:
        """The file with that suffix."""
        return self.place.with_name(f"{self.place.name}.{name}")

    def text(self, name: str) -> str:
        """What is in the file with that suffix; "" if there is none."""
        with suppress(OSError):
            return self.part(name).read_text("utf-8", errors="replace")
        return ""


def collector_mark(spool: Spool) -> str:
    """Marks the process that keeps the output."""
    return f"{spool.mark}-output"


def was_boxed(spool: Spool) -> bool:
    """Whether a box came to the command's end; False if it could not be made, or was killed."""
    return '"exit-code"' in spool.text("box")


def has_left(spool: Spool) -> bool:
    """Whether a box ended with other processes than the command's shell in it."""
    return bool(spool.text("left"))


def recorded_seconds(spool: Spool) -> float:
    """How long the command ran, as far as its files tell."""
    begun, ended = _time(spool, "run"), _time(spool, "rc") or _time(spool, "end")
    return max(0.0, ended - begun) if begun and ended else 0.0


def finish_output(spool: Spool) -> int:
    """Put beginning and end of a long output together; the number of bytes left out between them."""
    tail = spool.part("tail")
    content = tail.read_bytes() if tail.exists() else b""
    found = re.search(r"^(\d+) bytes", spool.text("count"), re.MULTILINE)
    omitted = max(0, int(found[1]) - len(content)) if found else 0
    with spool.output.open("ab") as file:
        if omitted:
            file.write(f"\n[… {omitted} bytes omitted …]\n".encode())
        file.write(content)
    for name in ("tail", "count"):
        spool.part(name).unlink(missing_ok=True)
    return omitted


def _time(spool: Spool, name: str) -> float | None:
    with suppress(OSError):
        return spool.part(name).stat().st_mtime
    return None


def spool_at(scratch: Path, name: str) -> Spool:
    """The spool of that name; WorkspaceError if it cannot be a file's."""
    if not NAME.fullmatch(name):
        raise WorkspaceError(f"{name!r} cannot name a spool: use letters, digits, dots, dashes")
    return Spool(scratch / name)


def command_line(shell: str, command: str, *, spool: Spool) -> tuple[str, ...]:
    """How the shell is told the command: as an argument, or as a file if it is too long for one."""
    if "\0" in command:
        raise WorkspaceError("the command has a NUL character, which no shell can be given; write it as \\0 in quotes")
    if len(command.encode("utf-8", "surrogateescape")) <= LONGEST_ARGUMENT:
        return (shell, "-c", command)
    script = spool.part("sh")
    script.write_text(command, "utf-8", errors="surrogateescape")
    script.chmod(0o644)
    return (shell, str(script))
