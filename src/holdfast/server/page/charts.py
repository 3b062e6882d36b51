"""Charts as SVG with attributes only, in the forms of the stylesheet: the outer SVG has no viewBox, so that text keeps
its size; one stretched SVG inside holds the paths. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeVar

from markupsafe import Markup, escape

from ..history import Sample, Timing, rates
from . import words

_WIDTH = 600  # of the stretched inside
_HEIGHT = 100  # of it
STATES = (("processing", "running"), ("pending", "ready"), ("delayed", "delayed"), ("retry", "retry"), ("dead", "dead"))

T = TypeVar("T")
Line = Sequence[float | None]


class Numbers(NamedTuple):
    """A chart in words: the last that is known of each stretch."""

    columns: Sequence[str]
    rows: list[tuple[str, list[str]]]


def states(samples: Sequence[Sample | None], title: str, since: str) -> Markup:
    """Messages by state, one line each."""
    lines = [(tone, of(samples, field)) for field, tone in STATES]
    return _plot(lines, f"{title}: {_ends(lines)}", since)


def of(samples: Sequence[Sample | None], field: str) -> list[float | None]:
    return [None if each is None else float(getattr(each, field)) for each in samples]


def throughput(samples: Sequence[Sample | None], title: str, since: str) -> Markup:
    """Messages a second, in and out."""
    found = rates(samples)
    lines: list[tuple[str, Line]] = [
        ("running", [None if each is None else each[0] for each in found]),
        ("done", [None if each is None else each[1] for each in found]),
    ]
    came, went = (words.rate(_end(line)) for _, line in lines)
    return _plot(lines, f"{title}: now {came} in, {went} out", since)


TIMES = ("p50", "p95", "p99")


def times(timings: Sequence[Timing | None], of: Literal["wait", "run"], title: str, since: str) -> Markup:
    """Seconds, one line for each percentile."""
    lines: list[tuple[str, Line]] = [
        (name, [None if each is None else getattr(each, f"{of}_{name}") for each in timings]) for name in TIMES
    ]
    said = ", ".join(f"{name} {words.duration(_end(line))}" for name, line in lines)
    return _plot(lines, f"{title}: {said}", since, written=words.duration)


def numbers_of_states(samples: Sequence[Sample | None], now: datetime) -> Numbers:
    rows = [
        (_minute(each.at, now), [words.number(getattr(each, field)) for field, _ in STATES]) for each in few(samples)
    ]
    return Numbers([tone for _, tone in STATES], rows)


def numbers_of_throughput(samples: Sequence[Sample | None], now: datetime) -> Numbers:
    """From one line to the next."""
    seen = few(samples)
    found = zip(seen, rates(seen), strict=True)
    rows = [(_minute(each.at, now), [words.rate(one) for one in rate]) for each, rate in found if rate is not None]
    return Numbers(("in", "completed"), rows)


def numbers_of_times(
    timings: Sequence[Timing | None], of: Literal["wait", "run"], seconds: int, now: datetime
) -> Numbers:
    step = seconds // len(timings)
    last = now.timestamp() // step * step
    known = [(last - back * step, each) for back, each in zip(range(len(timings))[::-1], timings, strict=True)]
    rows = [
        (_minute(at, now), [words.duration(getattr(each, f"{of}_{name}")) for name in TIMES])
        for at, each in few([(at, each) if each is not None and each.count else None for at, each in known])
    ]
    return Numbers(TIMES, rows)


def few(line: Sequence[T | None], most: int = 12) -> list[T]:
    """The last that is known of each stretch: as many as one reads."""
    size = max(1, -(-len(line) // most))
    parts = ([each for each in line[at : at + size] if each is not None] for at in range(0, len(line), size))
    return [part[-1] for part in parts if part]


def _minute(at: float, now: datetime) -> str:
    return words.when(words.moment(at), now)


def spark(line: Line, tone: str, label: str) -> Markup:
    """A hint of a line, without axes."""
    top = max((each for each in line if each is not None), default=0.0) or 1.0
    paths = _paths(line, top * 1.08, 120, 26, 2)
    if not paths:
        return Markup("")
    drawn = "".join(f'<path class="line" d="{each}"/>' for each in paths)
    return Markup(
        '<svg class="spark {}" viewBox="0 0 120 28" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(tone, label, Markup(drawn))  # nosec B704 - numbers of ours


def _plot(
    lines: Sequence[tuple[str, Line]], label: str, since: str, *, written: Callable[[float], str] | None = None
) -> Markup:
    height = 180
    top = _top(max((each for _, line in lines for each in line if each is not None), default=0.0))
    plot = height - 20
    drawn = [f'<svg class="plot" height="{height}" role="img" aria-label="{escape(label)}">']
    for share in (0.0, 0.5, 1.0):
        y = plot - share * (plot - 14)
        drawn.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
    drawn.append(
        f'<svg y="14" width="100%" height="{plot - 14}" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
    )
    for tone, line in lines:
        paths = _paths(line, top, _WIDTH, _HEIGHT, 0)
        drawn.append(f'<g class="{tone}">' + "".join(f'<path class="line" d="{each}"/>' for each in paths) + "</g>")
    drawn.append("</svg>")
    written = written or (words.number if top >= 10 else words.rate)
    for share in (0.5, 1.0):
        y = plot - share * (plot - 14) - 4
        drawn.append(f'<text x="0" y="{y:.1f}">{written(top * share)}</text>')
    for anchor, x, text in (("start", "0%", since), ("end", "100%", "now")):
        drawn.append(f'<text x="{x}" y="{height - 3}" text-anchor="{anchor}">{escape(text)}</text>')
    return Markup("".join(drawn) + "</svg>")  # nosec B704 - numbers of ours, and a label that is escaped


def _paths(line: Line, top: float, width: float, bottom: float, above: float) -> list[str]:
    """One for each stretch without a gap; a lone value is a dash."""
    step = width / max(1, len(line) - 1)
    parts: list[list[str]] = [[]]
    for index, value in enumerate(line):
        if value is None:
            parts.append([])
        else:
            parts[-1].append(f"{index * step:.1f} {bottom - value / top * (bottom - above):.1f}")
    return [f"M{'L'.join(part)}" if len(part) > 1 else f"M{part[0]}h2" for part in parts if part]


def _top(value: float) -> float:
    """The next round number."""
    if value <= 0:
        return 1.0
    if value < 1:  # seconds, mostly: down to a millisecond
        return next((part for part in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if part >= value), 1.0)
    size = 10.0 ** len(str(int(value)))
    return next(size * part for part in (0.1, 0.2, 0.5, 1.0) if size * part >= value)


def _end(line: Line) -> float | None:
    return next((each for each in reversed(line) if each is not None), None)


def _ends(lines: Sequence[tuple[str, Line]]) -> str:
    return ", ".join(f"{words.number(_end(line))} {tone}" for tone, line in lines)
