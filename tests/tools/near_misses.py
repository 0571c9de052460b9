"""Edits that nearly fit: made from real source texts with a seed, each with the one result that would be right.

The right result follows from how the case was made, without the ladder: a case knows where its text came from and what
was done to the file, and so the only bytes that may stand there after an edit. None: no place is meant, all stays.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent.parent / "xnagent"
LOOKS = str.maketrans({"'": "’", '"': "“", "-": "–"})
PLAIN = str.maketrans({"’": "'", "“": '"', "–": "-", "\u00a0": " "})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One edit of one file."""

    kind: str
    file: bytes
    old: str
    new: str
    wanted: bytes | None
    """The file afterwards; None: the edit has to be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some lines of a text, the place they have in it, and the text."""

    lines: Sequence[str]
    first: int
    size: int
    mark: str

    @property
    def own(self) -> list[str]:
        """The lines that are meant."""
        return list(self.lines[self.first : self.first + self.size])

    @property
    def changed(self) -> list[str]:
        """What shall stand there: another line in the middle, and one more after it."""
        own, at = self.own, self.size // 2
        indent = indent_of(own[at])
        return [*own[:at], f"{indent}{self.mark}", f"{indent}{self.mark}_more", *own[at + 1 :]]

    def around(self, middle: Sequence[str]) -> list[str]:
        """The text with these lines in the block's place."""
        return [*self.lines[: self.first], *middle, *self.lines[self.first + self.size :]]


def indent_of(line: str) -> str:
    """What stands before its first word."""
    return line[: len(line) - len(line.lstrip())]


def joined(lines: Sequence[str], end: str = "\n") -> str:
    """Lines as a text."""
    return "".join(f"{line}{end}" for line in lines)


def case(kind: str, file: Sequence[str], /, old: Sequence[str], **rest: Sequence[str] | str | None) -> Case:
    """A case from lines: `new` and `wanted` as lines, `end` and `old_end` as line ends."""
    end, old_end = str(rest.get("end", "\n")), str(rest.get("old_end", "\n"))
    wanted = rest["wanted"]
    return Case(
        kind=kind,
        file=joined(file, end).encode(),
        old=joined(old, old_end),
        new=joined(rest["new"] or (), old_end),
        wanted=None if wanted is None else joined(wanted, end).encode(),
    )


def _exact(block: Block, _: random.Random) -> Case:
    return case("exact", block.lines, block.own, new=block.changed, wanted=block.around(block.changed))


def _crlf_file(block: Block, _: random.Random) -> Case:
    return case("CRLF file", block.lines, block.own, new=block.changed, wanted=block.around(block.changed), end="\r\n")


def _crlf_old(block: Block, _: random.Random) -> Case:
    file = joined(block.lines).encode()
    wanted = joined(block.around(block.changed)).encode()
    return Case(kind="CRLF in old", file=file, old=joined(block.own, "\r\n"), new=joined(block.changed), wanted=wanted)


def _mixed_ends(block: Block, rng: random.Random) -> Case:
    ends = {n: rng.choice(["\n", "\r\n"]) for n in range(len(block.lines))}
    inside = dict.fromkeys(range(block.first, block.first + block.size), "\r\n")
    texts = [line + {**ends, **inside}[n] for n, line in enumerate(block.lines)]
    middle = [line + "\r\n" for line in block.changed]
    after = [*texts[: block.first], *middle, *texts[block.first + block.size :]]
    return Case(
        kind="mixed line ends",
        file="".join(texts).encode(),
        old=joined(block.own),
        new=joined(block.changed),
        wanted="".join(after).encode(),
    )


def _trailing_in_file(block: Block, rng: random.Random) -> Case:
    spaced = [line + rng.choice(["  ", "\t", " "]) for line in block.own]
    return case(
        "trailing space in file", block.around(spaced), block.own, new=block.changed, wanted=block.around(block.changed)
    )


