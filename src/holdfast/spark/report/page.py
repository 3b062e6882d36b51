"""One self-contained page: every chart next to the table of its numbers. No script, nothing loaded."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import NamedTuple

from .charts import Dots, Series, bars, columns, duration, lines, number, ranges
from .figures import EVERY, METRICS, Figures, Latency, Metric, Minute, Reason

MOST_COLUMNS = 120  # of a chart over time: narrower ones cannot be read
MOST_ROWS = 20  # of a chart with a line per queue or reason
_STEPS = (60, 300, 900, 3600, 6 * 3600, 86400)  # seconds a column may stand for
_ENDS = (("completed", "ok"), ("failed", "warn"), ("dead", "bad"))
_MEANING: dict[Metric, str] = {
    "wait": "Wait: from enqueue to the last claim",
    "run": "Run: from the last claim to the end",
    "total": "End to end: from enqueue to the end",
}
_POINTS = ("p50", "p90", "p95", "p99")
_NUMBER = re.compile(r"-|[\d,.]+(e[+-]\d+)?( (µs|ms|s|min|h|d))?")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")


class Table(NamedTuple):
    """Numbers next to a chart."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def page(figures: Figures) -> str:
    """The report as HTML."""
    style = resources.files(__package__).joinpath("style.css").read_text()
    parts = [_header(figures)]
    if figures.ended:
        parts += [_throughput(figures), *_latencies(figures), _days(figures), _retries(figures), _reasons(figures)]
        parts += [_hottest(figures), _slowest(figures)]
    else:
        parts.append('<p class="none">Nothing finished in this time.</p>')
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1"><title>Holdfast report</title>'
        f"<style>\n{style}</style></head><body><main>\n{''.join(parts)}\n{_footer(figures)}</main></body></html>\n"
    )


# ---------------------------------------------------------------------- sections


def _header(figures: Figures) -> str:
    total = figures.of("total")
    ended = figures.ended
    sums = {
        name: sum(getattr(one, name) for one in figures.queues) for name in ("completed", "failed", "dead", "retried")
    }
    tiles = [
        ("finished", number(ended), f"{len(figures.queues)} queues"),
        ("completed", number(sums["completed"]), _share(sums["completed"], ended)),
        ("dead", number(sums["dead"]), _share(sums["dead"], ended)),
        ("failed", number(sums["failed"]), _share(sums["failed"], ended)),
        ("retried", number(sums["retried"]), _share(sums["retried"], ended)),
        ("end to end, p50", duration(total.p50) if total else "-", f"p99 {duration(total.p99)}" if total else ""),
    ]
    shown = "".join(
        f'<div class="tile"><span>{_safe(name)}</span><strong>{_safe(value)}</strong><em>{_safe(note)}</em></div>'
        for name, value, note in tiles
    )
    return f'<header><h1>Holdfast report</h1><p>{_safe(_span(figures))}</p></header><div class="tiles">{shown}</div>'


def _throughput(figures: Figures) -> str:
    step, starts, groups = buckets(figures.minutes)
    labels = [_moment(start, step) for start in starts]
    series = [
        Series(name, look, [sum(getattr(one, name) for one in group) for group in groups]) for name, look in _ENDS
    ]
    table = Table(
        ("from (UTC)", "completed", "failed", "dead", "a minute"),
        [
            (
                _when(start),
                *(number(one.values[place]) for one in series),
                number(sum(one.values[place] for one in series) * 60 / step),
            )
            for place, start in enumerate(starts)
        ],
    )
    what = "minute" if step == 60 else duration(step)
    chart = columns(labels, series, title=f"Messages that ended, per {what}")
    legend = _legend([(name, look) for name, look in _ENDS])
    return _section("Throughput", f"Messages that ended, per {what} (UTC). {legend}", chart, table)


