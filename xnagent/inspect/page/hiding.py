"""Takes secrets out of what a page is made of, and looks through much of it at once: most sessions hold none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, cast

from xnagent.core.masking import Mask
from xnagent.core.text import Json
from xnagent.inspect.page.markup import written
from xnagent.inspect.reading import Row

CHUNK: Final = 1_000
"""Lines that are looked through together."""


def hidden(value: Json, mask: Mask) -> object:
    """The value as `mask.value` makes it; the same object where it holds no secret."""
    if not mask.grams or _holds_none(json.dumps(value), mask):
        return value
    return mask.value(value)


class HiddenRecords:
    """Events as flat objects without secrets, made when somebody looks at them."""

    def __init__(self, records: Sequence[Row], mask: Mask) -> None:
        self._records = records
        self._mask = mask

    def __getitem__(self, at: int) -> Row:
        """The event in that place."""
        return cast("Row", self._mask.value(self._records[at]))


def hidden_lines(lines: Iterable[str], records: Sequence[Row], *, mask: Mask) -> Iterator[str]:
    """Lines of JSON in ASCII, without secrets. `records` holds what they say, in the same order."""
    rest = iter(lines)
    for begin in range(0, len(records), CHUNK):
        chunk = list(islice(rest, CHUNK))
        if not mask.grams or _holds_none("\n".join(chunk), mask):
            yield from chunk
        else:
            yield from (written(cast("Json", mask.value(record))) for record in records[begin : begin + CHUNK])


def _holds_none(content: str, mask: Mask) -> bool:
    """Whether no text in this JSON holds a secret. `content` is ASCII, and may be many values, one on each line."""
    texts = _texts(content)
    return mask.text(texts) is texts


def _texts(content: str) -> str:
    """All keys and texts as they are, with a character between them that stands in no secret.

    The whole becomes one long JSON text: the quotes that are no part of a text give way to NUL, and what was escaped is
    read by the decoder at once.
    """
    body = content.replace("\\\\", "\\u005c").replace('\\"', "\\u0022").replace('"', "\\u0000")
    told: str = json.loads('"' + body.replace("\n", "\\u0000") + '"')
    return told
