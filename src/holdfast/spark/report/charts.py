"""Charts as SVG text: no script, no files, colours from the page's style."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 30
_ROW_PX = 34  # of a chart with a line per thing
_LABEL_PX = 190  # for the names to its left
_COLUMN_PX = 90  # at most
_CHARACTER_PX = 8  # of the width of a name's letter
# Seconds, where scales of time have their lines: logarithmic ones, and the steps of others.
_TICKS = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 864e3, 864e4, 864e5)
_STEPS = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000)


class Series(NamedTuple):
    """One colour of a chart: its name, its class in the style, a value for each place."""

    name: str
    look: str
    values: Sequence[float]


class Dots(NamedTuple):
    """A line of a range chart: a name and values from left to right."""

    name: str
    values: Sequence[float]


def columns(
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    title: str,
    unit: str = "",
    show: Callable[[float], str] | None = None,
) -> str:
    """Stacked columns, as many as there are labels."""
    tell = show or number
    totals = [sum(one.values[place] for one in series) for place in range(len(labels))]
    top, steps = _scale(max(totals, default=0.0))
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    each = width / max(len(labels), 1)
    bar = min(max(each * 0.82, min(each, 1.0)), _COLUMN_PX)
    parts = [_grid(steps, top, height, tell)]
    for place, label in enumerate(labels):
        base, x = float(_TOP + height), _LEFT + each * place + (each - bar) / 2
        told = ", ".join(f"{one.name} {tell(one.values[place])}" for one in series if one.values[place])
        inner = [f"<title>{_safe(label)}: {_safe(told or '0')}{_safe(unit)}</title>"]
        for one in series:
            size = height * one.values[place] / top
            base -= size
            if size > 0:
                inner.append(_rect(x, base, bar, size, one.look))
        parts.append(f"<g>{''.join(inner)}</g>")
    parts += _under(labels, each, height)
    return _svg(WIDTH, HEIGHT, title, parts)


def lines(labels: Sequence[str], series: Sequence[Series], *, title: str, show: Callable[[float], str]) -> str:
    """One line for each series over the same places; values are seconds."""
    top, steps = _time_scale(max((value for one in series for value in one.values), default=0.0))
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    each = width / max(len(labels), 1)
    parts = [_grid(steps, top, height, show)]
    for one in series:
        points = [
            (_LEFT + each * (place + 0.5), _TOP + height - height * value / top)
            for place, value in enumerate(one.values)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line {one.look}" points="{path}"/>')
        parts += [
            f'<circle class="{one.look}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{_safe(label)}: {_safe(one.name)} '
            f"{_safe(show(value))}</title></circle>"
            for (x, y), label, value in zip(points, labels, one.values, strict=True)
        ]
    parts += _under(labels, each, height)
    return _svg(WIDTH, HEIGHT, title, parts)


def bars(
    rows: Sequence[tuple[str, Sequence[Series]]],
    *,
    title: str,
    show: Callable[[float], str] | None = None,
    label: int = _LABEL_PX,
) -> str:
    """A line for each thing, its parts one after the other; longest first is for the caller to see to."""
    tell = show or number
    most = max((sum(part.values[0] for part in parts) for _, parts in rows), default=0.0) or 1.0
    room = WIDTH - label - 70
    drawn = []
    for place, (name, parts) in enumerate(rows):
        y, x, total = place * _ROW_PX, float(label), sum(part.values[0] for part in parts)
        told = ", ".join(f"{part.name} {tell(part.values[0])}" for part in parts if part.values[0])
        inner = [f"<title>{_safe(name)}: {_safe(told)}</title>", _label(name, y, label)]
        for part in parts:
            size = room * part.values[0] / most
            inner.append(_rect(x, y + 7, size, _ROW_PX - 14, part.look))
            x += size
        inner.append(f'<text class="value" x="{x + 6:.1f}" y="{y + _ROW_PX / 2 + 4:.1f}">{_safe(tell(total))}</text>')
        drawn.append(f"<g>{''.join(inner)}</g>")
    return _svg(WIDTH, max(len(rows), 1) * _ROW_PX, title, drawn)


def ranges(rows: Sequence[Dots], names: Sequence[str], *, title: str, show: Callable[[float], str]) -> str:
    """A line for each thing on a logarithmic scale: a bar from its first value to its last, a dot for each."""
    known = [value for row in rows for value in row.values if value > 0]
    least, most = min(known, default=0.001), max(known, default=1.0)
    start = max(place for place, tick in enumerate(_TICKS[:-1]) if tick <= least or not place)
    end = next((place for place, tick in enumerate(_TICKS) if tick >= most and place > start), len(_TICKS) - 1)
    ticks = _TICKS[start : end + 1]
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    room, height = WIDTH - _LABEL_PX - 20, max(len(rows), 1) * _ROW_PX

    def at(value: float) -> float:
        return _LABEL_PX + room * (min(max(math.log10(max(value, ticks[0])), low), high) - low) / (high - low)

    parts = []
    for tick in ticks:
        x = at(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
        parts.append(
            f'<text class="axis" text-anchor="middle" x="{x:.1f}" y="{height + 18}">{_safe(show(tick))}</text>'
        )
    for place, row in enumerate(rows):
        y = place * _ROW_PX + _ROW_PX / 2
        told = ", ".join(f"{name} {show(value)}" for name, value in zip(names, row.values, strict=True))
        inner = [f"<title>{_safe(row.name)}: {_safe(told)}</title>", _label(row.name, place * _ROW_PX, _LABEL_PX)]
        first, last = at(row.values[0]), at(row.values[-1])
        inner.append(_rect(first, y - 4, max(last - first, 1.0), 8, "band"))
        inner += [
            f'<circle class="dot{number}" cx="{at(value):.1f}" cy="{y:.1f}" r="5.5"/>'
            for number, value in enumerate(row.values)
        ]
        parts.append(f"<g>{''.join(inner)}</g>")
    return _svg(WIDTH, height + 26, title, parts)


def number(value: float) -> str:
    """1234 as 1,234; 12.5 as 12.5."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:,.3g}"


