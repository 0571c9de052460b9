"""The report as one HTML page: pictures within it, nothing fetched, light and dark, for wide and narrow screens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from xnagent.lab.caches import Provider
from xnagent.lab.report import RECORDED, Curve, Loss, Replayed, Report, curve, losses
from xnagent.lab.strategies import OURS
from xnagent.lab.table import COLUMNS, cells, dollars, percent
from xnagent.lab.tally import Tally

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1b1f24;--soft:#5b6470;--line:#d8dde3;--band:#f4f6f8;
--c0:#2f6fde;--c1:#d9822b;--c2:#3a9d5d;--c3:#b5476a;--c4:#7a5cc4;--c5:#1b8a94;--c6:#8a6d3b;--c7:#c23b3b;--c8:#667085}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--ink:#e6e9ed;--soft:#9aa4b0;--line:#323a43;--band:#1c2127;
--c0:#6ea0ff;--c1:#f0a860;--c2:#6cc88c;--c3:#e582a2;--c4:#ab93ec;--c5:#5fc3cd;--c6:#c9a96c;--c7:#ef7b7b;--c8:#98a2b3}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:16px}
h1,h2,p,li{overflow-wrap:anywhere}h1{font-size:1.4rem;margin:.4rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}
p,figcaption,summary{color:var(--soft)}figure{margin:0}
.bar{display:grid;grid-template:"name bar value"/12.5rem 1fr 6.5rem;gap:2px 10px;align-items:center}
.bar span{grid-area:name}.bar b{grid-area:value;text-align:right;font-weight:400;font-variant-numeric:tabular-nums}
.bar svg{grid-area:bar;width:100%;height:14px;display:block}.own,.own b{font-weight:650}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:6px}
table{border-collapse:collapse;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 8px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{background:var(--band)}td:first-child,th:first-child,.text{text-align:left}
.curve{width:100%;height:auto;display:block}.curve text{font-size:16px;fill:var(--soft)}
.key{display:flex;flex-wrap:wrap;gap:4px 14px;padding:0;list-style:none}
.key i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:5px;vertical-align:-1px}
@media (max-width:560px){.bar{grid-template:"name value" "bar bar"/1fr max-content}main{padding:10px}
.curve text{font-size:34px}}
"""
COLOURS: Final = 9
WIDTH: Final = 1000
HEIGHT: Final = 300
MARGIN: Final = 88
MOST_POINTS: Final = 700


_TOKEN_KEY: Final = "".join(
    f'<li><i style="background:var(--c{colour})"></i>{text}</li>'
    for colour, text in ((2, "input read from the cache"), (1, "written to it"), (7, "plain"))
)


