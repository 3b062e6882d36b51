"""Pictures of the page for its guide: `python -m tests.server.page.make_shots` writes them to docs/images/page."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import holdfast
from holdfast.config import QueueOptions
from holdfast.queue_reports import QueueReport
from holdfast.server.history import History, Timing
from holdfast.stores.records import Stats
from holdfast.stores.worker_reports import ProcessReport, RunningMessage, WorkerReport
from tests import ROOT
from tests.server.fixtures import Http
from tests.servers.chromium import browser
from tests.servers.serving import ServerThread

FOLDER = ROOT / "docs" / "images" / "page"
WIDTHS = (390, 1024, 1600)
THEMES = ("light", "dark")
PATHS = {  # of every page; `{}` is the id of a dead letter
    "overview": "/",
    "queues": "/queues",
    "queue": "/queues/payments",
    "messages": "/queues/payments/messages?state=dead",
    "message": "/queues/payments/messages/{}",
    "bulk": "/queues/payments/bulk?verb=replay&state=dead&text=declined",
    "dead": "/dead",
    "schedules": "/schedules",
    "schedule": "/schedules/digest",
    "workers": "/workers",
    "pipeline": "/pipeline",
    "doctor": "/doctor",
    "audit": "/audit",
    "login": "/login",
}
STEP_S = 10  # of the charts


async def fill(url: str) -> str:
    """A shop with a card company that is away; the id of a dead letter."""
    async with holdfast.connect(url) as broker:
        payments = await broker.queue("payments", max_attempts=2, retry=holdfast.Fixed(0))
        await payments.enqueue_many(
            [{"order": 991 + n, "amount": 12.5, "currency": "EUR"} for n in range(60)], headers={"tenant": "42"}
        )
        for each in await payments.dequeue_many(40):
            await each.complete({"charged": True})
        for error in ("CardError: the gateway does not answer", "CardError: declined by issuer (code 51)"):
            taken = await payments.dequeue_many(9)
            await asyncio.sleep(0.2)
            for each in taken:
                await each.fail(error)
        for each in await payments.dequeue_many(12):
            await each.fail("CardError: declined by issuer (code 51)")
        held = await payments.dequeue_many(3, lease=600)
        emails = await broker.queue("emails")
        await emails.enqueue_many([{"to": f"{n}@example.com"} for n in range(240)])
        await emails.enqueue_many([{"to": f"{n}@example.com"} for n in range(30)], delay=3600)
        thumbnails = await broker.queue("thumbnails")
        await thumbnails.enqueue_many([{"file": f"{n}.png"} for n in range(12)])
        for each in await thumbnails.dequeue_many(9):
            await each.complete()
        await broker.queue("invoices")
        await report(broker, held[0].id)
        for name, cron in (("digest", "0 7 * * 1-5"), ("settle", "30 * * * *")):
            await broker.schedules.put(holdfast.Schedule(name=name, queue="emails", cron=cron, tz="Europe/Berlin"))
        await stream(broker)
        return (await payments.dead.list(1))[0].id


async def stream(broker: holdfast.Broker) -> None:
    """Spark reads clicks: one stream runs, one was given up with messages in hand."""
    batches = broker.store.batches
    assert batches is not None
    await (await broker.queue("clicks")).enqueue_many([{"page": n} for n in range(900)])
    for name, lease in (("sessions", 600.0), ("fraud-scores", 0.0)):
        owned = await batches.own("clicks", name, holder="driver-1", lease=600)
        await batches.claim_batch(owned, after=0, limit=300)
        await batches.beat(owned, lease)


async def report(broker: holdfast.Broker, id: str) -> None:
    now = await broker.store.clock()
    running = [RunningMessage("payments", id, 2.5)]
    worker = WorkerReport(id="shop-1", queues=["payments", "thumbnails"], slots=8, busy=3, running=running)
    assert broker.store.worker_reports is not None
    await broker.store.worker_reports.put(
        ProcessReport(id="1" * 32, host="web-1", pid=711, version="", started_at=now - 7200, at=now, workers=[worker])
    )


def remember(path: Path) -> None:
    """The last hour as a server would have seen it."""
    history, now = History(path, every=STEP_S), time.time()
    done = 0
    for at in range(int(now) - 3600, int(now), STEP_S):
        left = (int(now) - at) / 3600
        done += round(25 + 15 * math.sin(at / 300))
        waiting = round(20 + 18 * math.sin(at / 240) + 160 * max(0.0, 0.25 - left))
        stats = Stats(
            pending=max(0, waiting), delayed=6, processing=3, retry=round(8 * (1 - left)),
            dead=round(18 * max(0.0, 0.4 - left)), completed=done,
        )  # fmt: skip
        emails = Stats(pending=round(240 * max(0.0, 1 - 2 * left)), delayed=30)
        history.add([_report("payments", stats), _report("emails", emails)], at)
        if at % 60 < STEP_S:
            wait, run = 0.4 + 0.2 * math.sin(at / 240) + 2 * max(0.0, 0.25 - left), 0.2 + 0.05 * math.sin(at / 500)
            history.measured({"payments": Timing(40, wait, 3 * wait, 5 * wait, run, 2 * run, 3 * run, wait)}, at)
    history.close()


def _report(name: str, stats: Stats) -> QueueReport:
    return QueueReport(name, False, datetime.now(UTC), QueueOptions(), stats)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        url = f"file://{folder}/jobs"
        id = asyncio.run(fill(url))
        remember(Path(f"{folder}/jobs.history.sqlite"))
        with ServerThread(url) as server, browser() as chromium:
            assert Http(server.address).post("/queues/invoices/pause").status == 200  # something for the audit
            for width in WIDTHS:
                with chromium.new_context(viewport={"width": width, "height": 720}, reduced_motion="reduce") as context:
                    page = context.new_page()
                    for name, path in PATHS.items():
                        page.goto(server.address + path.format(id), wait_until="networkidle")
                        for theme in THEMES:
                            page.emulate_media(color_scheme=theme)
                            page.screenshot(path=FOLDER / f"{name}-{width}-{theme}.png", full_page=width < 1000)


if __name__ == "__main__":
    main()
