"""Numbers: rates, percentiles, medians with their spread, and sides that take turns."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from statistics import median
from typing import TypeAlias

import msgspec

PROGRESS_S = 0.25  # between two words of progress; more of them would be part of what is measured


class Latency(msgspec.Struct, frozen=True):
    """Seconds a call took."""

    count: int
    p50: float
    p95: float
    p99: float
    max: float


def latency(seconds: Iterable[float]) -> Latency | None:
    """The usual percentiles, by nearest rank; None when nothing was measured."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    p50, p95, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.50, 0.95, 0.99))
    return Latency(len(ordered), p50, p95, p99, ordered[-1])


class Sample(msgspec.Struct, frozen=True):
    """One measurement: so many units of work in so many seconds. A cost has one unit."""

    units: float
    seconds: float

    @property
    def rate(self) -> float:
        return self.units / self.seconds if self.seconds > 0 else 0.0


class Side(msgspec.Struct, frozen=True):
    """One of the things that are compared; `run` makes its own room and cleans it up outside the measured time."""

    name: str
    run: Callable[[], Awaitable[Sample]]


class Result(msgspec.Struct, frozen=True):
    """A side after its repeats: the median and how far the repeats lie apart."""

    name: str
    median: float
    low: float
    high: float
    samples: list[float]

    @classmethod
    def of(cls, name: str, samples: Sequence[float]) -> Result:
        return cls(name, median(samples), min(samples), max(samples), list(samples))


Note: TypeAlias = Callable[[str], None]


async def alternate(sides: Sequence[Side], repeats: int, note: Note = lambda _: None) -> list[Result]:
    """Rates of the sides, taking turns, in the other direction each time: a noisy minute hits both."""
    rates: list[list[float]] = [[] for _ in sides]
    for repeat in range(repeats):
        places = range(len(sides)) if repeat % 2 == 0 else reversed(range(len(sides)))
        for place in places:
            note(f"{sides[place].name} ({repeat + 1}/{repeats})")
            rates[place].append((await sides[place].run()).rate)
    return [Result.of(side.name, samples) for side, samples in zip(sides, rates, strict=True)]


class Stopwatch:
    """Seconds since it was made, and lap times."""

    def __init__(self) -> None:
        self._start = self._lap = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._lap = self._lap, time.perf_counter()
        return self._lap - before