def _trailing_in_old(block: Block, rng: random.Random) -> Case:
    spaced = [line + rng.choice(["  ", "\t"]) for line in block.own]
    return case("trailing space in old", block.lines, spaced, new=block.changed, wanted=block.around(block.changed))


def _crlf_and_trailing(block: Block, _: random.Random) -> Case:
    file = block.around([f"{line} " for line in block.own])
    return case(
        "CRLF and trailing space", file, block.own, new=block.changed, wanted=block.around(block.changed), end="\r\n"
    )


def _dedented(block: Block, _: random.Random) -> Case:
    depth = min(len(indent_of(line)) for line in block.own if line.strip())
    old, new = ([line[depth:] for line in part] for part in (block.own, block.changed))
    return case("indentation left out", block.lines, old, new=new, wanted=block.around(block.changed))


def _indented(block: Block, rng: random.Random) -> Case:
    more = rng.choice(["  ", "    ", "        "])
    old, new = ([more + line if line.strip() else line for line in part] for part in (block.own, block.changed))
    return case("indentation too deep", block.lines, old, new=new, wanted=block.around(block.changed))


def _tabbed(lines: Sequence[str]) -> list[str]:
    return ["\t" * (len(indent_of(line)) // 4) + line.lstrip() for line in lines]


def _tabs_in_file(block: Block, _: random.Random) -> Case:
    wanted = _tabbed(block.around(block.changed))
    return case("tabs in file", _tabbed(block.lines), block.own, new=block.changed, wanted=wanted)


def _tabs_in_old(block: Block, _: random.Random) -> Case:
    wanted = block.around(block.changed)
    return case("tabs in old", block.lines, _tabbed(block.own), new=_tabbed(block.changed), wanted=wanted)


def _looks_in_file(block: Block, _: random.Random) -> Case:
    own = [line.translate(LOOKS) for line in block.own]
    at = block.size // 2
    after = [*own[:at], *block.changed[at : at + 2], *own[at + 1 :]]
    return case("look-alikes in file", block.around(own), block.own, new=block.changed, wanted=block.around(after))


def _looks_in_old(block: Block, _: random.Random) -> Case:
    old = [line.translate(LOOKS) for line in block.own]
    at = block.size // 2
    new = [*old[:at], *block.changed[at : at + 2], *old[at + 1 :]]
    return case("look-alikes in old", block.lines, old, new=new, wanted=block.around(block.changed))


def _nbsp_in_file(block: Block, _: random.Random) -> Case:
    own = [indent_of(line) + line.lstrip().replace(" ", "\u00a0") for line in block.own]
    at = block.size // 2
    after = [*own[:at], *block.changed[at : at + 2], *own[at + 1 :]]
    return case("no-break spaces in file", block.around(own), block.own, new=block.changed, wanted=block.around(after))


def _near_duplicate(block: Block, _: random.Random) -> Case:
    copy = _other(block)
    wanted = [*copy, "", *block.around(block.changed)]
    return case("near-duplicate before it", [*copy, "", *block.lines], block.own, new=block.changed, wanted=wanted)


def _other(block: Block) -> list[str]:
    copy, at = block.own, block.size // 2
    return [*copy[:at], f"{copy[at]}  # {block.mark}_other", *copy[at + 1 :]]


def _duplicate(block: Block, _: random.Random) -> Case:
    return case("block twice", [*block.own, "", *block.lines], block.own, new=block.changed, wanted=None)


def _duplicate_spaced(block: Block, _: random.Random) -> Case:
    spaced = [f"{line} " for line in block.own]
    file = [*spaced, "", *block.around([f"{line}\t" for line in block.own])]
    return case("block twice, spaced differently", file, block.own, new=block.changed, wanted=None)


def _duplicate_shifted(block: Block, _: random.Random) -> Case:
    deeper, deepest = ([more + line if line.strip() else line for line in block.own] for more in ("  ", "      "))
    file = [*deeper, "", *block.around(deepest)]
    return case("block twice, indented differently", file, block.own, new=block.changed, wanted=None)


def _only_near_duplicate(block: Block, _: random.Random) -> Case:
    return case("only a near-duplicate", block.around(_other(block)), block.own, new=block.changed, wanted=None)


def _line_deleted(block: Block, rng: random.Random) -> Case:
    gone = rng.randrange(1, block.size - 1)
    left = [line for n, line in enumerate(block.own) if n != gone]
    return case("line deleted in file", block.around(left), block.own, new=block.changed, wanted=None)


def _reordered(block: Block, rng: random.Random) -> Case:
    at = rng.randrange(block.size - 1)
    own = block.own
    own[at], own[at + 1] = own[at + 1], own[at]
    return case("lines swapped in file", block.around(own), block.own, new=block.changed, wanted=None)


def _uneven(block: Block, rng: random.Random) -> Case:
    at = rng.randrange(block.size)
    old = [f"   {line}" if n == at else line for n, line in enumerate(block.own)]
    return case("one line indented otherwise", block.lines, old, new=block.changed, wanted=None)


def _typo(block: Block, rng: random.Random) -> Case:
    at = rng.randrange(block.size)
    old = [f"{line}_" if n == at else line for n, line in enumerate(block.own)]
    return case("a character too many", block.lines, old, new=block.changed, wanted=None)


def _letter_case(block: Block, _: random.Random) -> Case:
    old = [line.swapcase() for line in block.own]
    return case("other letter case", block.lines, old, new=block.changed, wanted=None)


KINDS: Sequence[Callable[[Block, random.Random], Case]] = (
    _exact,
    _crlf_file,
    _crlf_old,
    _mixed_ends,
    _trailing_in_file,
    _trailing_in_old,
    _crlf_and_trailing,
    _dedented,
    _indented,
    _tabs_in_file,
    _tabs_in_old,
    _looks_in_file,
    _looks_in_old,
    _nbsp_in_file,
    _near_duplicate,
    _duplicate,
    _duplicate_spaced,
    _duplicate_shifted,
    _only_near_duplicate,
    _line_deleted,
    _reordered,
    _uneven,
    _typo,
    _letter_case,
)


def cases(seed: int, count: int) -> Iterator[Case]:
    """So many cases, the kinds in turn; the same seed and sources give the same cases."""
    rng = random.Random(seed)
    texts = _texts()
    names = sorted(texts)
    for number in range(count):
        blocks = (_block(rng, texts[name], number=number) for name in rng.sample(names, len(names)))
        yield KINDS[number % len(KINDS)](next(block for block in blocks if block is not None), rng)


def _texts() -> Mapping[str, Sequence[str]]:
    found = {path.as_posix(): path.read_text(encoding="utf-8").splitlines() for path in SOURCES.rglob("*.py")}
    return {name: lines for name, lines in found.items() if len(lines) > 40}


def _block(rng: random.Random, lines: Sequence[str], *, number: int) -> Block | None:
    """Lines that are indented and that stand there once, however they are read; None if there are none."""
    read = [_read(line) for line in lines]
    places = [(size, first) for size in range(3, 9) for first in range(len(lines) - size)]
    for size, first in rng.sample(places, len(places)):
        block = Block(lines=lines, first=first, size=size, mark=f"marked_{number}")
        if _is_fit(block) and sum(read[n : n + size] == read[first : first + size] for n in range(len(lines))) == 1:
            return block
    return None


def _is_fit(block: Block) -> bool:
    own = block.own
    has_looks = any(set("'\"-").intersection(line) for line in own)
    is_deep = all(len(indent_of(line)) >= 4 and len(indent_of(line)) % 4 == 0 for line in own)
    is_varied = all(one.strip() != other.strip() for one, other in itertools.pairwise(own))
    return is_deep and is_varied and has_looks and any(" " in line.strip() for line in own)


def _read(line: str) -> str:
    return "".join(line.translate(PLAIN).split())
