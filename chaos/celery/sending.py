"""The load: plain tasks, some due later, some that retry, groups, chords small and large, and some that take long."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from celery import Celery, chord, group

_GROUP = 20  # tasks of a group, and parts of a small chord
_SOON_S = 15.0  # a task that is due later is so by then


class Load:
    """What was sent: for each id its key and the value it must have. `send` is for one thread, the rest for others."""

    def __init__(self, app: Celery, *, work: float, long: float, seed: int) -> None:
        self.sent: dict[str, tuple[str, Any]] = {}
        self.chords: dict[str, list[str]] = {}  # by the body's key: those of its parts
        self.long: list[str] = []  # keys
        self.stopped = threading.Event()
        self._app = app
        self._work = work
        self._long = long
        self._chance = random.Random(seed)

    def send(self, messages: int) -> None:
        """So many tasks, in a mixed order; the bodies of chords come on top."""
        tenth, long = max(messages // 10, 1), max(messages // 500, 2)
        size = min(_GROUP, tenth)
        steps: list[Callable[[], None]] = [
            *(partial(self._later, number) for number in range(tenth)),
            *(partial(self._retried, number) for number in range(tenth)),
            *(partial(self._group, number, size) for number in range(tenth // size)),
            *(partial(self._chord, number, size) for number in range(tenth // size)),
            partial(self._chord, "large", tenth),
            *(partial(self._takes_long, number) for number in range(long)),
        ]
        steps += [partial(self.plain, number) for number in range(messages - 5 * tenth - long)]
        self._chance.shuffle(steps)
        for step in steps:
            if self.stopped.is_set():
                return
            step()

    def plain(self, number: int) -> None:
        key = f"plain/{number}"
        self._note(key, self._app.send_task("plain", (key, self._seconds())).id, key)

    def _later(self, number: int) -> None:
        key = f"later/{number}"
        due = self._chance.uniform(0.2, _SOON_S)
        self._note(key, self._app.send_task("plain", (key, self._seconds()), countdown=due).id, key)

    def _retried(self, number: int) -> None:
        key = f"retried/{number}"
        times = self._chance.choice((1, 2))
        self._note(key, self._app.send_task("retried", (key, self._seconds(), times)).id, key)

    def _takes_long(self, number: int) -> None:
        key = f"long/{number}"
        self.long.append(key)
        self._note(key, self._app.send_task("plain", (key, self._long)).id, key)

    def _group(self, number: int, size: int) -> None:
        keys = [f"group/{number}/{each}" for each in range(size)]
        result = group(self._parts(keys), app=self._app).apply_async()
        for key, each in zip(keys, result.results, strict=True):
            self._note(key, each.id, key)

    def _chord(self, number: int | str, size: int) -> None:
        key = f"chord/{number}"
        keys = [f"{key}/{each}" for each in range(size)]
        self.chords[key] = keys
        callback = self._app.signature("body", kwargs={"key": key})
        result = chord(self._parts(keys), app=self._app)(callback)
        self._note(key, result.id, sorted(keys))
        for part, each in zip(keys, result.parent.results, strict=True):
            self._note(part, each.id, part)

    def _parts(self, keys: list[str]) -> list[Any]:
        return [self._app.signature("plain", (key, self._seconds())) for key in keys]

    def _note(self, key: str, id: str, value: Any) -> None:
        self.sent[id] = (key, value)

    def _seconds(self) -> float:
        return self._chance.uniform(0.0, 2 * self._work)


class Results:
    """Looked for until all are there."""

    def __init__(self, app: Celery) -> None:
        self._backend: Any = app.backend
        self.found: dict[str, Any] = {}  # by id: state and value of what is ready

    def look(self, ids: list[str]) -> int:
        """How many of them are not ready."""
        left = [id for id in ids if id not in self.found]
        for some in _pages(left):
            for id, data in zip(
                some, self._backend.mget([self._backend.get_key_for_task(id) for id in some]), strict=True
            ):
                meta = None if data is None else self._backend.decode_result(data)
                if meta is not None and meta["status"] in ("SUCCESS", "FAILURE", "REVOKED"):
                    self.found[id] = meta
        return sum(id not in self.found for id in ids)


def _pages(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), 500):  # keys of one look
        yield ids[start : start + 500]
