"""One who claims in batches, as a stream of Spark does: owned, numbered, the same messages until they are settled."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

import holdfast
from holdfast.stores.batches import Batch, Batches, BatchLost, Ownership, batches_of
from holdfast.stores.records import Settlement

from .callers import Writer, outcome_of
from .calls import LEFT, Given, Log, Outcome

R = TypeVar("R")
CONSUMER = "stream"
_TEXT = 300


class Stream(threading.Thread):
    """A thread with a loop and a broker of its own. It becomes the owner, works on some batches, and begins again."""

    def __init__(self, name: str, log: Log, url: str, queue: str, *, seed: str, scale: float) -> None:
        super().__init__(daemon=True, name=name)
        self._writer = Writer(name, log)
        self._url = url
        self._queue = queue
        self._chance = random.Random(seed)
        self._scale = scale

    def run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        async with holdfast.connect(self._url) as broker:
            while True:
                await self._own(broker, batches_of(broker.store))

    async def call(
        self, op: str, do: Callable[[], Awaitable[R]], show: Callable[[R], dict[str, Any]] = lambda _: {}, **more: Any
    ) -> R | None:
        call = self._writer.asks(op, self._queue, **more)
        try:
            result = await do()
        except Exception as error:  # noqa: BLE001  judged later
            refused = isinstance(error, holdfast.Fenced | BatchLost) or LEFT in str(error)
            outcome: Outcome = "refused" if refused else outcome_of(error)
            self._writer.answered(call, outcome, why=repr(error)[:_TEXT])
            return None
        self._writer.answered(call, "ok", **show(result))
        return result

    async def _own(self, broker: holdfast.Broker, batches: Batches) -> None:
        lease = self._chance.choice((1.0, 3.0)) * self._scale
        owner = await self.call(
            "own",
            lambda: batches.own(self._queue, CONSUMER, holder=self._writer.name, lease=lease),
            lambda owner: {"generation": owner.generation, "epoch": owner.epoch, "batch": owner.done},
            lease=lease,
        )
        if owner is None:
            await asyncio.sleep(self._chance.random() * self._scale)
            return
        done = owner.done
        for _ in range(self._chance.randint(1, 8)):
            found = await self._batch(broker, batches, owner, done)
            if found is None:
                break
            done = found
        await self._leave(batches, owner)

    async def _batch(self, broker: holdfast.Broker, batches: Batches, owner: Ownership, done: int) -> int | None:
        """Claim the next, read it, and settle it or leave that to the next claim; the last one that is done."""
        name: dict[str, Any] = {"generation": owner.generation, "epoch": owner.epoch}
        limit, at = self._chance.randint(1, 6), [0.0]

        async def claim() -> Batch | None:
            found = await batches.claim_batch(owner, after=done, limit=limit)
            at[0] = await broker.store.clock()
            return found

        def show(found: Batch | None) -> dict[str, Any]:
            return {"number": at[0], "batch": found.seq if found is not None else 0}

        found = await self.call("claim batch", claim, show, batch=done, **name)
        if found is None:
            await asyncio.sleep(0.2)
            return None
        rows = await self.call(
            "read batch",
            lambda: _rows(batches, owner, found.seq),
            lambda rows: {"given": rows},
            batch=found.seq,
            **name,
        )
        for row in rows or []:
            if self._chance.random() < 0.15:
                await self._settle_row(broker, row)
        if self._chance.random() < 0.4 and rows is not None:  # what nobody planned to read is refused
            await self.call("settle batch", lambda: batches.settle_batch(owner, found.seq), batch=found.seq, **name)
        await asyncio.sleep(self._chance.random() * 0.3 * self._scale)
        return found.seq if rows is not None else None

    async def _settle_row(self, broker: holdfast.Broker, row: Given) -> None:
        """A message of a batch can have an end of its own."""
        op, action = self._chance.choice((("fail", "retry"), ("kill", "dead"), ("release", "release")))
        delay = 0.3 * self._scale if op == "fail" and row.attempt < row.max_attempts else 0.0
        if op == "fail" and row.attempt >= row.max_attempts:
            action = "dead"
        wanted = Settlement(row.id, row.token, action, delay=delay, error="" if op == "release" else "by the stream")  # type: ignore[arg-type]  # one of the actions

        async def settle() -> None:
            (answer,) = await broker.store.settle(self._queue, [wanted])
            if answer != "ok":
                raise holdfast.LeaseLost(answer)

        await self.call(op, settle, id=row.id, token=row.token, delay=delay)

    async def _leave(self, batches: Batches, owner: Ownership) -> None:
        """As a query that was stopped, as one that died, or with everything given back."""
        name: dict[str, Any] = {"generation": owner.generation, "epoch": owner.epoch}
        dice = self._chance.random()
        if dice < 0.5:
            await self.call("beat", lambda: batches.beat(owner, 0.0), lease=0.0, **name)
        elif dice < 0.6:
            await self.call("release batches", lambda: batches.release(self._queue, CONSUMER, force=True), **name)
        await asyncio.sleep(self._chance.random() * self._scale)


async def _rows(batches: Batches, owner: Ownership, seq: int) -> list[Given]:
    _, slices = await batches.manifest(owner, seq - 1, seq)
    rows: list[Given] = []
    for each in slices:
        async for part in batches.read_slice(each):
            rows += [_given(row) for row in part.to_pylist()]
    return rows


def _given(row: dict[str, Any]) -> Given:
    return Given(
        id=row["id"], token=row["token"], attempt=row["attempt"], max_attempts=row["max_attempts"],
        priority=row["priority"], uid=msgspec.json.decode(row["value"])["u"],
        origin=dict(row["headers"] or ()).get("replayed_from", ""),
    )  # fmt: skip
