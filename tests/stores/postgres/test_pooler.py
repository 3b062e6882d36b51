"""Behind a pooler in transaction mode: everything works, notifications do not arrive, and that is said once; or it is
refused when the store is opened, since prepared statements are lost."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

import holdfast
from holdfast.errors import StoreError
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


@pytest.mark.parametrize("size", [1, 2, 4])
async def test_transaction_mode_without_prepared_statements_is_refused_when_opening(
    postgres: Database, size: int
) -> None:
    """Nobody else uses the pooler: only a probe can tell."""
    async with Pooler(postgres.server.port, postgres.name, size=size, keeps_prepared=False).running() as pooler:
        with pytest.raises(StoreError, match=r"pgbouncer 1\.21 or newer with max_prepared_statements"):
            await holdfast.connect(pooler.url, connect_timeout=10)


@pytest.mark.parametrize("size", [1, 2])
async def test_small_pool_that_keeps_prepared_statements_opens(postgres: Database, size: int) -> None:
    pooler = Pooler(postgres.server.port, postgres.name, size=size)
    async with pooler.running(), holdfast.connect(pooler.url, connect_timeout=10, notify=False) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(1)
        assert (await queue.stats()).pending == 1
