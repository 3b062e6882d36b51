"""Callers that send, take, complete and kill, and remember what they were told and when."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import holdfast
from holdfast.sync import Broker, Delivery, Queue

QUEUE = "restored"
LEASE = 3.0  # seconds: what nobody finished comes back soon
_GRACE = 30.0  # seconds in which a thread must end


class Load:
    """While the context lasts, or until `stop`. Instants are by the monotonic clock."""

    def __init__(self, broker: Broker, *, seed: int, pause: float, large: int = 100_000) -> None:
        self._queue: Queue[Any] = broker.queue(QUEUE, create=False)
        self._seed = seed
        self._pause = pause  # seconds at most between two calls of a thread
        self._large = large  # bytes of every fourth message
        self._over = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._threads = [
            threading.Thread(target=self._repeat, args=(do, number), daemon=True)
            for number, do in enumerate((self._send, self._send, self._work, self._work))
        ]
        self.sent: dict[str, float] = {}  # when the sender was told so
        self.asked: dict[str, float] = {}  # when somebody began to end it
        self.ended: dict[str, float] = {}  # when that was acknowledged
        self.taken: list[tuple[str, float]] = []  # when the call began that gave it out
        self.errors: list[str] = []
        self.unanswered: list[str] = []  # calls that a busy machine left without an answer in time
        self.unclear = 0  # messages that were sent by them

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Nothing new meanwhile: what is looked at does not grow with the time that the look takes."""
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()

    def stop(self) -> None:
        self._over.set()
        self._goes_on.set()
        for thread in self._threads:
            thread.join(_GRACE)

    def _repeat(self, do: Callable[[random.Random], None], number: int) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        while not self._over.is_set():
            try:
                do(chance)
            except (holdfast.Unavailable, holdfast.UnknownOutcome) as error:
                self.unanswered.append(repr(error)[:300])
            except holdfast.HoldfastError as error:
                self.errors.append(repr(error)[:300])
            self._over.wait(self._pause * chance.random())
            self._goes_on.wait()

    def _send(self, chance: random.Random) -> None:
        values = [{"body": "x" * chance.choice((10, 10, 10, self._large))} for _ in range(chance.randint(1, 6))]
        try:
            ids = self._queue.enqueue_many(values, priority=chance.choice((0, 7)), delay=chance.choice((0, 0, 0, 1)))
        except holdfast.UnknownOutcome:  # they may be there or not
            self.unclear += len(values)
            raise
        self.sent |= dict.fromkeys(ids, time.monotonic())

    def _work(self, chance: random.Random) -> None:
        """About half of what is sent: the rest waits for the copy."""
        began = time.monotonic()
        for delivery in self._queue.dequeue_many(2, lease=LEASE):
            self.taken.append((delivery.id, began))
            try:
                self._end(delivery, chance.random())
            except holdfast.LeaseLost:
                if time.monotonic() - began < LEASE:  # else the machine is busy, and it came back as it should
                    raise

    def _end(self, delivery: Delivery[Any], dice: float) -> None:
        if dice < 0.1:
            delivery.fail("again", retry_in=0.5)
        elif dice < 0.9:
            self.asked.setdefault(delivery.id, time.monotonic())
            if dice < 0.2:
                delivery.kill("by hand")
            else:
                delivery.complete({"done": True})
            self.ended[delivery.id] = time.monotonic()