def page(report: Report) -> str:
    """The whole page."""
    steps, threads = (sum(getattr(run, name) for run in report.runs) for name in ("steps", "threads"))
    about = f"{len(report.runs):,} runs, {threads:,} agents, {steps:,} steps, replayed on sizes; no model was asked."
    parts = [_provider(report, provider) for provider in report.providers]
    drawn = curve(report)
    body = "".join(
        [
            "<h1>What the same work costs under other context strategies</h1>",
            f"<p>{escape(about)}</p>",
            *parts,
            "" if drawn is None else _curve(drawn),
            _losses(losses(report)),
            *(_runs(report, provider) for provider in report.providers),
        ]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>xnagent lab</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _provider(report: Report, provider: Provider) -> str:
    names = [*report.plan.strategies, RECORDED]
    sums = [(name, report.sum(provider.name, name)) for name in names]
    shown = [(name, tally) for name, tally in sums if tally.steps]
    floor = report.floor(provider.name)
    title = f"{provider.name}, priced as {provider.model}"
    rows = "".join(_row(name, tally, floor=floor) for name, tally in shown)
    head = _cells(COLUMNS, tag="th")
    return (
        f"<section><h2>{escape(title)}</h2><figure>{_money_bars(shown, floor)}"
        f"<figcaption>Money; the least that the work can cost is {dollars(floor)} (the line in each bar)."
        f'</figcaption></figure><figure>{_token_bars(shown)}<ul class="key">{_TOKEN_KEY}</ul></figure>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def _money_bars(shown: Sequence[tuple[str, Tally]], floor: float) -> str:
    most = max((tally.usd for _name, tally in shown), default=0.0) or 1.0
    mark = f'<rect x="{100 * floor / most:.2f}" y="0" width=".4" height="10" fill="var(--ink)"/>'
    return _bars((name, _rect(0, 100 * tally.usd / most, colour=0) + mark, dollars(tally.usd)) for name, tally in shown)


def _token_bars(shown: Sequence[tuple[str, Tally]]) -> str:
    most = max((tally.input for _name, tally in shown), default=0) or 1

    def bar(tally: Tally) -> str:
        cached, written = 100 * tally.cached / most, 100 * tally.written / most
        rest = 100 * tally.input / most - cached - written
        return _rect(0, cached, colour=2) + _rect(cached, written, colour=1) + _rect(cached + written, rest, colour=7)

    return _bars((name, bar(tally), f"{tally.input / 1e6:,.2f} M") for name, tally in shown)


def _bars(rows: Iterable[tuple[str, str, str]]) -> str:
    return "".join(
        f'<div class="bar{" own" if name == OURS else ""}"><span>{escape(name)}</span>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{bar}</svg>'
        f"<b>{escape(text)}</b></div>"
        for name, bar, text in rows
    )


def _own(name: str) -> str:
    return ' class="own"' if name == OURS else ""


def _rect(x: float, width: float, *, colour: int) -> str:
    return f'<rect x="{x:.2f}" y="0" width="{max(0.0, width):.2f}" height="10" fill="var(--c{colour})"/>'


def _row(name: str, tally: Tally, *, floor: float) -> str:
    shown = cells(name, tally, floor=0.0 if name == RECORDED else floor)
    return f"<tr{_own(name)}>{_cells(shown)}</tr>"


def _cells(texts: Iterable[str], *, tag: str = "td") -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _curve(drawn: Curve) -> str:
    most = max((max(sizes, default=0) for sizes in drawn.sizes.values()), default=0) or 1
    longest = max((len(sizes) for sizes in drawn.sizes.values()), default=0) or 1
    lines = (
        f'<polyline fill="none" stroke="var(--c{number % COLOURS})" stroke-width="{3 if name == OURS else 1.5}" '
        f'points="{_points(sizes, most=most, longest=longest)}"/>'
        for number, (name, sizes) in enumerate(drawn.sizes.items())
    )
    key = "".join(
        f'<li{_own(name)}><i style="background:var(--c{number % COLOURS})"></i>{escape(name)}</li>'
        for number, name in enumerate(drawn.sizes)
    )
    title = f"Input of each request: {drawn.thread} ({drawn.provider})"
    return (
        f'<section><h2>{escape(title)}</h2><figure><svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{_axes(most, longest)}{"".join(lines)}</svg>'
        f'<ul class="key">{key}</ul></figure></section>'
    )


def _points(sizes: Sequence[int], *, most: int, longest: int) -> str:
    every = max(1, len(sizes) // MOST_POINTS)
    places = ((number, size) for number, size in enumerate(sizes) if number % every == 0)
    return " ".join(f"{_x(number, longest):.1f},{_y(size, most):.1f}" for number, size in places)


def _x(number: int, longest: int) -> float:
    return MARGIN + (WIDTH - MARGIN - 8) * number / max(1, longest - 1)


def _y(size: int, most: int) -> float:
    return HEIGHT - 24 - (HEIGHT - 36) * size / most


def _axes(most: int, longest: int) -> str:
    marks = (most * part // 4 for part in range(5))
    rules = "".join(
        f'<line x1="{MARGIN}" x2="{WIDTH - 8}" y1="{_y(size, most):.1f}" y2="{_y(size, most):.1f}" '
        f'stroke="var(--line)"/>'
        f'<text x="{MARGIN - 6}" y="{_y(size, most) + 5:.1f}" text-anchor="end">'
        f"{size // 1000:,}k</text>"
        for size in marks
    )
    end = f'<text x="{WIDTH - 8}" y="{HEIGHT - 4}" text-anchor="end">{longest:,}</text>'
    return rules + end


def _losses(found: Sequence[Loss]) -> str:
    if not found:
        return ""
    head = _cells(("run", "provider", "steps", "cheaper", "by", "share", "why"), tag="th")
    rows = "".join(
        f'<tr>{_cells(_loss(loss))}<td class="text">{escape(loss.why)}</td></tr>'
        for loss in sorted(found, key=lambda loss: -loss.usd)
    )
    return (
        f"<section><h2>Where {escape(OURS)} is not the cheapest ({len(found):,})</h2>"
        f'<details><summary>each run, and why</summary><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details></section>"
    )


def _loss(loss: Loss) -> Sequence[str]:
    return loss.run, loss.provider, f"{loss.steps:,}", loss.strategy, dollars(loss.usd), percent(loss.share)


def _runs(report: Report, provider: Provider) -> str:
    names = [*report.plan.strategies, RECORDED]
    head = _cells(("run", "steps", *names), tag="th")
    rows = "".join(f"<tr>{_cells(_run(run, provider.name, names=names))}</tr>" for run in report.runs)
    return (
        f"<section><h2>Each run: {escape(provider.name)}</h2><details>"
        "<summary>cost, and its share of the uncached price</summary>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        "</details></section>"
    )


def _run(run: Replayed, provider: str, *, names: Sequence[str]) -> list[str]:
    tallies = [run.tallies.get((provider, name)) for name in names]
    costs = ("–" if tally is None else f"{dollars(tally.usd)} ({percent(tally.share)})" for tally in tallies)
    return [run.name, f"{run.steps:,}", *costs]
