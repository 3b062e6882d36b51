"""huey's tests: where they make a huey in memory, its storage is a store of ours.

Tasks, scheduled tasks and results are messages in three queues; counters are values. huey takes a task out for good, so
here a claim is completed at once. A result is found by its dedup key, which holds as long as the message lives.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import uuid4

import huey.api
from huey.constants import EmptyData
from huey.storage import BaseStorage

from holdfast import sync
from holdfast.deliveries import Record
from holdfast.loop_thread import portal
from holdfast.stores.values import ABSENT

BROKER = sync.connect(os.environ["SUITE_URL"])
PAGE = 1000
LONGEST_LIFE_S = 86400.0


class HoldfastStorage(BaseStorage):
    def __init__(self, name: str = "huey", **options: Any) -> None:
        super().__init__(name)
        self._place = f"h{uuid4().hex[:16]}"  # a storage in memory is empty when it is made
        self._tasks = self._queue("tasks")
        self._schedule = self._queue("schedule")
        self._results = self._queue("results")
        self._counters: dict[str, int] = {}  # of this storage, as they were last; one of huey's tests looks here

    def _queue(self, name: str) -> sync.Queue[bytes]:
        return BROKER.queue(f"{self._place}-{name}", bytes, archive=False)

    # Tasks.

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        self._tasks.enqueue(data, priority=int(priority or 0))

    def dequeue(self) -> bytes | None:
        delivery = self._tasks.dequeue()
        if delivery is None:
            return None
        delivery.complete()
        return delivery.value

    def queue_size(self) -> int:
        return self._tasks.stats().pending

    def enqueued_items(self, limit: int | None = None) -> list[bytes]:
        return [record.value for record in self._tasks.peek(limit or PAGE)]

    def flush_queue(self) -> None:
        self._tasks.purge()

    # Scheduled tasks: whoever reads them says what time it is.

    def add_to_schedule(self, data: bytes, ts: datetime) -> None:
        self._schedule.enqueue(data, headers={"due": ts.isoformat()})

    def _scheduled(self) -> list[tuple[datetime, bytes, str]]:
        waiting = every(self._schedule)
        return sorted((datetime.fromisoformat(each.headers["due"]), each.value, each.id) for each in waiting)

    def read_schedule(self, ts: datetime) -> list[bytes]:
        due = [(data, id) for at, data, id in self._scheduled() if at <= ts]
        return [data for data, id in due if self._schedule.cancel(id)]

    def schedule_size(self) -> int:
        return self._schedule.stats().pending

    def scheduled_items(self, limit: int | None = None) -> list[bytes]:
        return [data for _, data, _ in self._scheduled()][: limit or None]

    def flush_schedule(self) -> None:
        self._schedule.purge()

    # Results.

    def put_data(self, key: str | bytes, value: bytes, is_result: bool = False) -> None:
        self._results.enqueue(value, headers={"key": text(key)}, dedup_key=text(key), dedup="alive", replace=True)

    def put_if_empty(self, key: str | bytes, value: bytes, ttl: float | None = None) -> bool:
        name = text(key)
        made = self._results.enqueue(value, headers={"key": name}, dedup_key=name, dedup="alive", report=True)
        return made.new

    def _found(self, key: str | bytes) -> Record[bytes] | None:
        return next((each for each in every(self._results) if each.headers["key"] == text(key)), None)

    def peek_data(self, key: str | bytes) -> Any:
        found = self._found(key)
        return EmptyData if found is None else found.value

    def pop_data(self, key: str | bytes) -> Any:
        found = self._found(key)
        return found.value if found is not None and self._results.cancel(found.id) else EmptyData

    def has_data_for_key(self, key: str | bytes) -> bool:
        return self._found(key) is not None

    def result_store_size(self) -> int:
        return len(every(self._results))

    def result_items(self) -> dict[str, bytes]:
        return {each.headers["key"]: each.value for each in every(self._results)}

    def flush_results(self) -> None:
        self._results.purge()

    # Counters.

    def incr(self, key: str, amount: int = 1) -> int:
        count = self._counters[text(key)] = changed(self._counter(key), lambda count: count + amount)
        return count

    def _counter(self, key: str) -> str:
        return f"{self._place}/{text(key)}"

    def delete_counter(self, key: str) -> None:
        self._counters.pop(text(key), None)
        portal().run(values().delete([self._counter(key)]))

    def flush_counters(self) -> None:
        for key in list(self._counters):
            self.delete_counter(key)


def text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


def every(queue: sync.Queue[bytes]) -> list[Record[bytes]]:
    """Everything that waits in it."""
    found: list[Record[bytes]] = []
    while page := queue.list("ready", PAGE, found[-1].id if found else None):
        found += page
    return found


def values() -> Any:
    return BROKER.core.store.values


def changed(key: str, change: Callable[[int], int]) -> int:
    """Compare and set until nobody was faster."""
    while True:
        [found] = portal().run(values().get([key]))
        count = change(0 if found is None else int(found.data))
        expected = ABSENT if found is None else found.version
        put = values().put(key, str(count).encode(), expected=expected, expires_in=LONGEST_LIFE_S)
        if portal().run(put) is not None:
            return count


huey.api.MemoryHuey.storage_class = HoldfastStorage
