"""A store with something of everything, hostile text included."""

from __future__ import annotations

import holdfast
from holdfast import Schedule
from holdfast.stores.worker_reports import ProcessReport, RunningMessage, WorkerReport

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
ERROR = "CardError: declined by issuer (code {}) " + SCRIPT
TRACE = 'ValueError: nothing\nTraceback (most recent call last):\n  File "/app/x.py", line 3, in f\n    boom'


async def fill(url: str) -> dict[str, str]:
    """Ids of one message of each kind."""
    async with holdfast.connect(url) as broker:
        await broker.queue("quiet")
        queue = await broker.queue("payments", max_attempts=1)
        values = [{"order": number, "amount": 12.5, "secret": "hush", "note": SCRIPT} for number in range(40)]
        await queue.enqueue_many(values, headers={"tenant": SCRIPT}, priority=5)
        dead = await queue.dequeue_many(12)
        for each in dead:
            await each.fail(ERROR.format(each.value["order"]))
        for each in await queue.dequeue_many(3):
            await each.fail(TRACE)
        done = await queue.dequeue_many(8)
        for each in done:
            await each.complete({"said": SCRIPT, "secret": "hush"})
        held = await queue.dequeue_many(3, lease=600)
        raw = await broker.queue("raw", bytes)
        binary = await raw.enqueue(bytes(range(48)))
        waiting = await queue.enqueue({"late": True}, delay=3600)
        emails = await broker.queue("emails")
        await emails.enqueue_many([{"to": f"{number}@example.com"} for number in range(120)])
        await emails.pause()
        value = {"shop": 1, "note": SCRIPT}
        await broker.schedules.put(
            Schedule(name="nightly", queue="emails", cron="30 2 * * *", tz="Europe/Berlin", value=value)
        )
        await broker.schedules.put(Schedule(name="sync", queue="payments", every=300))
        await _report(broker, held[0].id)
        bulky = await broker.queue("bulky")
        for kind, count in (("a", 60), ("b", 30)):
            await bulky.enqueue_many([{"number": number} for number in range(count)], headers={"kind": kind})
        ids = {"dead": dead[0].id, "done": done[0].id, "held": held[0].id, "binary": binary, "waiting": waiting}
        return {**ids, "held too": held[1].id, "done too": done[1].id}


async def _report(broker: holdfast.Broker, id: str) -> None:
    """A process with a worker that runs this message, and one that was killed."""
    reports = broker.store.worker_reports
    assert reports is not None
    now = await broker.store.clock()
    running = [RunningMessage("payments", id, 12.5)]
    workers = [WorkerReport(id=f"mailer-{SCRIPT}", queues=["payments", "emails"], slots=4, busy=1, running=running)]
    for number, at in ((1, now), (2, now - 3600)):
        await reports.put(
            ProcessReport(
                id=f"{number:032x}", host=SCRIPT, pid=number, version="", started_at=at - 60, at=at, workers=workers
            )
        )
