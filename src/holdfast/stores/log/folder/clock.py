"""The folder's clock: time since boot, anchored once per boot, so that steps of the wall clock move nothing.

A boot goes on where the one before was last seen. `apart` is how far the clock was ahead of the wall clock then: there
is none in stores of earlier versions, which took the two for the same.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import apsw

from ..calendar import Calendar, Reckoning
from ..machine_clock import boot_id, since_boot, wall_clock

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS clock (boot TEXT PRIMARY KEY, ahead REAL NOT NULL, latest REAL NOT NULL, "
    "apart REAL, begun REAL)"
)
MARK_INTERVAL = 60.0


def complete(connection: apsw.Connection) -> None:
    """Bring the table of an earlier version up to date. Needs a write transaction."""
    known = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('clock')")}
    for name in ("apart", "begun"):
        if name not in known:
            connection.execute(f"ALTER TABLE clock ADD COLUMN {name} REAL")


class _Boot(NamedTuple):
    """Instants of the store's clock, and by how much it was ahead of the wall clock and of the one since boot."""

    begun: float  # 0: not known
    latest: float
    apart: float
    ahead: float


def _boots(connection: apsw.Connection, which: str, boot: str) -> list[_Boot]:
    rows = connection.execute(
        f"SELECT ifnull(begun, 0.0), latest, ifnull(apart, 0.0), ahead FROM clock WHERE {which} ORDER BY latest",  # nosec B608 # ours
        (boot,),
    )
    return [_Boot(*map(float, row)) for row in rows]


class FolderClock:
    """Seconds that only count up, the same for everybody who shares the folder; see `../calendar.py`."""

    def __init__(self, boot: str, ahead: float, *, ticks: Callable[[], float], reckoning: Reckoning) -> None:
        self._boot = boot
        self._ahead = ahead
        self._ticks = ticks
        self.calendar = reckoning
        self._marked = reckoning()
        self._next_mark = self.now() + MARK_INTERVAL

    @classmethod
    def given(cls, ticks: Callable[[], float]) -> FolderClock:
        """A test's own, which is wall clock and boot at once."""
        return cls("given", 0.0, ticks=ticks, reckoning=Reckoning(ticks, ticks))

    @classmethod
    def anchored(
        cls,
        connection: apsw.Connection,
        *,
        boot: str | None = None,
        wall: Callable[[], float] | None = None,
        ticks: Callable[[], float] | None = None,
    ) -> FolderClock:
        """The clock of this boot; the first to come sets it. Needs a write transaction."""
        boot, wall, ticks = boot or boot_id(), wall or wall_clock, ticks or since_boot
        before = _boots(connection, "boot <> ?", boot)
        current = _boots(connection, "boot = ?", boot)
        if not current:
            start = started((before[-1].latest, before[-1].apart) if before else None, wall())
            current = [_Boot(start, start, start - wall(), start - ticks())]
            connection.execute(
                "INSERT INTO clock (boot, ahead, latest, apart, begun) VALUES (?, ?, ?, ?, ?)",
                (boot, current[0].ahead, start, current[0].apart, start),
            )
        ahead = current[0].ahead
        # A boot lasted until the next one began: its last minute was not noted.
        ends = [later.begun or each.latest for each, later in pairwise([*before, *current])]
        earlier = tuple((end, each.apart) for end, each in zip(ends, before, strict=True))
        return cls(boot, ahead, ticks=ticks, reckoning=Reckoning(lambda: ticks() + ahead, wall, earlier))

    def now(self) -> float:
        return self._ticks() + self._ahead

    def mark(self, connection: apsw.Connection, now: float, calendar: Calendar) -> None:
        """Now and then, inside a commit that happens anyway: how far this boot has come, by both clocks."""
        if now >= self._next_mark or calendar is not self._marked:
            self._next_mark, self._marked = now + MARK_INTERVAL, calendar
            connection.execute(
                "UPDATE clock SET latest = max(latest, ?), apart = ? WHERE boot = ?",
                (now, calendar.ahead, self._boot),
            )


def started(before: tuple[float, float] | None, wall: float) -> float:
    """Where the clock goes on in a new boot, from where it was last seen and how far it was ahead of the wall clock.

    The time in between is what the wall clock says. It is never negative, or leases and delays of an earlier boot would
    start over.
    """
    if before is None:
        return wall
    latest, ahead = before
    return latest + max(0.0, wall - (latest - ahead))
