"""A shop with a past: a lake of twelve hours with an incident in it, and the store it was filled from."""

from __future__ import annotations

import asyncio
import math
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast
from holdfast.spark.jobs.store import place_of
from holdfast.spark.lake import Change, Lake
from holdfast.spark.lake.lake import marked
from holdfast.spark.lake.tables import MESSAGES, PARTITIONS, arrow_schema, as_table
from holdfast.spark.lake.writing import Writer

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
TRACE = (
    "CardError: declined by issuer (code {})\n"
    '  File "/srv/shop/tasks.py", line 88, in charge\n    receipt = gateway.charge(order.card, order.amount)\n'
    '  File "/srv/shop/gateway.py", line 41, in charge\n    raise CardError(f"declined by issuer (code {{code}})")'
)
TIMEOUT = (
    "TimeoutError: the gateway did not answer within 30 s\n"
    '  File "/srv/shop/gateway.py", line 35, in charge\n    answer = self.http.post(self.url, timeout=30)'
)
HOUR = 3600.0
HOURS = 6  # of the period, and of the one before
QUEUES = ("payments", "emails", "thumbnails", "clicks")
_A_MINUTE = {"payments": 9.0, "emails": 22.0, "thumbnails": 6.0, "clicks": 0.0}
_RUN_S = {"payments": 0.4, "emails": 0.05, "thumbnails": 1.8, "clicks": 0.002}


def fill(folder: Path, now: float, *, scale: float = 1.0, note: str = SCRIPT) -> tuple[str, Lake]:
    """The store's URL, and the lake as it was a quarter of an hour before `now`; `note` is what a stranger wrote."""
    url = (folder / "shop").as_uri()
    asyncio.run(_store(url))
    end = now - 900
    start = end - 2 * HOURS * HOUR
    chance = random.Random(7)
    rows = [row for queue in QUEUES[:3] for row in _messages(queue, start, end, chance, scale, note)]
    rows += _clicks(start, end, chance, scale)
    lake = Lake(folder / "lake")
    schema = pa.schema([field for field in arrow_schema(MESSAGES) if field.name in rows[0]])
    writer = Writer(lake.messages.place, PARTITIONS[MESSAGES])
    writer.write(as_table(pa.Table.from_pylist(rows, schema=schema), MESSAGES))
    marks = {marked(place_of(url), queue): int(end * 1e6) for queue in QUEUES}
    lake.messages.commit(lake.messages.state(), Change("WRITE", add=tuple(writer.close()), marks=marks))
    return url, lake


async def _store(url: str) -> None:
    """What waits now: payments that nobody works on, and what is to be tried again."""
    async with holdfast.connect(url) as broker:
        payments = await broker.queue("payments", max_attempts=5, retry=holdfast.Fixed(3600))
        await payments.enqueue_many([{"order": 4000 + number} for number in range(232)])
        for each in await payments.dequeue_many(14):
            await each.fail(TRACE.format(51))
        for each in await payments.dequeue_many(20):
            await each.kill(TRACE.format(54))
        emails = await broker.queue("emails")
        await emails.enqueue_many([{"to": f"{number}@example.com"} for number in range(3)])
        await emails.dequeue_many(3, lease=600)
        clicks = await broker.queue("clicks")
        await clicks.enqueue_many([{"page": number} for number in range(1800)])
        thumbnails = await broker.queue("thumbnails")
        await thumbnails.enqueue_many([{"file": f"{number}.png"} for number in range(6)], delay=3600)


def _messages(
    queue: str, start: float, end: float, chance: random.Random, scale: float, note: str
) -> list[dict[str, Any]]:
    """Came at a rhythm of its own, and from two hours before the end payments go wrong."""
    at, number = start, 0
    rows: list[dict[str, Any]] = []
    incident = end - 2.2 * HOUR
    while True:
        wave = 1 + 0.5 * math.sin((at - start) / HOUR * 1.3 + len(queue))
        at += chance.expovariate(_A_MINUTE[queue] * scale * wave / 60)
        number += 1
        is_wrong = queue == "payments" and at > incident and chance.random() < min(0.5, (at - incident) / HOUR * 0.3)
        tries = chance.choice((3, 4, 5)) if is_wrong else 2 if chance.random() < 0.03 else 1
        worker = f"{queue}-{number % 3 + 1}"
        slow = 6.0 if worker == "thumbnails-2" else 1.0
        wait = chance.expovariate(2.0) + (tries - 1) * (40.0 if is_wrong else 5.0)
        run = _RUN_S[queue] * slow * chance.lognormvariate(0, 0.6) * (3 if is_wrong else 1)
        if at + wait + run >= end:
            return rows
        error = None
        if is_wrong:
            error = TIMEOUT if chance.random() < 0.2 else TRACE.format(chance.choice((51, 54, 57)))
        elif queue == "thumbnails" and chance.random() < 0.002:
            error = f"ValueError: cannot read '{number}.png' {note}".rstrip()
        rows.append(_row(queue, number, at, wait, run, tries, worker, error))


def _clicks(start: float, end: float, chance: random.Random, scale: float) -> list[dict[str, Any]]:
    """Batches of a stream, every minute; in the last hour nobody reads them."""
    rows = []
    for batch in range(int((end - start) / 60)):
        at = start + 60 * (batch + 1)
        count = int(chance.randint(15, 22) * scale)
        for number in range(count if at < end - HOUR else 0):
            came = at - 60 * chance.random()
            rows.append(_row("clicks", batch * 1000 + number, came, at - came, 4.0, 1, "spark/sessions", None))
    return rows


def _row(
    queue: str, number: int, came: float, wait: float, run: float, tries: int, worker: str, error: str | None
) -> dict[str, Any]:
    moments = {"enqueued_at": came, "claimed_at": came + wait, "finished_at": came + wait + run}
    return {
        "id": f"01a1f0{int(came):x}-{queue[:2].encode().hex()}{number:08x}",
        "queue": queue,
        "status": "dead" if error else "completed",
        "attempts": tries,
        "max_attempts": 5,
        "priority": 0,
        "value": f'{{"order": {number}, "note": "{SCRIPT[:8]}"}}'.encode(),
        "content_type": "application/json",
        "worker": worker,
        "error": error,
        **{name: datetime.fromtimestamp(at, UTC) for name, at in moments.items()},
    }
