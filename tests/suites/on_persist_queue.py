"""persist-queue's tests of queues with acknowledgements: the queue is one of ours.

A get is a claim under a long lease, ack completes and keeps, nack releases, ack_failed kills; what nobody has
acknowledged is taken back (`take_back`) when the queue is opened again. What is asked for by its number is found by
claiming what waits and giving the rest back.
"""

from __future__ import annotations

import hashlib
import os
import time
from itertools import count
from typing import Any

import persistqueue.sqlackqueue
from persistqueue import Empty
from persistqueue.serializers import pickle as serializer

from holdfast import sync
from holdfast.deliveries import Delivery, Record

BROKER = sync.connect(os.environ["SUITE_URL"])
LEASE_S = 3600.0  # longer than any test
ATTEMPTS = 1000  # more than any test makes
PAGE = 1000
LONG_POLL_S = 10.0
_numbers = count(1)  # of queues in memory: each is a new one


class AckQueue:
    kind = "ack"
    unique = False

    def __init__(self, path: str, auto_resume: bool = True, **options: Any) -> None:
        name = f"{path}{next(_numbers)}" if path == ":memory:" else path
        place = f"{self.kind}-{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}"
        self._queue: sync.Queue[bytes] = BROKER.queue(place, bytes, max_attempts=ATTEMPTS, archive=True)
        self._serializer = serializer
        self._held: dict[int, tuple[Delivery[bytes], Any]] = {}  # by number
        known = [*self._listed("ready"), *self._listed("processing")]
        self._last = max(map(number_of, known), default=0)
        self._ids: dict[int, str] = {}
        if auto_resume:
            self.resume_unack_tasks()

    def _listed(self, state: Any) -> list[Record[bytes]]:
        found: list[Record[bytes]] = []
        while page := self._queue.list(state, PAGE, found[-1].id if found else None):
            found += page
        return found

    # In and out.

    def put(self, item: Any) -> int:
        data = self._serializer.dumps(item)
        self._last += 1
        number = self._last
        terms: dict[str, Any] = {"headers": {"number": str(number)}}
        if self.unique:
            terms |= {"dedup_key": hashlib.blake2b(data).hexdigest(), "dedup": "alive"}
        self._ids[number] = self._queue.enqueue(data, **terms)
        return number

    def get(
        self, block: bool = True, timeout: float | None = None, id: int | None = None, next_in_order: bool = False,
        raw: bool = False,
    ) -> Any:  # fmt: skip
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        until = time.monotonic() + (0.0 if not block else float("inf") if timeout is None else timeout)
        while True:
            left = until - time.monotonic()
            delivery = self._chosen(id, next_in_order) if id else self._queue.dequeue(
                lease=LEASE_S, wait=max(0.0, min(left, LONG_POLL_S))
            )  # fmt: skip
            if delivery is not None:
                return self._hold(delivery, raw)
            if time.monotonic() >= until:
                raise Empty

    def _hold(self, delivery: Delivery[bytes], raw: bool) -> Any:
        number, item = number_of(delivery), self._serializer.loads(delivery.value)
        self._held[number] = delivery, item
        return {"pqid": number, "data": item, "timestamp": delivery.enqueued_at.timestamp()} if raw else item

    def _chosen(self, number: int, next_in_order: bool) -> Delivery[bytes] | None:
        """The one of this number, or the next one, and after the last the first."""
        claimed = self._queue.dequeue_many(PAGE, lease=LEASE_S)
        in_order = sorted(claimed, key=number_of)
        if next_in_order:
            wanted = next((each for each in in_order if number_of(each) > number), in_order[0] if in_order else None)
        else:
            wanted = next((each for each in in_order if number_of(each) == number), None)
        self._queue.release_many([each for each in claimed if each is not wanted])
        return wanted

    # What is said of an item.

    def ack(self, item: Any = None, id: int | None = None) -> int | None:
        return self._say(item, id, lambda delivery: delivery.complete(keep=True))

    def nack(self, item: Any = None, id: int | None = None) -> int | None:
        return self._say(item, id, lambda delivery: delivery.release())

    def ack_failed(self, item: Any = None, id: int | None = None) -> int | None:
        return self._say(item, id, lambda delivery: delivery.kill("ack failed"))

    def _say(self, item: Any, id: int | None, word: Any) -> int | None:
        number = id if id is not None else self._number(item)
        if number not in self._held:
            return None
        word(self._held.pop(number)[0])
        return number

    def _number(self, item: Any) -> Any:
        if isinstance(item, dict) and "pqid" in item:
            return item["pqid"]
        return next((number for number, (_, known) in self._held.items() if known is item), None)

    def update(self, item: Any, id: int | None = None) -> int | None:
        if isinstance(item, dict) and "pqid" in item:
            id, item = item["pqid"], item["data"]
        assert id is not None
        self._queue.change(self._ids[id], value=self._serializer.dumps(item))
        return id

    def resume_unack_tasks(self) -> None:
        self._queue.take_back([each.id for each in self._listed("processing")])

    # What is there.

    @property
    def size(self) -> int:
        stats = self._queue.stats()
        return stats.pending + stats.retry

    def __len__(self) -> int:
        return self.size

    def qsize(self) -> int:
        return self.size

    ready_count = qsize

    def empty(self) -> bool:
        return self.size == 0

    def full(self) -> bool:
        return False

    def active_size(self) -> int:
        return self.size + len(self._held)

    def unack_count(self) -> int:
        return self._queue.stats().processing

    def acked_count(self) -> int:
        return self._queue.archive.count()

    def ack_failed_count(self) -> int:
        return self._queue.dead.count()

    def queue(self) -> list[dict[str, Any]]:
        return [{"id": number_of(each), "data": self._serializer.loads(each.value)} for each in self._listed("ready")]

    def clear_acked_data(self, max_delete: int = 1000, keep_latest: int = 1000, clear_ack_failed: bool = False) -> None:
        done: list[str] = []
        while page := self._queue.archive.list(PAGE, done[-1] if done else None):
            done += [each.id for each in page]
        self._queue.archive.delete(done[: len(done) - keep_latest][:max_delete])

    def shrink_disk_usage(self) -> None:
        BROKER.maintain()


class UniqueQueue(AckQueue):
    kind = "unique"
    unique = True


def number_of(message: Any) -> int:
    return int(message.headers["number"])


persistqueue.sqlackqueue.SQLiteAckQueue = AckQueue
persistqueue.sqlackqueue.FILOSQLiteAckQueue = type("LastFirst", (AckQueue,), {"kind": "filo"})
persistqueue.sqlackqueue.UniqueAckQ = UniqueQueue
