"""The policy on a slice of recorded runs: their sizes and times, with filler for their texts.

`recorded.jsonl.gz` is a fifth of a corpus of 230 runs; docs/lab.md has the numbers for all of it.
"""

from argparse import Namespace
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from xnagent.cli.lab import all_terms
from xnagent.cli.looking import LAB_PROVIDERS
from xnagent.config import Settings
from xnagent.core.rebase import RebasePolicy
from xnagent.lab.floor import costs_of, floor_of, workload_of
from xnagent.lab.history import Terms
from xnagent.lab.ours import delta_rebase
from xnagent.lab.reading import read_runs
from xnagent.lab.report import RECORDED, Plan, Report, losses, replay
from xnagent.lab.strategies import OURS, STRATEGIES
from xnagent.lab.tally import Meter
from xnagent.lab.threads import Run
from xnagent.lab.work import Work, work_of

SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
NOT_OURS = [name for name in STRATEGIES if not name.startswith(OURS)]


@cache
def runs() -> tuple[Run, ...]:
    return tuple(read_runs(Path(__file__).with_name("recorded.jsonl.gz")))


@cache
def works() -> tuple[Work, ...]:
    return tuple(work_of(thread) for run in runs() for thread in run.threads)


@cache
def terms_of() -> dict[str, Terms]:
    return {terms.provider.name: terms for terms in all_terms(Namespace(), Settings())}


@cache
def report() -> Report:
    return replay(runs(), Plan(strategies=tuple(STRATEGIES), terms=tuple(terms_of().values())))


def costs(terms: Terms) -> list[float]:
    """Without reading again: the policy alone is judged."""
    terms = replace(terms, reread_share=0.0)
    tallies = [Meter(terms.provider).play(delta_rebase(work, terms), steps=len(work.turns)) for work in works()]
    assert not any(tally.unfinished for tally in tallies)
    return [tally.usd for tally in tallies]


@pytest.mark.parametrize("name", LAB_PROVIDERS)
def test_the_economic_policy_is_near_the_optimum_in_hindsight_and_below_every_threshold(name: str):
    terms = terms_of()[name]
    economic = costs(terms)
    least = [floor_of(workload_of(work, terms, is_bare=False), costs_of(terms)).usd for work in works()]
    ratios = [usd / best for usd, best in zip(economic, least, strict=True)]
    assert median(ratios) <= 1.25
    assert max(ratios) <= 2.0
    for share in SHARES:
        policy = RebasePolicy(policy="threshold", soft_share=share, hard_share=max(share, 0.9))
        assert sum(economic) < sum(costs(replace(terms, policy=policy))), share


@pytest.mark.parametrize("name", LAB_PROVIDERS)
def test_delta_and_rebase_cost_less_than_every_other_strategy_that_does_the_work(name: str):
    """With what it and the others read again charged, as it was measured after compactions."""
    ours = report().sum(name, OURS)
    assert not ours.unfinished
    others = {other: report().sum(name, other) for other in NOT_OURS}
    whole = {other: tally.usd for other, tally in others.items() if not tally.unfinished}
    assert {"sliding-window", "summary", "aligned-summary"} <= set(whole)
    assert ours.usd < min(whole.values())


@pytest.mark.parametrize("name", LAB_PROVIDERS)
def test_where_it_is_not_the_cheapest_is_told_and_why(name: str):
    told = {loss.run: loss for loss in losses(report()) if loss.provider == name}
    for run in report().runs:
        others = [run.tallies[name, other] for other in NOT_OURS]
        least = min(tally.usd for tally in others if not tally.unfinished)
        assert (run.name in told) is (least < run.tallies[name, OURS].usd)
    assert all(loss.why for loss in told.values())


@pytest.mark.parametrize("name", ["deepseek", "openai", "anthropic"])
def test_all_that_stood_in_the_request_before_and_was_not_read_from_the_cache_has_a_name(name: str):
    for strategy in STRATEGIES:
        tally = report().sum(name, strategy)
        assert tally.standing == tally.reused + tally.lost_changed + tally.lost_lifetime + tally.lost_rounding
    ours = report().sum(name, OURS)
    assert ours.lost_changed == 0
    assert ours.reused / (ours.standing - ours.lost_lifetime) >= 0.995


def test_what_was_recorded_costs_what_was_counted_from_it_by_hand():
    """The share of the uncached price of Claude Code's runs: 17.2 % over the whole corpus."""
    shares = [
        run.tallies["anthropic", RECORDED].share
        for run in report().runs
        if run.client == "claude-code" and ("anthropic", RECORDED) in run.tallies
    ]
    assert len(shares) >= 8
    assert 0.12 < median(shares) < 0.30
