"""The caches on sizes against those of the scripted server on bytes: the same requests find the same."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.making import PLAIN, terms
from xnagent.core.caching import CacheRule
from xnagent.lab.caches import Cache
from xnagent.lab.requests import Request
from xnagent.testing.blocks import BlockStore
from xnagent.testing.breakpoints import BreakpointStore
from xnagent.testing.prompt import Block, Prompt, digest_parts

BLOCK = 16
FIXED = 2
"""So many segments stay at the beginning of all requests."""


@dataclass(frozen=True)
class Edit:
    """How a request differs from the one before."""

    dropped: int
    """So many of its last segments go, the reply first."""
    added: tuple[int, ...]
    """Sizes of new ones."""
    passing: int
    """So many of those are not in the next request."""
    reply: int


@dataclass(frozen=True)
class Sent:
    """A request both ways."""

    request: Request
    blocks: tuple[Block, ...]
    reply: Block


edits = st.builds(
    Edit,
    dropped=st.integers(0, 4),
    added=st.lists(st.integers(1, 90), min_size=1, max_size=4).map(tuple),
    passing=st.integers(0, 1),
    reply=st.integers(1, 60),
)
histories = st.lists(edits, min_size=2, max_size=9)


def size(blocks: tuple[Block, ...]) -> int:
    return sum(len(block.data) for block in blocks)


def fresh(number: int, length: int, *, is_written: bool = False) -> Block:
    """Bytes that occur nowhere else: no two begin alike."""
    text = chr(33 + number) * length
    return Block(data=text.encode(), written=(("text", text),) if is_written else None)


def sent(history: list[Edit]) -> list[Sent]:
    made = list[Sent]()
    number, kept, same = 0, tuple[Block, ...](), 0
    for edit in history:
        blocks = kept[: max(FIXED, len(kept) - edit.dropped)] if kept else ()
        common = min(same, size(blocks))
        for length in edit.added if kept else (*edit.added, *([20] * FIXED)):
            number += 1
            blocks = (*blocks, fresh(number, length + 5))
        number += 1
        reply = fresh(number, edit.reply + 5, is_written=True)
        stays = blocks[: len(blocks) - edit.passing]
        comes_back = not edit.passing
        request = Request(
            common=common,
            total=size(blocks),
            stable=size(stays),
            fixed=size(blocks[:FIXED]),
            reply=len(reply.data) if comes_back else 0,
        )
        made.append(Sent(request=request, blocks=blocks, reply=reply))
        kept, same = (*stays, reply), size(stays) + (len(reply.data) if comes_back else 0)
    return made


def by_sizes(units: str, rule: CacheRule, *, made: list[Sent]) -> list[int]:
    cache = Cache(provider=terms(units, price=PLAIN, rule=rule).provider)
    return [cache.read(one.request).cached for one in made]


def by_bytes(store: BlockStore, made: list[Sent]) -> list[int]:
    found = []
    for one in made:
        prompt = Prompt(scope=b"", blocks=one.blocks)
        found.append(store.look_up(prompt, 0.0).cached_bytes)
        store.add_output(prompt, digest_parts(one.reply.written or ()), now=0.0)
    return found


def block_store(*, has_units: bool) -> BlockStore:
    return BlockStore(
        block_bytes=BLOCK, interval_blocks=0, has_units=has_units, delay_seconds=0.0, lifetime_seconds=0.0
    )


@settings(max_examples=60, deadline=None)
@given(histories)
def test_blocks(history: list[Edit]):
    made = sent(history)
    rule = CacheRule(block_tokens=BLOCK)
    assert by_sizes("blocks", rule, made=made) == by_bytes(block_store(has_units=False), made)


@settings(max_examples=60, deadline=None)
@given(histories)
def test_M34_whole_requests(history: list[Edit]):
    made = sent(history)
    rule = CacheRule(block_tokens=BLOCK, has_whole_requests=True)
    assert by_sizes("requests", rule, made=made) == by_bytes(block_store(has_units=True), made)


@settings(max_examples=60, deadline=None)
@given(histories)
def test_marks(history: list[Edit]):
    """A marker where the longest entry ends, and those behind the first message, what stays, and all."""
    made = sent(history)
    store = BreakpointStore(minimum_bytes=0, look_back=20, is_implicit=False, delay_seconds=0.0)
    known, found = set[int](), []
    for one in made:
        known = {end for end in known if end <= one.request.common}
        ends = {*([max(known)] if known else []), one.request.fixed, one.request.stable, one.request.total}
        found.append(store.look_up(Prompt(scope=b"", blocks=_marked(one.blocks, ends)), 0.0).cached_bytes)
        known |= ends
    assert by_sizes("marks", CacheRule(), made=made) == found


def _marked(blocks: tuple[Block, ...], ends: set[int]) -> tuple[Block, ...]:
    at, marked = 0, []
    for block in blocks:
        at += len(block.data)
        marked.append(Block(data=block.data, mark="5m" if at in ends else "", written=block.written))
    return tuple(marked)
