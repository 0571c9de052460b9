"""The batch's money and tokens: lent beforehand, so that the total never passes the cap."""

from hypothesis import given
from hypothesis import strategies as st

from xnagent.batch.budget import Purse, Request, lend, repay

amounts = st.floats(min_value=0, max_value=100, allow_nan=False)


@st.composite
def batches(draw: st.DrawFn) -> tuple[float, list[tuple[float | None, float]], int]:
    """A cap, jobs with their own limits and what they would like to use, and how many run at once."""
    jobs = draw(st.lists(st.tuples(st.none() | amounts, amounts), min_size=1, max_size=15))
    return draw(amounts), jobs, draw(st.integers(min_value=1, max_value=5))


class Run:
    """A batch of jobs whose sessions keep what they were lent, or overstep it by so much with their last request."""

    def __init__(self, cap: float, jobs: list[tuple[float | None, float]], *, overstep: float = 0.0) -> None:
        self.purse, self.jobs, self.overstep = Purse(cap=cap), jobs, overstep
        self.used = [0.0] * len(jobs)
        self.loans: dict[int, float] = {}
        self.short: dict[int, tuple[float, float]] = {}
        self.rounds = 0

    def request(self, number: int, waiting: int) -> Request:
        own = self.jobs[number][0]
        left = None if own is None else max(own - self.used[number], 0.0)
        last, unspent = self.short.get(number, (None, 0.0))
        return Request(job=str(number), own=left, last=last, unspent=unspent, waiting=waiting)

    def play(self, at_once: int, draw: st.DataObject) -> set[int]:
        """Until nothing more can be paid; the jobs that came to their own end."""
        waiting, over = list(range(len(self.jobs))), set()
        while True:
            for number in tuple(waiting):
                lent = lend(self.purse, self.request(number, len(waiting))) if len(self.loans) < at_once else None
                if lent is not None:
                    self.purse, amount = lent
                    assert amount is not None
                    self.loans[number] = amount
                    waiting.remove(number)
            assert self.purse.cap is not None
            free = max(self.purse.cap - self.purse.spent, 0)
            assert self.overstep or sum(self.loans.values()) <= free + 1e-6
            if not self.loans:
                return over
            number = draw.draw(st.sampled_from(sorted(self.loans)))
            self.settle(number, waiting, over, share=draw.draw(st.floats(0, 1)))

    def settle(self, number: int, waiting: list[int], over: set[int], *, share: float) -> None:
        self.rounds += 1
        assert self.rounds < 1_000
        own, wish = self.jobs[number]
        loan = self.loans.pop(number)
        is_short = wish - self.used[number] > loan
        more = loan * share + self.overstep if is_short else wish - self.used[number]
        self.short[number] = (loan, max(loan - more, 0.0))
        self.used[number] += more
        is_over = not is_short or own is not None
        total = self.used[number] if is_over else None
        self.purse = repay(self.purse, str(number), used=more, total=total)
        over.add(number) if is_over else waiting.insert(0, number)


@given(batches(), st.data())
def test_the_total_never_passes_the_cap(batch, data: st.DataObject):
    cap, jobs, at_once = batch
    run = Run(cap, jobs)
    run.play(at_once, data)
    assert sum(run.used) <= cap + 1e-6
    assert abs(run.purse.spent - sum(run.used)) < 1e-6
    assert not run.purse.lent


@given(batches(), st.data(), st.floats(min_value=0.01, max_value=50))
def test_a_provider_that_charges_more_than_it_may_is_stopped_at_the_jobs_under_way(batch, data, overstep: float):
    cap, jobs, at_once = batch
    run = Run(cap, jobs, overstep=overstep)
    run.play(at_once, data)
    assert sum(run.used) <= cap + at_once * overstep + 1e-6


@given(st.lists(amounts, min_size=1, max_size=10), st.integers(min_value=1, max_value=4), st.data())
def test_what_fits_is_done(wishes: list[float], at_once: int, data: st.DataObject):
    run = Run(sum(wishes) * 4 + 1, [(None, wish) for wish in wishes])
    assert run.play(at_once, data) == set(range(len(wishes)))


def test_a_job_without_a_limit_gets_an_equal_share_then_what_jobs_use():
    purse, first = lend(Purse(cap=100.0), Request(job="a", waiting=10))
    assert first == 10
    purse = repay(purse, "a", used=1.0, total=1.0)
    purse = repay(purse, "b", used=80.0, total=80.0)
    assert purse.free == 19
    assert lend(purse, Request(job="c", waiting=8)) is None
    purse = repay(purse, "d", used=0.0, total=0.0)
    assert lend(Purse(cap=100.0, settled=2, settled_use=40.0), Request(job="c", waiting=50))[1] == 30


def test_a_job_that_was_lent_too_little_is_lent_twice_as_much():
    assert lend(Purse(cap=100.0, spent=10.0), Request(job="a", last=10.0, waiting=5))[1] == 20
    assert lend(Purse(cap=100.0, spent=95.0), Request(job="a", last=10.0, waiting=5))[1] == 5
    assert lend(Purse(cap=100.0, spent=99.0), Request(job="a", last=10.0, waiting=5)) is None
    assert lend(Purse(cap=100.0, spent=89.0), Request(job="a", last=10.0, unspent=10.0)) is None
    assert lend(Purse(cap=100.0, spent=87.0), Request(job="a", last=10.0, unspent=10.0))[1] == 13


def test_what_nobody_knows_counts_as_all_that_was_lent():
    purse, _ = lend(Purse(cap=10.0), Request(job="a", own=4.0))
    assert repay(purse, "a", used=None).spent == 4
    assert lend(Purse(), Request(job="a", own=4.0)) == (Purse(), 4.0)
    assert lend(Purse(cap=3.0), Request(job="a", own=4.0)) is None
