"""What came, waited and ended over time; and how long it took, the three spans side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import words
from .charts import Line, Scale, of_time, plot
from .figures import METRICS, Figures, Latency, Metric, backlog
from .frame import MOST_SHOWN, Cell, Head, Html, card, folded, legend, note, table
from .periods import MOST_STEPS, Period
from .words import Rate, safe

_TITLES: dict[Metric, tuple[str, str]] = {
    "wait": ("Wait", "from enqueue to the last claim: earlier tries and their pauses included"),
    "run": ("Run", "from the last claim to the end"),
    "total": ("End to end", "from enqueue to the end"),
}
_POINTS = ("p50", "p95", "p99")


def course(figures: Figures, period: Period) -> str:
    """Arrivals and ends with one scale, the backlog with its own, what went wrong with its own."""
    steps = _Steps(figures, period)
    rate = words.rate_for(max(steps.arrived + steps.ended, default=0) / period.step)
    parts = [_flow(figures, steps, rate), _backlog(figures, steps)]
    if any(steps.dead) or any(steps.failed):
        parts.append(_wrong(steps))
    parts.append(folded("Numbers", _numbers(steps, rate)))
    said = f"steps of {words.duration(period.step)}, UTC"
    return card("Arrivals, backlog, ends", Html(f'<div class="chart">{"".join(parts)}</div>'), note=said, id="course")


class _Steps:
    """All queues together, a number for each step."""

    def __init__(self, figures: Figures, period: Period) -> None:
        self.period = period
        self.arrived, self.ended, self.failed, self.dead = ([0] * period.steps for _ in range(4))
        for one in figures.buckets:
            place = period.place(one.at)
            self.arrived[place] += one.arrived
            self.ended[place] += one.ended
            self.failed[place] += one.failed
            self.dead[place] += one.dead
        self.before = [0] * period.steps
        for each in figures.ended_before:
            self.before[period.place(each.at)] += each.ended
        self.waiting = backlog(figures.buckets, sum(one.backlog_first for one in figures.queues), period)
        self.seconds = [self._seconds(place) for place in range(period.steps)]
        self.times = [self.clock(period.start + period.seconds * place / 4) for place in range(5)]

    def _seconds(self, place: int) -> float:
        """The first and the last step may be cut short; one of nearly no length would be all noise."""
        start = max(self.period.at(place), self.period.start)
        end = min(self.period.at(place) + self.period.step, self.period.end)
        return max(end - start, self.period.step / 10)

    def clock(self, at: float) -> str:
        return words.clock(at, self.period)

    def rates(self, counts: Sequence[int], rate: Rate) -> list[float | None]:
        return [rate.of(count, seconds) for count, seconds in zip(counts, self.seconds, strict=True)]

    def hints(self, say: Callable[[int], str]) -> list[str]:
        return [f"{words.exact(self.period.at(place))}: {say(place)}" for place in range(self.period.steps)]


def _flow(figures: Figures, steps: _Steps, rate: Rate) -> str:
    arrived, ended = steps.rates(steps.arrived, rate), steps.rates(steps.ended, rate)
    lines = [Line("arrived", "running", arrived), Line("ended", "done", ended)]
    keys = [("arrived", "running"), ("ended", "done")]
    if any(steps.before):
        lines.insert(0, Line("ended, the period before", "ready", steps.rates(steps.before, rate), "rule"))
        keys.append(("ended, the period before", "ready thin"))
    label = f"A {rate.name}: at most {_most(arrived)} arrived, at most {_most(ended)} ended"
    hints = steps.hints(
        lambda place: f"{words.number(steps.arrived[place])} arrived, {words.number(steps.ended[place])} ended"
    )
    drawn = plot(lines, steps.times, label=label, show=words.number, hints=hints)
    return f"<h3>Messages a {rate.name}</h3>{drawn}{legend(keys)}"


def _most(values: Sequence[float | None]) -> str:
    return words.number(max((value for value in values if value is not None), default=0.0))


def _backlog(figures: Figures, steps: _Steps) -> str:
    label = f"Backlog: {words.number(steps.waiting[-1])} at the end, at most {words.number(max(steps.waiting))}"
    hints = steps.hints(lambda place: f"{words.number(steps.waiting[place])} had not ended")
    line = Line("backlog", "delayed", [float(max(one, 0)) for one in steps.waiting], "area")
    drawn = plot([line], steps.times, label=label, show=words.number, hints=hints, height=120)
    said = "" if figures.present.counts_waiting else _LACKS
    return f"<h3>Backlog: arrived and not ended</h3>{drawn}{said}"


_LACKS = (
    '<p class="sub">Without the store only what has ended by now is counted: near the end, arrivals and backlog are '
    "too low.</p>"
)


def _wrong(steps: _Steps) -> str:
    both = [float(failed + dead) for failed, dead in zip(steps.failed, steps.dead, strict=True)]
    lines = [
        Line("failed", "failed", both, "columns"),
        Line("dead", "dead", [float(one) for one in steps.dead], "columns"),
    ]
    label = f"{words.plural(sum(steps.dead), 'message')} died, {words.number(sum(steps.failed))} failed"
    hints = steps.hints(
        lambda place: f"{words.number(steps.dead[place])} died, {words.number(steps.failed[place])} failed"
    )
    drawn = plot(lines, steps.times, label=label, show=words.number, hints=hints, height=100)
    keys = [("dead", "dead"), *([("failed", "failed")] if any(steps.failed) else [])]
    return f"<h3>Died and failed, per {words.step(steps.period.step)}</h3>{drawn}{legend(keys)}"


def _numbers(steps: _Steps, rate: Rate) -> Html:
    together = -(-steps.period.steps // MOST_STEPS)
    rows = []
    for first in range(0, steps.period.steps, together):
        part = slice(first, first + together)
        ended, seconds = sum(steps.ended[part]), sum(steps.seconds[part])
        sums = [sum(counts[part]) for counts in (steps.arrived, steps.ended, steps.failed, steps.dead)]
        last = steps.waiting[part][-1]
        rows.append([words.exact(steps.period.at(first)), *map(words.number, [*sums, last, rate.of(ended, seconds)])])
    heads = [Head("from (UTC)"), *(Head(name, "n") for name in ("arrived", "ended", "failed", "dead", "backlog then"))]
    return table([*heads, Head(f"ended a {rate.name}", "n mid")], rows, label="Numbers of the charts above", key=False)


# ---------------------------------------------------------------------- latencies


def latencies(figures: Figures, period: Period) -> str:
    """Three panels with one scale, then the queues."""
    known = [metric for metric in METRICS if figures.of(metric)]
    if not known:
        return ""
    values = [getattr(one, point) for one in figures.course for point in _POINTS]
    scale = of_time(values)
    panels = "".join(_panel(figures, period, metric, scale) for metric in known)
    lacks = (
        ""
        if "wait" in known
        else note("The store does not say when a message was claimed: wait and run are not known.")
    )
    body = f'<div class="body">{lacks}<div class="spans">{panels}</div></div>{_by_queue(figures, known)}'
    keys = " · ".join(_POINTS)
    return card("How long it took", Html(body), note=f"{keys}; one scale, logarithmic", id="latency")


def _panel(figures: Figures, period: Period, metric: Metric, scale: Scale) -> str:
    whole = figures.of(metric)
    assert whole is not None
    title, meaning = _TITLES[metric]
    by_place = {period.place(one.at): one for one in figures.course if one.metric == metric}
    lines = [
        Line(
            point,
            point,
            [getattr(by_place[place], point) if place in by_place else None for place in range(period.steps)],
        )
        for point in reversed(_POINTS)
    ]
    times = [words.clock(at, period) for at in (period.start, period.end)]
    numbers = ", ".join(f"{point} {words.duration(getattr(whole, point))}" for point in _POINTS)
    shown = "".join(
        f'<li class="{point}">{point} <b>{safe(words.duration(getattr(whole, point)))}</b></li>' for point in _POINTS
    )
    drawn = plot(lines, times, label=f"{title}: {numbers}", show=words.duration, scale=scale, height=160)
    return f'<div><h3>{title}</h3><p class="sub">{meaning}</p>{drawn}<ul class="legend">{shown}</ul></div>'


def _by_queue(figures: Figures, known: Sequence[Metric]) -> str:
    names = sorted((one for one in figures.queues if one.ended), key=lambda one: -one.p95)[:MOST_SHOWN]
    heads = [Head("queue, slowest first"), Head("messages", "n mid")]
    for metric in known:
        title = _TITLES[metric][0].lower()
        heads += [
            Head(f"{title} p50", "n wide"),
            Head(f"{title} p95", "n mid" if metric == "wait" else "n"),
            Head(f"{title} p99", "n wide"),
        ]
    rows = [
        [one.queue, words.number(one.ended), *_spans([figures.of(metric, one.queue) for metric in known])]
        for one in names
    ]
    return table(heads, rows, label="How long it took, by queue")


def _spans(found: Sequence[Latency | None]) -> list[Cell]:
    return [words.duration(getattr(one, point)) if one else "–" for one in found for point in _POINTS]
