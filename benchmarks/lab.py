#!/usr/bin/env python
"""The laboratory on a whole corpus of recorded runs: strategies, the policy against the optimum, losses by name.

python benchmarks/lab.py FOLDER                  # .jsonl and .jsonl.gz files in the schema of docs/lab.md
python benchmarks/lab.py FOLDER --strict         # ends with 1 if a target was missed
python benchmarks/lab.py FOLDER --window 1000000 # another window than 200,000 tokens
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from statistics import median

from xnagent.cli.lab import all_terms, report_text
from xnagent.config import Settings
from xnagent.core.rebase import RebasePolicy
from xnagent.lab.floor import costs_of, floor_of, workload_of
from xnagent.lab.history import Terms
from xnagent.lab.ours import delta_rebase
from xnagent.lab.reading import read_runs
from xnagent.lab.report import RECORDED, Plan, Replayed, Report, replay
from xnagent.lab.strategies import OURS, STRATEGIES
from xnagent.lab.tally import Meter, Tally, total
from xnagent.lab.work import Work, work_of

SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MEDIAN_TARGET = 1.25
WORST_TARGET = 2.0
REUSE_TARGET = 0.995
SECONDS_TARGET = 120.0


def say(text: str) -> None:
    """One line."""
    sys.stdout.write(f"{text}\n")


def costs(works: Sequence[Work], terms: Terms) -> list[Tally]:
    """What the product's policy spends on each thread, nothing read again."""
    return [Meter(terms.provider).play(delta_rebase(work, terms), steps=len(work.turns)) for work in works]


def policy_lines(works: Sequence[Work], terms: Terms) -> Iterator[tuple[str, bool]]:
    """The economic policy against the optimum in hindsight, and against fixed shares of the window."""
    terms = replace(terms, reread_share=0.0)
    economic = costs(works, terms)
    least = [floor_of(workload_of(work, terms, is_bare=False), costs_of(terms)).usd for work in works]
    whole = [n for n, usd in enumerate(least) if isfinite(usd) and not economic[n].unfinished]
    ratios = sorted(economic[n].usd / least[n] for n in whole)
    spent = sum(economic[n].usd for n in whole)
    text = (
        f"{terms.provider.name}: economic / optimum over {len(whole)} of {len(works)} threads: median "
        f"{median(ratios):.3f}, nine tenths {ratios[len(ratios) * 9 // 10]:.3f}, worst {ratios[-1]:.3f}, "
        f"sum {spent / sum(least[n] for n in whole):.3f}"
    )
    yield text, median(ratios) <= MEDIAN_TARGET and ratios[-1] <= WORST_TARGET
    for share in SHARES:
        policy = RebasePolicy(policy="threshold", soft_share=share, hard_share=max(share, 0.9))
        tallies = costs(works, replace(terms, policy=policy))
        usd = sum(tallies[n].usd for n in whole)
        yield f"  threshold {share:.1f}: {usd / spent:.3f} x economic", usd > spent


def loss_lines(report: Report) -> Iterator[tuple[str, bool]]:
    """Where tokens went that stood in the request before and were not read from the cache."""
    for provider in report.providers:
        tally = report.sum(provider.name, OURS)
        if provider.units == "none":
            continue
        alive = tally.standing - tally.lost_lifetime
        reuse = tally.reused / alive
        text = (
            f"{provider.name}: {OURS}, between rebases {100 * reuse:.3f} % of {alive:,} tokens whose cache had not "
            f"expired; lost to block rounding {tally.lost_rounding:,}, changed {tally.lost_changed:,}, "
            f"expired {tally.lost_lifetime:,}"
        )
        yield text, reuse >= REUSE_TARGET and tally.lost_changed == 0


def client_lines(report: Report) -> Iterator[str]:
    """What recorded clients paid, as a share of the uncached price."""
    for client in sorted({run.client for run in report.runs}):
        runs = [run for run in report.runs if run.client == client]
        shares = (
            (
                provider.name,
                total(run.tallies[provider.name, RECORDED] for run in runs if (provider.name, RECORDED) in run.tallies),
            )
            for provider in report.providers
            if provider.units != "none"
        )
        texts = (f"{name} {100 * tally.share:.1f} %" for name, tally in shares if tally.share is not None)
        yield f"{client}: {len(runs)} runs, recorded, of the uncached price: {', '.join(texts) or 'not known'}"


def _recorded(runs: Sequence[Replayed], provider: str) -> Iterator[Tally]:
    tallies = (run.tallies.get((provider, RECORDED)) for run in runs)
    return (tally for tally in tallies if tally is not None)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The laboratory on a corpus of recorded runs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--strict", action="store_true")
    given = parser.parse_args()
    begun = time.process_time()
    runs = list(read_runs(given.folder))
    conditions = all_terms(argparse.Namespace(window=given.window), Settings())
    report = replay(runs, Plan(strategies=tuple(STRATEGIES), terms=conditions))
    spent = time.process_time() - begun
    say(report_text(report))
    say("")
    checks = [(f"read and replayed in {spent:.1f} s of processor time", spent <= SECONDS_TARGET)]
    checks += loss_lines(report)
    works = [work_of(thread) for run in runs for thread in run.threads]
    for terms in conditions:
        checks += policy_lines(works, terms)
    for text, is_kept in checks:
        say(text if is_kept else f"{text}  MISSED")
    for text in client_lines(report):
        say(text)
    return 1 if given.strict and not all(is_kept for _text, is_kept in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
