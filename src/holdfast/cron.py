"""When a schedule is due: the instants of cron text in a time zone, and of intervals. Pure but for the zones' tables.

Cron text is read by `cronsim`. Daylight saving is as in Debian's cron: a job at fixed times (neither its minute nor its
hour begins with `*`) whose time does not exist runs once, right after the gap, and one whose time exists twice runs the
first time; all others go by elapsed time. Six fields (seconds first) follow the same rules as five.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import count, takewhile
from operator import ge
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .errors import ConfigError

if TYPE_CHECKING:
    from cronsim import CronSim

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MINUTE = timedelta(minutes=1)
_DAY_S = 86400  # two changes of an offset are further apart
_WINDOW_S = 60.0  # looked back at first, then twice as much and so on
_GAP_S = 4 * 3600.0  # longer than any change of a clock for daylight saving
EVERY_LEAST_S = 1.0  # a round of a worker is no finer


@lru_cache(1024)
def zone(name: str) -> ZoneInfo:
    """An IANA zone; ConfigError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise ConfigError(
            f"tz: there is no time zone {name!r}; it is a name such as 'Europe/Berlin' (on a system without zones: "
            "pip install tzdata)"
        ) from error


@lru_cache(1024)
def fields(text: str) -> str:
    """Cron text as five or six fields; ConfigError."""
    from cronsim import CronSimError

    if not isinstance(text, str):
        raise ConfigError(f"cron: text, not {text!r}")
    if text.strip().lower() == "@reboot":
        raise ConfigError("cron: @reboot is not a time; enqueue a message when the program starts")
    plain = _NAMED.get(text.strip().lower(), text)
    try:
        next(_sim(plain, datetime(2024, 1, 1, tzinfo=UTC)))
    except StopIteration:
        raise ConfigError(f"cron: {text!r} never comes") from None
    except (CronSimError, AssertionError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise ConfigError(
            f"cron: {text!r} is not understood ({error or type(error).__name__}): five fields such as"
            " '0 9 * * MON-FRI', six with seconds first, or @daily"
        ) from error
    return plain


def _sim(plain: str, start: datetime, *, reverse: bool = False) -> CronSim:
    from cronsim import CronSim

    return CronSim(plain, start, reverse=reverse)


class Times:
    """The instants of a schedule, as seconds since 1970: whole seconds of a calendar, or steps of an interval."""

    def __init__(
        self, *, cron: str | None, every: float | None, tz: str = "UTC", start: float | None, end: float | None
    ) -> None:
        self._plain = fields(cron) if cron is not None else None
        self._every = every or 0.0
        self._zone = zone(tz)
        self._start = -math.inf if start is None else round(start, 3)  # as steps are, or the first would be before it
        self._end = math.inf if end is None else round(end, 3)
        self._anchor = 0.0 if start is None else self._start  # of intervals
        if self._plain is not None:
            parts = self._plain.split()
            self._is_fixed = not parts[-5].startswith("*") and not parts[-4].startswith("*")

    def after(self, instant: float) -> Iterator[float]:
        """Those later than an instant, in order."""
        instant = max(instant, math.nextafter(self._start, -math.inf))
        found = self._steps_after(instant) if self._plain is None else self._cron_after(instant)
        for slot in found:
            if slot > self._end:
                return
            yield slot

    def newest(self, after: float, upto: float, most: int) -> list[float]:
        """The last of those behind one instant and up to another, so many at most, in order."""
        upto = min(upto, self._end)
        if self._plain is None:
            after = max(after, upto - (most + 1) * self._every)
        found: list[float] = []
        end, width = upto, _WINDOW_S
        while end > after and len(found) < most:
            start = max(after, end - width)
            found = [*takewhile(partial(ge, end), self.after(start)), *found]
            end, width = start, 2 * width
        return found[-most:]

    def count(self, after: float, upto: float, most: int) -> int:
        """How many there are; at most so many of a calendar, which has to be gone through."""
        if self._plain is None:
            first = max(after, math.nextafter(self._start, -math.inf))
            return max(0, self._number(min(upto, self._end)) - self._number(first))
        return len(self.newest(after, upto, most))

    # Intervals: counted from `start`, or from 1970, so that they are the same for everybody.

    def _steps_after(self, instant: float) -> Iterator[float]:
        return map(self._step, count(self._number(instant) + 1))

    def _number(self, instant: float) -> int:
        """Of the last step up to an instant."""
        number = math.floor((instant - self._anchor) / self._every)
        while self._step(number + 1) <= instant:
            number += 1
        while self._step(number) > instant:
            number -= 1
        return number

    def _step(self, number: int) -> float:
        return round(self._anchor + number * self._every, 3)

    # The calendar.

    def _cron_after(self, instant: float) -> Iterator[float]:
        return self._fixed_after(instant) if self._is_fixed else self._elapsed_after(instant)

    def _fixed_after(self, instant: float) -> Iterator[float]:
        last = instant
        for local in _sim(self._plain or "", self._local(instant - _GAP_S)):  # what falls into a gap comes after it
            slot = self._instant(local)
            if slot > last:
                last = slot
                yield slot

    def _elapsed_after(self, instant: float) -> Iterator[float]:
        """Every second whose local time fits. From one change of the offset to the next local time is plain."""
        at, offset = math.floor(instant), self._offset(instant)
        while True:
            for local in _sim(self._plain or "", datetime.fromtimestamp(at + offset, UTC).replace(tzinfo=None)):
                slot = local.replace(tzinfo=UTC).timestamp() - offset
                changed = self._changed(at, slot, offset)
                if changed is not None:
                    at, offset = changed - 1, self._offset(changed)  # local times go on from there, or come again
                    break
                at = int(slot)
                yield slot
            else:
                return

    def _changed(self, after: int, upto: float, offset: float) -> int | None:
        """The first second behind `after`, and up to another, at which the zone has another offset."""
        low = after + 1
        if self._offset(low) != offset:
            return low
        while low < upto:
            high = min(low + _DAY_S, int(upto))
            if high <= low:
                return None
            if self._offset(high) != offset:
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
                return high
            low = high
        return None

    def _offset(self, instant: float) -> float:
        shift = datetime.fromtimestamp(instant, self._zone).utcoffset()
        return shift.total_seconds() if shift is not None else 0.0

    def _local(self, instant: float) -> datetime:
        return datetime.fromtimestamp(math.floor(instant), UTC).astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _instant(self, local: datetime) -> float:
        """Of a local time: the first where it exists twice, the end of the gap where it does not exist."""
        moment = local.replace(tzinfo=self._zone)
        if _is_missing(moment):
            moment = moment.replace(second=0)
            while _is_missing(moment):
                moment = (moment.replace(tzinfo=None) + _MINUTE).replace(tzinfo=self._zone)
        return moment.timestamp()


def _is_missing(moment: datetime) -> bool:
    back = moment.astimezone(UTC).astimezone(moment.tzinfo)
    return back.replace(tzinfo=None, fold=0) != moment.replace(tzinfo=None, fold=0)