def duration(seconds: float) -> str:
    """0.0042 as 4.2 ms, 75 as 75 s, 5000 as 83 min."""
    for size, unit in ((86400 * 2, "d"), (7200, "h"), (120, "min")):
        if seconds >= size:
            divisor = {"d": 86400, "h": 3600, "min": 60}[unit]
            return f"{seconds / divisor:.3g} {unit}"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 0.001:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0"


def _scale(most: float) -> tuple[float, list[float]]:
    """A round top, and where the lines of the grid are."""
    if most <= 0:
        return 1.0, [0.0, 1.0]
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough)
    count = math.ceil(most / step - 1e-9)
    return step * count, [step * number for number in range(count + 1)]


def _time_scale(most: float) -> tuple[float, list[float]]:
    """The same for seconds: from half a minute on in steps that people count in."""
    step = next((size for size in _STEPS if size >= most / 4), None)
    if most < 30 or step is None:
        return _scale(most)
    count = math.ceil(most / step - 1e-9)
    return float(step * count), [float(step * number) for number in range(count + 1)]


def _grid(steps: Sequence[float], top: float, height: float, show: Callable[[float], str]) -> str:
    parts = []
    for step in steps:
        y = _TOP + height - height * step / top
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="axis" text-anchor="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{_safe(show(step))}</text>')
    return "".join(parts)


def _under(labels: Sequence[str], each: float, height: float) -> list[str]:
    """Some of the labels: those that fit."""
    widest = max(map(len, labels), default=1) * 7 + 14
    step = max(1, math.ceil(widest / each))
    return [
        f'<text class="axis" text-anchor="middle" x="{_LEFT + each * (place + 0.5):.1f}" y="{_TOP + height + 19:.1f}">'
        f"{_safe(labels[place])}</text>"
        for place in range(0, len(labels), step)
        if _LEFT + each * (place + 0.5) + len(labels[place]) * 3.5 <= WIDTH
    ]


def _label(name: str, y: float, room: int) -> str:
    most = (room - 10) // _CHARACTER_PX
    shown = name if len(name) <= most else name[: most - 1] + "…"
    return f'<text class="name" text-anchor="end" x="{room - 10}" y="{y + _ROW_PX / 2 + 4:.1f}">{_safe(shown)}</text>'


def _rect(x: float, y: float, width: float, height: float, look: str) -> str:
    return f'<rect class="{look}" x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.2f}"/>'


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    inner = "".join(parts)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html.escape(title, quote=True)}" '
        f'preserveAspectRatio="xMinYMin meet">{inner}</svg>'
    )


def _safe(text: str) -> str:
    return html.escape(text, quote=False)
