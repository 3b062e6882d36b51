"""One chart, drawn by hand as SVG: horizontal bars on a logarithmic scale, one block per load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

from .show import rate

_WIDTH, _LEFT, _RIGHT = 960, 230, 110
_BAR, _GAP, _BLOCK = 20, 6, 44
_COLOURS = {"holdfast": "#1f6f5c", "peer": "#8a97a6", "raw": "#c9a227"}


class Stripe(msgspec.Struct, frozen=True):
    """One bar; `kind` is holdfast, peer or raw; low and high are the spread of the repeats."""

    name: str
    kind: str
    value: float
    low: float
    high: float


def draw(title: str, blocks: Sequence[tuple[str, Sequence[Stripe]]], footer: str) -> str:
    """The picture as text."""
    values = [edge for _, stripes in blocks for s in stripes for edge in (s.low, s.high) if edge > 0]
    floor = 10 ** math.floor(math.log10(min(values, default=1.0)))
    ceiling = max(max(values, default=10.0), floor * 10)
    parts, top = [_text(16, 28, title, size=18, weight="bold")], 48
    for label, stripes in blocks:
        parts.append(_text(16, top + 22, label, size=14, weight="bold"))
        top += _BLOCK - 8
        for stripe in stripes:
            parts += _stripe(stripe, top, floor, ceiling)
            top += _BAR + _GAP
        top += 8
    parts.append(_text(16, top + 22, footer, size=11, colour="#666"))
    height = top + 40
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        f' role="img" aria-label="{escape(title)}"><rect width="100%" height="100%" fill="#fff"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _stripe(stripe: Stripe, top: int, floor: float, ceiling: float) -> list[str]:
    def x(value: float) -> float:
        share = math.log10(max(value, floor) / floor) / math.log10(ceiling / floor)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    middle, colour = top + _BAR / 2, _COLOURS[stripe.kind]
    width = max(1.0, x(stripe.value) - _LEFT)
    return [
        _text(_LEFT - 8, middle + 4, stripe.name, anchor="end"),
        f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>',
        f'<line x1="{x(stripe.low):.1f}" x2="{x(stripe.high):.1f}" y1="{middle}" y2="{middle}" stroke="#222"/>',
        _text(x(stripe.high) + 6, middle + 4, f"{rate(stripe.value)}/s"),
    ]


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    weight: str = "normal",
    anchor: str = "start",
    colour: str = "#222",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="system-ui, sans-serif" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
    )
