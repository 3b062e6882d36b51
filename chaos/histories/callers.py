"""Those who call: threads that do every verb of a queue at random, and write each call down before and after."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import holdfast
from holdfast.sync import Queue

from .calls import Answered, Asked, Given, Log, Outcome, Sighting, Terms, now

R = TypeVar("R")
PRIORITIES = (0, 0, 1, 7, 255)
LEASES = (0.6, 1.0, 2.0, 4.0)  # seconds at scale 1
EXPIRES = (0.3, 1.5, 5.0)  # the same
KEYS = 12  # dedup keys in use: few enough that they meet
KEPT = 60  # ids a caller remembers
MOST_HELD = 12
_TEXT = 300  # characters kept of an error


class Share(msgspec.Struct, frozen=True):
    """A receipt for whoever finds it: another process may settle it."""

    queue: str
    id: str
    token: str
    receipt: str


class Writer:
    """Numbers the calls of one thread and writes both lines of each."""

    def __init__(self, name: str, log: Log) -> None:
        self.name = name
        self._log = log
        self._number = 0

    def asks(self, op: str, queue: str, **more: Any) -> str:
        self._number += 1
        call = f"{self.name}#{self._number}"
        self._log.write(Asked(call=call, began=now(), op=op, queue=queue, **more))
        return call

    def answered(self, call: str, outcome: Outcome, **more: Any) -> None:
        self._log.write(Answered(call=call, ended=now(), outcome=outcome, **more))

    def uid(self) -> str:
        self._number += 1
        return f"{self.name}/{self._number}"


def outcome_of(error: Exception) -> Outcome:
    """What a caller may believe after an error."""
    if isinstance(error, holdfast.LeaseLost):
        return "lost"
    if isinstance(error, holdfast.MessageNotFound):
        return "gone"
    if isinstance(error, holdfast.Unavailable | holdfast.UnknownOutcome):
        return "unknown"
    return "error"


class Caller(threading.Thread):
    """One thread. `rare` is the mean time in seconds between its calls that concern the whole queue."""

    def __init__(
        self, name: str, log: Log, queues: Mapping[str, Queue[Any]], *, shared: Path, seed: str, scale: float,
        rare: float,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True, name=name)
        self._writer = Writer(name, log)
        self._queues = queues
        self._shared = shared
        self._share = Log(shared)
        self._chance = random.Random(seed)
        self._scale = scale
        self._rare = rare
        self._rare_at = now() + self._chance.expovariate(1 / rare)
        self._held: list[tuple[str, holdfast.sync.Delivery[Any]]] = []
        self._known: list[tuple[str, str]] = []
        self._changes = all(queue.core.store.capabilities.changes_messages for queue in queues.values())

    def run(self) -> None:
        while True:
            self.step()

    def step(self) -> None:
        """One thing to do, weighted so that queues stay short and leases run out now and then."""
        name = self._chance.choice(list(self._queues))
        if now() > self._rare_at:
            self._rarely(name)
            return
        known = self._chance.choice(self._known) if self._known else None
        held = len(self._held)
        choices: list[tuple[float, Callable[[], None]]] = [
            (17, lambda: self._enqueue(name)),
            (28 if held < MOST_HELD else 0, lambda: self._dequeue(name)),
            (38 if held else 0, self._settle_held),
            (5 if known else 0, lambda: self._cancel(*known) if known else None),
            (4 if known else 0, lambda: self._get(*known) if known else None),
            (4 if known else 0, lambda: self._take_back(*known) if known else None),
            (5 if known and self._changes else 0, lambda: self._change(*known) if known else None),
            (2, lambda: self._replay(name)),
            (3, self._settle_shared),
            (3, lambda: time.sleep(self._chance.random() * self._scale)),
        ]
        self._chance.choices([do for _, do in choices], [weight for weight, _ in choices])[0]()

    def call(
        self, op: str, queue: str, do: Callable[[], R], show: Callable[[R], dict[str, Any]] = lambda _: {}, **more: Any
    ) -> R | None:
        call = self._writer.asks(op, queue, **more)
        try:
            result = do()
        except Exception as error:  # noqa: BLE001  judged later
            self._writer.answered(call, outcome_of(error), why=repr(error)[:_TEXT])
            return None
        self._writer.answered(call, "ok", **show(result))
        return result

    def _remember(self, queue: str, ids: list[str]) -> None:
        self._known = (self._known + [(queue, id) for id in ids])[-KEPT:]

    # ------------------------------------------------------------------ in and out

    def _enqueue(self, name: str) -> None:
        chance, queue = self._chance, self._queues[name]
        many = chance.random() < 0.3
        terms = Terms(
            priority=chance.choice(PRIORITIES),
            delay=chance.choice((0, 0, 0, 0.5 * self._scale)),
            max_attempts=chance.randint(1, 3) if chance.random() < 0.25 else None,
            dedup_key=f"key{chance.randrange(KEYS)}" if not many and chance.random() < 0.3 else None,
        )
        if terms.dedup_key is None and chance.random() < 0.2:
            terms = msgspec.structs.replace(terms, expires=chance.choice(EXPIRES) * self._scale)
        uids = [self._writer.uid() for _ in range(chance.randint(1, 5) if many else 1)]
        given = {name: value for name, value in msgspec.structs.asdict(terms).items() if value is not None}
        if many:
            ids = self.call(
                "enqueue", name, lambda: queue.enqueue_many([{"u": uid} for uid in uids], **given),
                lambda ids: {"ids": ids}, uids=uids, terms=terms,
            )  # fmt: skip
        else:
            ids = self.call(
                "enqueue", name, lambda: [queue.enqueue({"u": uids[0]}, **given)], lambda ids: {"ids": ids},
                uids=uids, terms=terms,
            )  # fmt: skip
        self._remember(name, ids or [])

    def _dequeue(self, name: str) -> None:
        chance, queue = self._chance, self._queues[name]
        lease, wait, limit = (
            chance.choice(LEASES) * self._scale,
            chance.choice((0, 0, 0.3)),
            chance.choice((1, 1, 1, 5)),
        )

        def take() -> list[holdfast.sync.Delivery[Any]]:
            if limit > 1:
                return queue.dequeue_many(limit, lease=lease, wait=wait)
            one = queue.dequeue(lease=lease, wait=wait)
            return [one] if one is not None else []

        got = self.call("dequeue", name, take, lambda got: {"given": [given(each) for each in got]}, lease=lease)
        for each in got or []:
            self._remember(name, [each.id])
            if chance.random() < 0.1:
                self._share.write(Share(name, each.id, each.token, each.receipt))
            else:
                self._held.append((name, each))

    # ------------------------------------------------------------------ settling

    def _settle_held(self) -> None:
        chance = self._chance
        oldest = chance.random() < 0.2
        name, held = self._held.pop(0 if oldest else chance.randrange(len(self._held)))
        handle = chance.choice((held, held.receipt))
        if self._settle(Share(name, held.id, held.token, held.receipt), handle, chance) == "extend":
            self._held.append((name, held))

    def _settle_shared(self) -> None:
        """Whoever settles a shared receipt settles it in the same way: its token decides."""
        found = list(shares(self._shared))[-20:]
        if found:
            share = self._chance.choice(found)
            self._settle(share, share.receipt, random.Random(share.token))

    def _settle(self, share: Share, handle: Any, chance: random.Random) -> str:
        queue, scale = self._queues[share.queue], self._scale
        op = chance.choices(("complete", "fail", "release", "kill", "extend"), (6, 3, 2, 1, 3))[0]
        more: dict[str, Any] = {"id": share.id, "token": share.token}
        if op == "complete":
            more |= {"keep": chance.choice((None, None, None, False)), "result": f"by {share.token}"}
            self._twice(op, share.queue, lambda: queue.complete(handle, more["result"], keep=more["keep"]), more)
        elif op == "fail":
            more["delay"] = chance.choice((0, 0.2, 1.0)) * scale
            self._twice(op, share.queue, lambda: queue.fail(handle, "some error", retry_in=more["delay"]), more)
        elif op == "release":
            more["delay"] = chance.choice((0, 0, 0.5)) * scale
            self._twice(op, share.queue, lambda: queue.release(handle, more["delay"]), more)
        elif op == "kill":
            self._twice(op, share.queue, lambda: queue.kill(handle, "killed by hand"), more)
        else:
            more["seconds"] = chance.choice((0.2, 1.0, 3.0)) * scale
            extend = lambda: queue.extend(handle, more["seconds"])  # noqa: E731  what is called, as in the others
            self.call(op, share.queue, extend, lambda until: {"number": until.timestamp()}, **more)
        return op

    def _twice(self, op: str, queue: str, do: Callable[[], None], more: dict[str, Any]) -> None:
        """Now and then the same again, with the same token."""
        self.call(op, queue, do, **more)
        if self._chance.random() < 0.15:
            self.call(op, queue, do, again=True, **more)

    # ------------------------------------------------------------------ by id

    def _cancel(self, name: str, id: str) -> None:
        self.call("cancel", name, lambda: self._queues[name].cancel(id), lambda done: {"number": int(done)}, id=id)

    def _take_back(self, name: str, id: str) -> None:
        take = lambda: self._queues[name].take_back(id)  # noqa: E731  what is called, as in the others
        self.call("take_back", name, take, lambda taken: {"number": taken}, id=id)

    def _change(self, name: str, id: str) -> None:
        terms = Terms(
            priority=self._chance.choice(PRIORITIES), delay=self._chance.choice((0, 0, 0.3, 0.8)) * self._scale
        )
        change = lambda: self._queues[name].change(id, priority=terms.priority, delay=terms.delay)  # noqa: E731
        self.call("change", name, change, lambda done: {"number": int(done)}, id=id, terms=terms)

    def _get(self, name: str, id: str) -> None:
        def show(record: Any) -> dict[str, Any]:
            return {"seen": [sighting(record)] if record is not None else []}

        self.call("get", name, lambda: self._queues[name].get(id), show, id=id)

    def _replay(self, name: str) -> None:
        """Some of a page of dead letters or of the archive."""
        view, queue = self._chance.choice(("dead", "archive")), self._queues[name]
        after = self._chance.choice([None, *(id for where, id in self._known if where == name)])
        letters = queue.dead if view == "dead" else queue.archive
        page = self.call(
            "list", name, lambda: letters.list(20, after), lambda page: {"seen": [sighting(each) for each in page]},
            view=view,
        )  # fmt: skip
        if page:
            ids = [each.id for each in self._chance.sample(page, min(len(page), self._chance.choice((1, 1, 1, 3))))]
            self.call("replay", name, lambda: letters.replay(ids), lambda n: {"number": int(n)}, wanted=ids, view=view)

    # ------------------------------------------------------------------ the whole queue

    def _rarely(self, name: str) -> None:
        self._rare_at = now() + self._chance.expovariate(1 / self._rare)
        queue = self._queues[name]
        if self._chance.random() < 0.5:
            self.call("purge", name, queue.purge, lambda n: {"number": n})
            return
        self.call("pause", name, queue.pause)
        time.sleep(self._chance.uniform(0.3, 1.2) * self._scale)
        self.resume(name)

    def resume(self, name: str) -> None:
        """Whoever paused the queue may have been killed: every process begins with this."""
        self.call("resume", name, self._queues[name].resume)


def given(delivery: holdfast.sync.Delivery[Any]) -> Given:
    return Given(
        id=delivery.id, token=delivery.token, attempt=delivery.attempt, max_attempts=delivery.max_attempts,
        priority=delivery.priority, uid=delivery.value["u"], expires=delivery.expires_at.timestamp(),
        origin=(delivery.headers or {}).get("replayed_from", ""),
    )  # fmt: skip


def sighting(record: Any) -> Sighting:
    return Sighting(
        id=record.id, status=record.status, attempts=record.attempts, max_attempts=record.max_attempts,
        uid=record.value["u"], error=record.error, result=record.result,
        origin=(record.headers or {}).get("replayed_from", ""),
    )  # fmt: skip


def shares(path: Path) -> Iterator[Share]:
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=Share)
