"""release: what a stream that will not come back has claimed is given back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import holdfast
from holdfast.spark.jobs.faults import of_spark
from holdfast.stores.batches import batches_of
from tests.cli_runner import Cli


async def claim(url: str, *, alive: bool) -> None:
    async with holdfast.connect(url) as broker:
        await (await broker.queue("orders")).enqueue_many(range(5))
        batches = batches_of(broker.store)
        owner = await batches.own("orders", "etl", holder="driver", lease=600.0)
        assert await batches.claim_batch(owner, after=0, limit=3) is not None
        if not alive:
            await batches.beat(owner, 0.0)


def test_claims_go_back(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "store")
    asyncio.run(claim(cli.url, alive=False))
    assert "say --yes" in cli.error("pipeline", "release", "orders", "etl", code=2)
    assert cli.json("pipeline", "release", "orders", "etl", "--yes")["released"] == 3
    assert cli.json("queue", "metrics", "orders")["pending"] == 5


def test_not_while_its_query_is_alive(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "store")
    asyncio.run(claim(cli.url, alive=True))
    (seen,) = cli.json("pipeline", "consumers", "orders")
    assert (seen["consumer"], seen["owner"], seen["claimed"], seen["lag"]) == ("etl", "driver", 3, 5)
    assert "etl" in cli.error("pipeline", "release", "orders", "etl", "--yes")
    assert cli.json("pipeline", "release", "orders", "etl", "--yes", "--force")["released"] == 3


def test_errors_of_executors_are_ours_again() -> None:
    page = "An exception was thrown:\nTraceback …\nholdfast.errors.ConfigError: write it so\n\tat java"
    found = of_spark(RuntimeError(page))
    assert isinstance(found, holdfast.ConfigError)
    assert str(found) == "write it so"
    assert of_spark(RuntimeError("ValueError: x")) is None
