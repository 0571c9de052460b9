"""Takes secrets out of text: the values that the process knows, in the forms in which commands show them.

A text is looked through without its white space, so that no line break and no width of a wrap hides a value. Every
form of a value is cut into overlapping grams; of the text every few characters are looked up among them, and a hit is
followed in both directions. So the cost does not depend on how many secrets there are, and a long piece of a value
(an output that was cut in its middle) is found like the whole.
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import AnyStr, Final

from xnagent.core.values import dataclass

PLACEHOLDER: Final = re.compile(r"\[secret:[^\]]*\]")
MIN_CHARACTERS: Final = 8
"""A shorter value is no secret: masking it would hide ordinary text."""
LONGEST_PIECE: Final = 16
"""So many characters of a longer value are masked too."""
MAX_GRAM: Final = 8
ALIGNMENTS: Final = 3
UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
WHITE: Final = bytes(code for code in range(256) if chr(code).isspace())
DARK: Final = re.compile(r"\S+")
DARK_BYTES: Final = re.compile(b"[^" + re.escape(WHITE) + b"]+")
SHELL_SPECIAL: Final = re.compile(r"([^A-Za-z0-9_.,:/@%+=-])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A value that must not be shown, and what stands for it."""

    name: str
    value: str

    @property
    def placeholder(self) -> str:
        """The same wherever the value stood."""
        return f"[secret:{self.name}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    text: str
    """Without white space."""
    least: int
    """So many characters of it are masked."""
    placeholder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    start: int
    end: int
    placeholder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """Replaces secrets; what holds none comes back as the same object."""

    grams: Mapping[str, tuple[tuple[_Form, int], ...]] = field(default_factory=dict)
    """Where each gram stands: in which forms, at which place."""
    gram: int = MAX_GRAM
    stride: int = 1

    def text(self, text: str) -> str:
        """The text with a placeholder for each secret and each long piece of one."""
        if not self.grams:
            return text
        spans = self._spans("".join(text.split()))
        return _replaced(text, _located(spans, DARK.finditer(text))) if spans else text

    def data(self, data: bytes) -> bytes:
        """As `text`, for content of any kind."""
        if not self.grams:
            return data
        spans = self._spans(data.translate(None, WHITE).decode("latin-1"))
        if not spans:
            return data
        return _replaced(data.decode("latin-1"), _located(spans, DARK_BYTES.finditer(data))).encode("latin-1")

    def value(self, value: object) -> object:
        """As `text`, for every text in a structure of mappings and sequences, keys included."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.value(key): self.value(part) for key, part in value.items()}
            case list() | tuple():
                return [self.value(part) for part in value]
            case _:
                return value

    def held(self, data: bytes) -> frozenset[str]:
        """The placeholders of those secrets that are in the data as a whole, in any form."""
        squeezed = data.translate(None, WHITE).decode("latin-1") if self.grams else ""
        return frozenset(
            form.placeholder
            for at in range(0, len(squeezed) - self.gram + 1, self.stride)
            for form, place in self.grams.get(squeezed[at : at + self.gram], ())
            if at >= place and squeezed.startswith(form.text, at - place)
        )

    def _spans(self, squeezed: str) -> list[_Span]:
        """What is to be replaced, in order, without overlaps."""
        found: list[_Span] = []
        grams, gram = self.grams, self.gram
        places = range(0, len(squeezed) - gram + 1, self.stride)
        for at in [at for at in places if squeezed[at : at + gram] in grams]:
            for form, place in grams[squeezed[at : at + gram]]:
                span = _grown(squeezed, at, form=form, place=place)
                if span is not None:
                    found.append(span)
        return _joined(found)


def _grown(text: str, at: int, *, form: _Form, place: int) -> _Span | None:
    """The longest piece of the form around a gram of it; None if it is too short to count."""
    back = 0
    while back < min(at, place) and text[at - back - 1] == form.text[place - back - 1]:
        back += 1
    ahead, room = 0, min(len(text) - at, len(form.text) - place)
    while ahead < room and text[at + ahead] == form.text[place + ahead]:
        ahead += 1
    if back + ahead < form.least:
        return None
    return _Span(start=at - back, end=at + ahead, placeholder=form.placeholder)


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    joined: list[_Span] = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if joined and span.start < joined[-1].end:
            joined[-1] = replace(joined[-1], end=max(span.end, joined[-1].end))
        else:
            joined.append(span)
    return joined


def _located(spans: Sequence[_Span], words: Iterator[re.Match[AnyStr]]) -> list[_Span]:
    """The spans as places in the text itself, whose words are what its white space leaves."""
    wanted = sorted({place for span in spans for place in (span.start, span.end - 1)})
    places: dict[int, int] = {}
    passed = 0
    for word in words:
        size = word.end() - word.start()
        while wanted and wanted[0] < passed + size:
            place = wanted.pop(0)
            places[place] = word.start() + place - passed
        passed += size
        if not wanted:
            break
    return [replace(span, start=places[span.start], end=places[span.end - 1] + 1) for span in spans]


def _replaced(text: str, spans: Iterable[_Span]) -> str:
    parts: list[str] = []
    done = 0
    for span in spans:
        parts += [text[done : span.start], span.placeholder]
        done = span.end
    return "".join([*parts, text[done:]])


def mask_of(secrets: Iterable[Secret]) -> Mask:
    """What replaces these secrets; values that are too short are left out."""
    forms = [form for secret in secrets if len(secret.value) >= MIN_CHARACTERS for form in _forms(secret)]
    if not forms:
        return Mask()
    least = min(form.least for form in forms)
    gram = min(MAX_GRAM, least * 2 // 3)
    grams: dict[str, tuple[tuple[_Form, int], ...]] = {}
    for form in forms:
        for place in range(len(form.text) - gram + 1):
            key = form.text[place : place + gram]
            grams[key] = (*grams.get(key, ()), (form, place))
    return Mask(grams=grams, gram=gram, stride=least - gram + 1)


def is_same_but_masked(made: str, stored: str) -> bool:
    """Whether a text is what was stored, where placeholders stand for anything: the log does not hold secrets."""
    if PLACEHOLDER.search(stored) is None:
        return made == stored
    return re.fullmatch(".*?".join(map(re.escape, PLACEHOLDER.split(stored))), made, re.DOTALL) is not None


def _forms(secret: Secret) -> Iterator[_Form]:
    value = secret.value
    piece = min(len(value), max(MIN_CHARACTERS, min(LONGEST_PIECE, math.ceil(len(value) / 2))))
    for text in dict.fromkeys("".join(text.split()) for text in _written(value)):
        least = math.ceil(len(text) * piece / len(value))
        if least >= MIN_CHARACTERS:
            yield _Form(text=text, least=min(least, len(text)), placeholder=secret.placeholder)


def _written(value: str) -> Iterator[str]:
    """All ways to write it."""
    data = value.encode("utf-8", "surrogatepass")
    yield from (value, data.decode("latin-1"), html.escape(value), SHELL_SPECIAL.sub(r"\\\1", value))
    for is_ascii in (True, False):
        quoted = json.dumps(value, ensure_ascii=is_ascii)[1:-1]
        yield from (quoted, quoted.replace("/", "\\/"), json.dumps(quoted)[1:-1])
    for digits in (data.hex(), data.hex().upper()):
        pairs = [digits[at : at + 2] for at in range(0, len(digits), 2)]
        yield from (digits, "".join(f"%{pair}" for pair in pairs), "".join(f"\\x{pair}" for pair in pairs))
        for kept in (UNRESERVED, UNRESERVED | {ord("/")}):
            yield "".join(chr(b) if b in kept else f"%{pair}" for b, pair in zip(data, pairs, strict=True))
    for shift in range(ALIGNMENTS):
        first, last = math.ceil(8 * shift / 6), 8 * (shift + len(data)) // 6
        padded = b"\0" * shift + data
        yield base64.b64encode(padded)[first:last].decode()
        yield base64.urlsafe_b64encode(padded)[first:last].decode()
