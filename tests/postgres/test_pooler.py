"""Behind a pooler in transaction mode: everything works, notifications do not arrive, and that is said once."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

import holdfast
from holdfast.testing.contract.base import eventually

from .fixtures import Database
from .pooler import Pooler


@pytest.mark.timeout(120)
async def test_transaction_mode_is_noticed_said_once_and_polling_takes_over(
    postgres: Database, caplog: pytest.LogCaptureFixture
) -> None:
    pooler = Pooler(postgres.server.port, postgres.name)
    async with pooler.running(), holdfast.connect(pooler.url, poll_interval=0.3) as broker:
        with caplog.at_level(logging.WARNING, "holdfast.postgres"):
            queue = await broker.queue("jobs")
            assert await broker.store._listener.tried() is False
            seen: list[int] = []
            worker = queue.worker(seen.append, concurrency=4)
            await worker.start()
            await queue.enqueue_many(range(500))
            await asyncio.gather(*[queue.enqueue(n) for n in range(500, 520)])
            await eventually(lambda: len(seen) == 520, "every message done")
            await eventually(lambda: broker.store._bell.waiting("jobs"), "an idle worker")
            async with holdfast.connect(postgres.url) as direct:  # nobody in that process hears of it
                started = time.monotonic()
                await (await direct.queue("jobs")).enqueue(520)
                await eventually(lambda: len(seen) == 521, "the message found by polling")
                assert time.monotonic() - started < 0.3 + 1.5
            await worker.stop()
        assert sorted(seen) == list(range(521))
        assert pooler.transactions > 50
        [check] = [check for check in await broker.check() if check.name == "notify"]
        assert check.state == "warn"
    said = [record for record in caplog.records if "notifications do not arrive" in record.getMessage()]
    assert len(said) == 1
