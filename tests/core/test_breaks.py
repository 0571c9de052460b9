"""What a change of tools breaks, and what that costs."""

import json
from dataclasses import replace

import pytest

from xnagent.core.breaks import tools_changed
from xnagent.core.fold import fold_all
from xnagent.core.ids import PLANNER
from xnagent.core.items import AssistantText, UserText
from xnagent.core.pricing import Price
from xnagent.core.spine import held_by
from xnagent.core.spine_events import ManifestRecorded, ReplyReceived, RequestStarted, SpineExtended, SpineRebased
from xnagent.core.state import SessionState, spine_of
from xnagent.core.tokens import Usage, estimate_items

PRICE = Price(input_usd=4, cached_usd=0.4, cache_write_usd=5, output_usd=20)


def manifest(*tools: str, name: str = "m1", **fields: str) -> ManifestRecorded:
    definitions = json.dumps([{"name": tool, "description": "", "parameters": {}} for tool in tools])
    system = "Be good. " * 100
    whole = {"role": "planner", "wire": "messages", "model": "m", "system": system, "tools": definitions, **fields}
    return ManifestRecorded(manifest=name, max_output_tokens=1, window_tokens=90_000, **whole)


BEFORE = manifest("bash", "grep", "read")
AFTER = manifest("bash", "read", "write", name="m2")


def sent(tokens: int | None = 10_000) -> SessionState:
    """One request with an answer, as long as the provider says."""
    text = UserText(text="Do it. " * 1_000, origin="user")
    started = RequestStarted(
        agent=PLANNER,
        request=1,
        manifest="m1",
        items=1,
        estimate_tokens=8_000,
        predicted_cached_tokens=None,
        sha256="x",
        size_bytes=9,
    )
    usage = Usage(input_tokens=tokens, output_tokens=0)
    reply = ReplyReceived(
        agent=PLANNER,
        request=1,
        items=(AssistantText(text="Yes."),),
        usage=usage,
        cost_usd=None,
        finish="stop",
        duration_seconds=1,
    )
    return fold_all([BEFORE, SpineExtended(agent=PLANNER, kind="objective", items=(text,)), started, reply])


def test_M27_other_tools_are_a_break_with_its_names_tokens_and_money():
    broken = tools_changed(sent(), PLANNER, manifest=AFTER, price=PRICE, order="tools-system")
    assert broken is not None
    assert (broken.removed, broken.added, broken.manifest) == (("grep",), ("write",), "m2")
    assert (broken.lineage, broken.lost_tokens) == ("planner.0", 10_000)
    assert broken.lost_usd == pytest.approx(10_000 * (5 - 0.4) / 1e6)


def test_M27_where_the_system_text_is_read_first_it_stays_cached():
    first = tools_changed(sent(), PLANNER, manifest=AFTER, price=PRICE, order="system-tools")
    last = tools_changed(sent(), PLANNER, manifest=AFTER, price=None, order=None)
    assert first.lost_tokens == 10_000 - 270
    assert (last.lost_tokens, last.lost_usd) == (10_000, None)


def test_M27_without_a_report_the_estimate_counts():
    assert tools_changed(sent(None), PLANNER, manifest=AFTER, price=None, order=None).lost_tokens == 8_000


@pytest.mark.parametrize(
    "after", [replace(BEFORE, manifest="m2", max_output_tokens=9), replace(AFTER, model="other"), BEFORE]
)
def test_M27_the_same_tools_or_another_model_are_no_break_of_this_kind(after: ManifestRecorded):
    assert tools_changed(sent(), PLANNER, manifest=after, price=PRICE, order=None) is None


def test_M27_what_was_never_sent_has_nothing_to_lose():
    assert tools_changed(SessionState(), PLANNER, manifest=AFTER, price=PRICE, order=None) is None


def test_M27_after_it_a_new_lineage_begins_of_which_nothing_is_known_to_be_cached():
    before = sent()
    broken = tools_changed(before, PLANNER, manifest=AFTER, price=PRICE, order=None)
    after = fold_all([AFTER, broken], before)
    spine = spine_of(after, PLANNER)
    assert (spine.lineage, after.retooled) == ("planner.0.1", (broken,))
    assert spine.items == spine_of(before, PLANNER).items
    assert held_by(spine, "m2") is None
    assert tools_changed(after, PLANNER, manifest=AFTER, price=PRICE, order=None) is None


def test_M27_right_after_a_rebase_only_the_beginning_is_cached():
    before = sent()
    rebased = SpineRebased(
        agent=PLANNER,
        items=spine_of(before, PLANNER).items[:1],
        cursor=0,
        cause="soft",
        tokens_before=10_000,
        tokens_after=2_000,
        items_dropped=1,
        checkpoint_tokens=0,
    )
    broken = tools_changed(fold_all([rebased], before), PLANNER, manifest=AFTER, price=None, order=None)
    first = spine_of(before, PLANNER).items[:1]
    assert broken.lost_tokens == BEFORE.head_tokens + estimate_items(first) < 10_000
