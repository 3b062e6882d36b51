"""How long steps take of late: only what is quick may be done by an event loop itself."""

from __future__ import annotations

from .commit_thread import Work

QUICK = 0.002  # seconds an event loop may be held up: about what a garbage collection takes
QUICK_FILES = 0.004  # by who brings a MiB, and has held it up for a while already
_AT_FIRST = 0.004  # so that some quick ones must come before
_LATEST = 0.2  # what the last one counts
_FADES = 0.95  # a slow one is tried again by and by
_TYPICAL = 1 << 20  # bytes of the files of a step


class Quickness:
    """Means of late: of steps that wait for the disk, of those that do not, and of a byte of the files of a step."""

    def __init__(self) -> None:
        self._lasting = _AT_FIRST
        self._fleeting = 0.0
        self._byte = _AT_FIRST / _TYPICAL

    def note(self, work: Work, seconds: float) -> None:
        """A lone step and its files took so long."""
        if not work.lasting:
            self._fleeting += _LATEST * (seconds - self._fleeting)
        elif work.size:
            self._byte += _LATEST * (seconds / work.size - self._byte)
        else:
            self._lasting += _LATEST * (seconds - self._lasting)

    def expects(self, work: Work) -> bool:
        if work.lasting:
            return work.size * self._byte < QUICK_FILES if work.size else self._lasting < QUICK
        if self._fleeting < QUICK:
            return True
        self._fleeting *= _FADES  # nobody else would find out that they are quick again
        return False
