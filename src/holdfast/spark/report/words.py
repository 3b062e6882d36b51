"""Numbers, spans and instants in words. Pure."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import NamedTuple

from .periods import Period


class Rate(NamedTuple):
    """A unit in which the rates of a page are numbers that people can read."""

    name: str
    seconds: float

    def of(self, count: float, seconds: float) -> float:
        return count * self.seconds / seconds if seconds else 0.0


RATES = (Rate("second", 1.0), Rate("minute", 60.0), Rate("hour", 3600.0))


def rate_for(per_second: float) -> Rate:
    """The smallest unit in which there is one at least."""
    return next((one for one in RATES if per_second * one.seconds >= 1), RATES[-1])


def number(value: float) -> str:
    """1234 as 1,234; 12.53 as 12.5."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:,.3g}"


def duration(seconds: float) -> str:
    """0.0042 as 4.2 ms, 75 as 75 s, 5000 as 83 min."""
    for size, unit, divisor in ((2 * 86400, "d", 86400), (7200, "h", 3600), (120, "min", 60)):
        if seconds >= size:
            return f"{seconds / divisor:.3g} {unit}"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 0.001:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0 s"


def step(seconds: int) -> str:
    return {60: "minute", 3600: "hour", 1: "second"}.get(seconds, duration(seconds))


def share(part: float, whole: float) -> str:
    """In per cent; what is not all, or not nothing, is not said to be."""
    if not whole:
        return ""
    of = 100 * part / whole
    if 99.95 <= of < 100:
        return "over 99.9 %"
    return "under 0.1 %" if 0 < of < 0.1 else f"{of:.3g} %"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def change(now: float, before: float) -> str:
    """Against the period before: +12 %, ×3.5, or from nothing."""
    if not before:
        return "" if not now else "none before"
    if now > 2 * before:
        return f"×{now / before:.3g}"
    of = 100 * (now - before) / before
    return "as before" if abs(of) < 0.5 else f"{of:+.0f} %".replace("-", "\N{MINUS SIGN}")


def when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def exact(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def clock(at: float, period: Period) -> str:
    """As short as the period allows."""
    if period.seconds > 2 * 86400:
        return datetime.fromtimestamp(at, UTC).strftime("%d %b")
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M" if period.seconds > 600 else "%H:%M:%S")


def span(period: Period) -> str:
    """From when to when, the day said once where it is one."""
    form = "%Y-%m-%d %H:%M" if period.seconds > 600 else "%Y-%m-%d %H:%M:%S"
    first, last = (datetime.fromtimestamp(at, UTC).strftime(form) for at in (period.start, period.end))
    return f"{first} to {last[11:] if last[:10] == first[:10] else last} UTC"


def safe(text: str) -> str:
    """As text between tags, and in an attribute."""
    return html.escape(text, quote=True)
