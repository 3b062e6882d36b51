"""What this process has settled lately, so that repeating a settlement is success, and no news.

A store knows a repeat as long as it keeps something of the message; of one that is not kept it soon knows nothing.
Here a settlement is a mark of eight bytes: the last hundred thousand of a process take one to three megabytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import get_args

from .stores.records import Action, Answer, Settlement

REMEMBERED_SETTLEMENTS = 100_000  # of this process, at least: what the contract says
_BUCKETS = 4096  # of marks: some twenty in each
_EMPTY = array("q")


class _Generation:
    """Marks of a period, in order; a lookup first sorts those into buckets that came since the last one."""

    def __init__(self) -> None:
        self.marks = array("q")
        self._sorted = 0
        self._buckets: list[array[int]] = []

    def __contains__(self, mark: int) -> bool:
        if self._sorted < len(self.marks):
            self._sort()
        return mark in (self._buckets[mark % _BUCKETS] if self._buckets else _EMPTY)

    def _sort(self) -> None:
        buckets = self._buckets or [array("q") for _ in range(_BUCKETS)]
        until = len(self.marks)
        for mark in self.marks[self._sorted : until]:
            buckets[mark % _BUCKETS].append(mark)
        self._sorted, self._buckets = until, buckets


class Marks:
    """At least the last so many marks, at most half as many more.

    Threads share it without a lock, which a fork could leave locked: every step that matters is one of the
    interpreter's, and should two begin a generation at the same time, one may lose what it is just noting.
    """

    def __init__(self, least: int = REMEMBERED_SETTLEMENTS) -> None:
        self._half = -(-least // 2)
        self._generations: tuple[_Generation, ...] = (_Generation(),)

    def add(self, marks: list[int]) -> None:
        newest, *older = self._generations
        if len(newest.marks) >= self._half:
            self._generations = (_Generation(), newest, *older[:1])
        self._generations[0].marks.extend(marks)

    def __contains__(self, mark: int) -> bool:
        return any(mark in generation for generation in self._generations)


_SETTLED = Marks()  # by this process, whatever the queue, store and broker


class Repeats:
    """The settlements of one queue. `place` tells its store from the others of this process."""

    def __init__(self, place: object, queue: str, marks: Marks = _SETTLED) -> None:
        self._marks = marks
        self._seeds = {action: hash((place, queue, action)) for action in get_args(Action)}

    def note(self, settlements: Iterable[Settlement]) -> None:
        """These have just succeeded."""
        self._marks.add(self._marked(settlements))

    def among(self, settlements: Iterable[Settlement], answers: Iterable[Answer]) -> set[int]:
        """The indexes of repeats: the same decision over the same message by the same token succeeded before.

        That may have been earlier in the same call.
        """
        repeated: set[int] = set()
        here: set[int] = set()
        for index, (mark, answer) in enumerate(zip(self._marked(settlements), answers, strict=True)):
            if mark in here or mark in self._marks:
                repeated.add(index)
            elif answer == "ok":
                here.add(mark)
        return repeated

    def _marked(self, settlements: Iterable[Settlement]) -> list[int]:
        seeds = self._seeds
        return [hash((seeds[each.action], each.id, each.token)) for each in settlements]
