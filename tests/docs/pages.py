"""The commands that README.md and docs/*.md tell their readers to type."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL = ("sh", "bash", "shell", "console")
INLINE = re.compile(r"`(xnagent [^`\n]+)`")
COMMENT = re.compile(r"(^|\s+)#\s.*$")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One line of a block, with those that it continues on, without its comment."""

    page: str
    block: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def commands() -> list[Command]:
    """Every line of every block that is marked as shell, in the order of the pages."""
    found = []
    for page in PAGES:
        for number, block in enumerate(_blocks(page)):
            found += [Command(page=page.name, block=number, text=text) for text in _lines(block)]
    return found


def mentions() -> list[Command]:
    """Every `xnagent …` within prose."""
    found = []
    for page in PAGES:
        prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
        found += [Command(page=page.name, block=-1, text=text) for text in INLINE.findall(prose)]
    return found


def _blocks(page: Path) -> Iterator[str]:
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["language"] in SHELL:
            yield block["text"]


def _lines(block: str) -> Iterator[str]:
    for line in block.replace("\\\n", " ").splitlines():
        text = COMMENT.sub("", line).strip()
        if text:
            yield re.sub(r"\s+", " ", text)
