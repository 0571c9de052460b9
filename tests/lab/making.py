"""Threads and terms for the tests of the laboratory."""

from collections.abc import Sequence
from random import Random

from xnagent.core.caching import CacheRule
from xnagent.core.pricing import Price
from xnagent.core.rebase import RebasePolicy
from xnagent.lab.caches import Provider, Units
from xnagent.lab.history import Terms
from xnagent.lab.threads import Result, Step, Thread

PRICE = Price(input_usd=2.0, cached_usd=0.2, output_usd=10.0, cache_write_usd=2.5, cache_write_long_usd=4.0)
PLAIN = Price(input_usd=2.0, cached_usd=0.2, output_usd=10.0)


def terms(
    units: Units = "marks",
    *,
    price: Price = PRICE,
    rule: CacheRule | None = None,
    window: int = 200_000,
    policy: RebasePolicy | None = None,
    reread_share: float = 0.0,
) -> Terms:
    provider = Provider(name=units, model="a model", units=units, rule=rule or CacheRule(), price=price)
    return Terms(
        provider=provider,
        window_tokens=window,
        max_output_tokens=window // 8,
        policy=policy or RebasePolicy(),
        reread_share=reread_share,
    )


def thread(*steps: Step, head: int = 5_000) -> Thread:
    return Thread(run="run", agent="", head_tokens=head, steps=steps)


def step(
    *results: int, reply: int = 200, user: int = 0, at: float | None = None, path: str = "", digests: Sequence[int] = ()
) -> Step:
    marks = digests or range(10**9, 10**9 + len(results))
    return Step(
        user_tokens=user,
        results=tuple(
            Result(tokens=tokens, tool="read", path=path, is_read_only=bool(path), digest=digest, line_tokens=12)
            for tokens, digest in zip(results, marks, strict=True)
        ),
        reply_tokens=reply,
        output_tokens=reply,
        at=at,
    )


def growing(steps: int, *, new: int = 1_600, head: int = 5_000, user: int = 300) -> Thread:
    return thread(step(user=user), *(step(new) for _ in range(steps - 1)), head=head)


def random_thread(random: Random, *, steps: int) -> Thread:
    """Of any shape: small and large heads, results of a few tokens and of many, replies too."""
    head, scale = int(10 ** random.uniform(2, 4.8)), 10 ** random.uniform(1.5, 4)
    made = [step(user=int(10 ** random.uniform(1, 3.5)), reply=random.randrange(20, 800))]
    for _ in range(steps - 1):
        sizes = [int(scale * random.lognormvariate(0, 1)) + 1 for _ in range(random.choice((1, 1, 1, 2, 4)))]
        made.append(step(*sizes, reply=int(random.lognormvariate(5, 1)) + 1))
    return thread(*made, head=head)