def _latencies(figures: Figures) -> list[str]:
    made = []
    for metric in METRICS:
        rows = [one for one in figures.latency if one.metric == metric and one.day == ""]
        rows.sort(key=lambda one: (one.queue != EVERY, -one.p95))
        if not rows:
            continue
        chart = ranges(
            [Dots(one.queue or "all queues", _points(one)) for one in rows[: MOST_ROWS + 1]],
            _POINTS,
            title=_MEANING[metric],
            show=duration,
        )
        legend = _legend([(point, f"dot{place}") for place, point in enumerate(_POINTS)])
        head, _, meaning = _MEANING[metric].partition(": ")
        made.append(_section(head, f"{meaning.capitalize()}. {legend}", chart, _times(rows), wide=True))
    if not figures.of("wait"):
        made.append(
            '<p class="none">The store does not say when a message was claimed: wait and run are not known.</p>'
        )
    return made


def _times(rows: Sequence[Latency], name: Callable[[Latency], str] = lambda one: one.queue or "all queues") -> Table:
    heads = ("queue", "messages", "min", "mean", *_POINTS, "max")
    rows_of = [
        (name(one), number(one.count), *map(duration, (one.least, one.mean, *_points(one), one.most))) for one in rows
    ]
    return Table(heads, rows_of)


def _points(one: Latency) -> list[float]:
    return [getattr(one, point) for point in _POINTS]


def _days(figures: Figures) -> str:
    """Percentiles by day: only when there is more than one."""
    days = sorted({one.day for one in figures.latency if one.day})
    if len(days) < 2:
        return ""
    rows = [one for one in figures.latency if one.metric == "total" and one.day and one.queue]
    busiest = [one.queue for one in figures.queues[:4]]
    by_place = {(one.queue, one.day): one for one in rows}
    series = [
        Series(name, f"line{place}", [by_place[name, day].p95 if (name, day) in by_place else 0.0 for day in days])
        for place, name in enumerate(busiest)
    ]
    chart = lines(days, series, title="p95 end to end by day", show=duration)
    legend = _legend([(one.name, one.look) for one in series])
    table = _times([one for one in rows if one.queue in busiest], lambda one: f"{one.queue} · {one.day}")
    return _section("By day", f"p95 from enqueue to the end, the busiest queues. {legend}", chart, table, wide=True)


def _retries(figures: Figures) -> str:
    most = max(one.attempts for one in figures.tries)
    counts = list(range(min(one.attempts for one in figures.tries), most + 1))
    series = [
        Series(
            name, look, [sum(getattr(one, name) for one in figures.tries if one.attempts == each) for each in counts]
        )
        for name, look in _ENDS
    ]
    chart = columns([str(each) for each in counts], series, title="Messages by the number of their attempts")
    rows = [(str(each), *(number(one.values[place]) for one in series)) for place, each in enumerate(counts)]
    table = Table(("attempts", "completed", "failed", "dead"), rows)
    return _section("Retries", f"Messages by the number of their attempts. {_legend(_ENDS)}", chart, table)


def _reasons(figures: Figures) -> str:
    if not figures.reasons:
        return _section("Why messages died", "No message ended with an error.", "", None)
    chart = bars(
        _by_reason(figures.reasons)[:MOST_ROWS],
        title="Messages by the reason they ended",
        label=360,
    )
    table = Table(
        ("messages", "reason", "queue", "ended as", "first (UTC)", "last (UTC)", "fingerprint", "example"),
        [
            (
                *(number(one.count), one.reason, one.queue, one.status, _when(one.first), _when(one.last)),
                *(one.fingerprint, one.example),
            )
            for one in figures.reasons
        ],
    )
    note = "Errors that differ only in numbers, ids and quoted words are one reason."
    return _section("Why messages died", note, chart, table, wide=True)


