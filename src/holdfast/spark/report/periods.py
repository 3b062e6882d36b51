"""The time that a report is of, and the steps it is cut into. Pure. Instants are seconds since 1970."""

from __future__ import annotations

import math

import msgspec

STEPS_S = (1, 5, 15, 60, 300, 900, 3600)  # that people count in; an hour at most, or a day would have no shape
MOST_STEPS = 200  # finer ones cannot be told apart in a chart
TICK_S = 1e-6  # what stores tell instants by


class Period(msgspec.Struct, frozen=True):
    """From `start` until before `end`, in steps of so many seconds; the first and the last may be cut short."""

    start: float
    end: float
    step: int

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def origin(self) -> int:
        """Where the first step begins: on a full one, as clocks show them."""
        return math.floor(self.start / self.step) * self.step

    @property
    def steps(self) -> int:
        return max(1, math.ceil((self.end - self.origin) / self.step - TICK_S))

    def place(self, at: float) -> int:
        """The step that an instant is in."""
        return min(max(int((at - self.origin) // self.step), 0), self.steps - 1)

    def at(self, place: int) -> float:
        """When a step begins."""
        return float(self.origin + place * self.step)


def period_of(start: float, end: float) -> Period:
    """In the finest steps that a chart can show."""
    end = max(end, start + TICK_S)
    step = next((size for size in STEPS_S if (end - start) / size <= MOST_STEPS), STEPS_S[-1])
    return Period(start, end, step)


def start_of_all(first_came: float, first_ended: float, last_ended: float) -> float:
    """Where a report of everything begins: with the first arrival, but a message that waited for long counts little."""
    return max(min(first_came, first_ended), first_ended - (last_ended - first_ended) - 1.0)
