"""Charts as SVG in the forms of the dashboard's stylesheet: no script, no files. The outer SVG has no viewBox, so that
text keeps its size; one that is stretched inside it holds what is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .periods import MOST_STEPS
from .words import safe

_HEAD_PX, _AXIS_PX = 14, 20  # above, for the highest label; below, for the time
_WIDE, _HIGH = 1000, 100  # of the stretched inside
MOST_TICKS = 5  # whose names do not touch each other
# Seconds, where logarithmic scales have their lines.
_TICKS = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 864e3, 864e4, 864e5)
Show = Callable[[float], str]


class Line(NamedTuple):
    """A value for each step; None where there is none. `form`: line, area, rule (dashed) or columns."""

    name: str
    tone: str
    values: Sequence[float | None]
    form: str = "line"


class Scale(NamedTuple):
    """Where a value is, from 0 to 1, and the values that have a line across."""

    at: Callable[[float], float]
    ticks: Sequence[float]


def plot(
    lines: Sequence[Line],
    times: Sequence[str],
    *,
    label: str,
    show: Show,
    scale: Scale | None = None,
    hints: Sequence[str] = (),
    height: int = 180,
) -> str:
    """Lines over time; `times` stand below from left to right, `hints` are said of each step."""
    scale = scale or even([value for line in lines for value in line.values if value is not None])
    floor = height - _AXIS_PX
    room = floor - _HEAD_PX
    parts = [f'<svg class="plot" height="{height}" role="img" aria-label="{safe(label)}">']
    levels = [(tick, floor - scale.at(tick) * room) for tick in scale.ticks]
    parts += [f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>' for _, y in levels]
    parts.append(
        f'<svg y="{_HEAD_PX}" width="100%" height="{room}" viewBox="0 0 {_WIDE} {_HIGH}" preserveAspectRatio="none">'
    )
    parts += [_drawn(line, scale) for line in lines]
    parts += _hints(hints)
    parts.append("</svg>")
    parts += [f'<text x="0" y="{y - 4:.1f}">{safe(show(tick))}</text>' for tick, y in levels if tick or y < floor]
    parts += _times(times, height)
    return "".join([*parts, "</svg>"])


def spark(values: Sequence[float], tone: str, label: str) -> str:
    """A hint of a course, without axes."""
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    line = _path([value / top for value in values], bottom=27.0, room=25.0, width=120)
    return (
        f'<svg class="spark {tone}" viewBox="0 0 120 28" preserveAspectRatio="none" role="img" '
        f'aria-label="{safe(label)}">'
        f'<path class="area" d="{line}V28H0Z"/><path class="line" d="{line}"/></svg>'
    )


def even(values: Sequence[float]) -> Scale:
    """From nothing to a round number."""
    top = _round_up(max(values, default=0.0))
    return Scale(lambda value: value / top, (0.0, top / 2, top))


def of_time(values: Sequence[float]) -> Scale:
    """Logarithmic, for seconds that may differ a thousandfold."""
    known = [value for value in values if value > 0]
    least, most = min(known, default=0.001), max(known, default=1.0)
    start = max(place for place, tick in enumerate(_TICKS[:-1]) if tick <= least or not place)
    end = next((place for place, tick in enumerate(_TICKS) if tick >= most and place > start), len(_TICKS) - 1)
    ticks = _TICKS[start : end + 1]
    every = -(-len(ticks) // MOST_TICKS)
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])

    def at(value: float) -> float:
        return (math.log10(min(max(value, ticks[0]), ticks[-1])) - low) / (high - low)

    return Scale(at, ticks[::every])


def _round_up(most: float) -> float:
    """A number whose half is one that people read well."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(part * power for part in (1, 2, 3, 4, 5, 6, 8, 10) if part * power >= most * (1 - 1e-9))


def _drawn(line: Line, scale: Scale) -> str:
    shares = [None if value is None else scale.at(value) for value in line.values]
    if line.form == "columns":
        return f'<path class="{line.tone} solid" d="{_columns(shares)}"/>'
    path = _path(shares, bottom=_HIGH, room=_HIGH, width=_WIDE)
    area = f'<path class="area" d="{_filled(shares)}"/>' if line.form == "area" else ""
    kind = "line rule" if line.form == "rule" else "line"
    return f'<g class="{line.tone}">{area}<path class="{kind}" d="{path}"/></g>'


def _path(shares: Sequence[float | None], *, bottom: float, room: float, width: float) -> str:
    """Level for as long as a step lasts; interrupted where there is nothing."""
    each = width / max(1, len(shares))
    parts, is_down = [], False
    for place, value in enumerate(shares):
        if value is None:
            is_down = False
            continue
        y = f"{bottom - value * room:.4g}"
        begin = f"V{y}" if is_down else f"M{place * each:.5g} {y}"
        parts.append(f"{begin}H{(place + 1) * each:.5g}")
        is_down = True
    return "".join(parts)


def _filled(shares: Sequence[float | None]) -> str:
    return f"{_path([value or 0.0 for value in shares], bottom=_HIGH, room=_HIGH, width=_WIDE)}V{_HIGH}H0Z"


def _columns(shares: Sequence[float | None]) -> str:
    each = _WIDE / max(1, len(shares))
    return "".join(
        f"M{place * each + each * 0.1:.5g} {_HIGH}V{_HIGH - value * _HIGH:.4g}h{each * 0.8:.4g}V{_HIGH}Z"
        for place, value in enumerate(shares)
        if value
    )


def _hints(hints: Sequence[str]) -> list[str]:
    """What is said when a step is pointed at."""
    if len(hints) > MOST_STEPS + 1:
        return []
    each = _WIDE / max(1, len(hints))
    return [
        f'<rect class="hint" x="{place * each:.5g}" width="{each:.5g}" height="{_HIGH}">'
        f"<title>{safe(hint)}</title></rect>"
        for place, hint in enumerate(hints)
    ]


def _times(times: Sequence[str], height: int) -> list[str]:
    last = len(times) - 1
    anchors = ["start" if not place else "end" if place == last else "middle" for place in range(len(times))]
    return [
        f'<text x="{100 * place / max(1, last):.4g}%" y="{height - 3}" text-anchor="{anchor}">{safe(text)}</text>'
        for place, (anchor, text) in enumerate(zip(anchors, times, strict=True))
    ]