def _by_reason(reasons: Sequence[Reason]) -> list[tuple[str, list[Series]]]:
    """One line for a reason in all queues, with how its messages ended; the most frequent first."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for one in reasons:
        ends = counts.setdefault((one.fingerprint, one.reason), dict.fromkeys(("failed", "dead"), 0))
        ends[one.status] = ends.get(one.status, 0) + one.count
    looks = dict(_ENDS)
    ordered = sorted(counts.items(), key=lambda pair: -sum(pair[1].values()))
    return [
        (reason, [Series(end, looks.get(end, "bad"), [count]) for end, count in ends.items()])
        for (_, reason), ends in ordered
    ]


def _hottest(figures: Figures) -> str:
    shown = figures.queues[:MOST_ROWS]
    chart = bars(
        [(one.queue, [Series(name, look, [getattr(one, name)]) for name, look in _ENDS]) for one in shown],
        title="Messages by queue",
    )
    heads = ("queue", "finished", "completed", "failed", "dead", "retried", "attempts", "a minute", "busiest minute")
    rows = [
        (
            one.queue,
            *map(number, (one.ended, one.completed, one.failed, one.dead, one.retried, one.attempts)),
            *map(number, (one.per_minute, one.busiest)),
        )
        for one in figures.queues
    ]
    return _section("Hottest queues", "Where most messages ended.", chart, Table(heads, rows), wide=True)


def _slowest(figures: Figures) -> str:
    ordered = sorted(figures.queues, key=lambda one: -one.p95)
    chart = bars(
        [(one.queue, [Series("p95", "dot2", [one.p95])]) for one in ordered[:MOST_ROWS]],
        title="p95 end to end by queue",
        show=duration,
    )
    rows = [(one.queue, duration(one.p95), duration(one.p50), number(one.ended)) for one in ordered]
    return _section(
        "Slowest queues", "p95 from enqueue to the end.", chart, Table(("queue", "p95", "p50", "finished"), rows)
    )


# ---------------------------------------------------------------------- parts


def buckets(minutes: Sequence[Minute]) -> tuple[int, list[int], list[list[Minute]]]:
    """Seconds of a column, where columns start, and what is in each: at most 120, empty ones included."""
    first, last = min(one.at for one in minutes), max(one.at for one in minutes)
    step = next((size for size in _STEPS if (last - first) // size < MOST_COLUMNS), _STEPS[-1])
    start = first - first % step
    starts = list(range(start, last + 1, step))
    groups: list[list[Minute]] = [[] for _ in starts]
    for one in minutes:
        groups[(one.at - start) // step].append(one)
    return step, starts, groups


def _section(title: str, note: str, chart: str, table: Table | None, *, wide: bool = False) -> str:
    """`note` is HTML of our own making."""
    kind = ' class="wide"' if wide else ""
    figure = f"<figure>{chart}</figure>" if chart else ""
    numbers = f'<div class="numbers">{_table(table)}</div>' if table else ""
    return f'<section{kind}><h2>{_safe(title)}</h2><p>{note}</p><div class="pair">{figure}{numbers}</div></section>'


def _table(table: Table) -> str:
    kinds = [_kind([row[place] for row in table.rows]) for place in range(len(table.heads))]
    heads = "".join(f"<th{kind}>{_safe(head)}</th>" for head, kind in zip(table.heads, kinds, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{kind}>{_safe(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _legend(names: Sequence[tuple[str, str]]) -> str:
    keys = (f'<span class="key"><i class="{look}"></i>{_safe(name)}</span>' for name, look in names)
    return f'<span class="legend">{"".join(keys)}</span>'


def _footer(figures: Figures) -> str:
    made = datetime.fromtimestamp(figures.made_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    said = f"Made {made} from version {figures.version} of {figures.lake}. Percentiles are of KLL sketches."
    return f"<footer>{_safe(said)}</footer>"


def _span(figures: Figures) -> str:
    if not figures.minutes:
        return "no messages"
    first, last = min(one.at for one in figures.minutes), max(one.at for one in figures.minutes)
    return f"{_when(first)} to {_when(last + 60)} UTC"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %" if whole else ""


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _moment(at: int, step: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M" if step < 6 * 3600 else "%d %b")


def _kind(cells: Sequence[str]) -> str:
    """How a column looks: numbers to the right, instants in one line, text as it comes."""
    if all(_NUMBER.fullmatch(cell) for cell in cells):
        return ' class="n"'
    return ' class="t"' if all(_INSTANT.fullmatch(cell) for cell in cells) else ""


def _safe(text: str) -> str:
    return html.escape(text, quote=False)
