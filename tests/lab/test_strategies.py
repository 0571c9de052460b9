"""What each strategy sends, and that a rule of the product decides in ours."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.lab.making import growing, step, terms, thread
from xnagent.core.rebase import RebasePolicy
from xnagent.lab.history import REREAD_STEPS, Terms
from xnagent.lab.requests import Request
from xnagent.lab.strategies import KEPT_RESULTS, OURS, STRATEGIES
from xnagent.lab.tally import Meter
from xnagent.lab.threads import Thread
from xnagent.lab.work import work_of

UNDER = terms()
PRUDENT = terms(reread_share=1e-9)
"""Nothing is read again, but the rule expects it, as it does in the product."""


def sent(name: str, made: Thread, under: Terms = UNDER) -> list[Request]:
    return list(STRATEGIES[name](work_of(made), under))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_does_all_the_work_in_order_where_it_fits(name: str):
    made = growing(60, new=900)
    steps = [request for request in sent(name, made) if request.purpose == "step"]
    assert all(0 <= one.output - two.output_tokens <= 80 for one, two in zip(steps, made.steps, strict=True))
    assert all(0 <= one.common <= one.total and one.stable <= one.total for one in steps)
    assert max(one.total for one in steps) <= UNDER.usable_tokens


def test_the_plain_loop_ends_when_the_window_is_full():
    requests = sent("append", growing(300))
    assert len(requests) < 300
    assert requests[-1].total <= UNDER.usable_tokens < requests[-1].total + 2_000


@pytest.mark.parametrize(
    "name", ["delta+rebase", "delta+rebase/threshold", "sliding-window", "summary", "aligned-summary"]
)
def test_those_that_make_room_go_on_however_long_it_is(name: str):
    requests = sent(name, growing(600))
    assert sum(request.purpose == "step" for request in requests) == 600
    assert max(request.total for request in requests) <= UNDER.window_tokens


def test_I1_between_rebases_every_request_of_ours_extends_the_one_before():
    requests = sent(OURS, growing(300))
    pairs = pairwise(requests)
    assert all(two.begins or two.common == one.total + one.reply for one, two in pairs)
    assert sum(request.begins for request in requests) > 3


def test_a_rebase_keeps_system_tools_and_first_message():
    work, requests = work_of(growing(300)), sent(OURS, growing(300))
    assert {request.common for request in requests[1:] if request.begins} == {work.fixed}


def test_economic_rebases_where_prices_say_so_and_threshold_where_the_window_does():
    made = growing(300)
    economic, threshold = (sum(one.begins for one in sent(name, made)) for name in (OURS, "delta+rebase/threshold"))
    assert economic > 3 * threshold > 3
    early = replace(UNDER, policy=RebasePolicy(soft_share=0.1))
    assert sum(one.begins for one in sent("delta+rebase/threshold", made, early)) > threshold


def test_an_unchanged_file_is_read_again_by_reference_while_it_is_in_the_spine():
    made = thread(step(user=100), *(step(3_000, path="a.py", digests=[7]) for _ in range(8)))
    ours, plain = sent("delta+rebase/threshold", made), sent("append", made)
    assert sum(one.repeated for one in plain) == 7 * 3_000
    assert sum(one.repeated for one in ours) == 0
    assert plain[-1].total - ours[-1].total > 6 * 2_500


def compacting_loop(rounds: int, files: int) -> Thread:
    """An agent that reads the same files in each round, because its compaction has dropped them."""
    steps = [step(user=500)]
    for _ in range(rounds):
        steps += [step(4_000, path=f"{n}.py", digests=[n + 1]) for n in range(files)]
        steps.append(replace(step(300), is_compacted=True))
    return thread(*steps, head=30_000)


@pytest.mark.parametrize(("rounds", "files"), [(6, 6), (12, 4), (20, 2)])
@pytest.mark.parametrize(("name", "most_times"), [("delta+rebase/threshold", 0), (OURS, 2)])
def test_a_compact_and_reread_loop_costs_next_to_no_repeated_bytes(name: str, most_times: int, rounds: int, files: int):
    """Issue 6: the same loop that the recorded agent's compactions made it read again and again.

    `threshold` drops nothing before the window asks for it. `economic` does not know at first what is wanted again; so
    a file comes back at most twice, whatever the number of rounds.
    """
    made, content = compacting_loop(rounds, files), files * 4_000
    plain = sum(one.repeated for one in sent("append", made, terms(window=1_000_000)))
    ours = sum(one.repeated for one in sent(name, made, PRUDENT))
    assert plain == (rounds - 1) * content
    assert ours <= most_times * content
    assert ours <= 0.2 * plain


def test_where_prices_rebase_earlier_the_loop_costs_less_than_by_the_window_or_by_summaries():
    made = compacting_loop(rounds=12, files=4)
    works = work_of(made)
    tallies = {
        name: Meter(UNDER.provider).play(strategy(works, PRUDENT), steps=len(made.steps))
        for name, strategy in STRATEGIES.items()
    }
    whole = {name: tally for name, tally in tallies.items() if not tally.unfinished and not name.startswith(OURS)}
    assert all(tally.repeated == 11 * 16_000 for tally in whole.values())
    assert tallies[OURS].usd < 0.6 * min(tally.usd for tally in whole.values())
    assert tallies[OURS].usd < tallies["delta+rebase/threshold"].usd


def test_what_no_request_has_held_is_nothing_that_a_rebase_could_drop():
    """The price of sending a result for the first time is no rent for it."""
    made = thread(step(user=500), *(step(4_000) for _ in range(4)), head=30_000)
    assert not any(request.begins for request in sent(OURS, made, PRUDENT)[1:])


def test_a_snapshot_that_is_replaced_stands_behind_everything_and_goes():
    requests = sent("snapshot-replace", growing(20))
    pairs = list(pairwise(requests))
    assert all(two.common == one.stable < one.total for one, two in pairs)


def test_M102_old_read_only_results_are_cleared_and_the_newest_stay():
    made = thread(step(user=100), *(step(2_000, path=f"{n}.py") for n in range(20)))
    requests = sent("clear-old-results", made)
    cleared = [two for one, two in pairwise(requests) if two.common < one.total]
    assert len(cleared) == (20 - KEPT_RESULTS) // (9 - KEPT_RESULTS)
    untouched = thread(step(user=100), *(step(2_000) for _ in range(20)))
    assert all(two.common > one.total for one, two in pairwise(sent("clear-old-results", untouched)))


def test_M66_M68_a_summary_reads_the_last_one_and_clipped_new_messages_in_a_call_of_its_own():
    requests = sent("summary", growing(600, new=4_000))
    calls = [request for request in requests if request.purpose == "summary"]
    assert len(calls) > 3
    assert {request.chain for request in calls} == {"summary"}
    sizes = [request.total for request in calls[1:]]
    assert max(sizes) < 1.2 * min(sizes)
    assert max(sizes) < 0.5 * UNDER.usable_tokens


def test_M37_an_aligned_summary_reads_its_input_from_the_cache():
    requests = sent("aligned-summary", growing(300))
    pairs = [(one, two) for one, two in pairwise(requests) if two.purpose == "summary"]
    assert pairs
    assert all(two.common == one.total + one.reply for one, two in pairs)
    assert all(two.common >= 0.9 * two.total for _one, two in pairs)


def test_M38_where_an_aligned_summary_does_not_fit_another_call_makes_it():
    wide = replace(terms(window=100_000), max_output_tokens=100)
    made = growing(20, new=300).steps
    jump = thread(*made, step(68_000), step(18_000), step(300), head=1_000)
    calls = [request for request in sent("aligned-summary", jump, wide) if request.purpose == "summary"]
    assert [request.chain for request in calls] == ["summary"]
    assert calls[0].total <= wide.window_tokens


@pytest.mark.parametrize("name", ["delta+rebase", "sliding-window", "clear-old-results", "summary", "aligned-summary"])
def test_whoever_drops_content_pays_for_reading_it_again(name: str):
    made = thread(step(user=100), *(step(2_500, path=f"{n}.py") for n in range(150)))
    free, paid = (
        Meter(one.provider).play(STRATEGIES[name](work_of(made), one), steps=151)
        for one in (UNDER, terms(reread_share=0.14))
    )
    assert paid.extra_calls > free.extra_calls
    assert paid.usd > free.usd
    assert paid.extra_calls - free.extra_calls <= 0.14 * 151 + 1
    assert REREAD_STEPS == 20


def test_what_drops_nothing_pays_for_nothing():
    made = growing(60)
    assert sent("append", made) == sent("append", made, terms(reread_share=1.0))
