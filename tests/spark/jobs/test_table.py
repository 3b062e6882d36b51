"""A queue as a table of its fields: each message one row, what cannot be read a dead letter, whatever was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs
from holdfast.spark.lake.delta import opened
from holdfast.spark.lake.place import open_place
from tests.spark.jobs.table_types import Order
from tests.spark.test_streaming import stats

pytestmark = pytest.mark.timeout(240)
FORMATS = pytest.mark.parametrize("format", ["delta", "parquet"])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def send(url: str, count: int, *, first: int = 0, bad: tuple[Any, ...] = ()) -> None:
    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("orders")
        queue.enqueue_many([*({"n": number, "to": f"c{number}"} for number in range(first, first + count)), *bad])


def rows_of(table: str | Path) -> list[dict[str, Any]]:
    """By number, as readers of the format find them."""
    import polars

    place = open_place(table)
    if opened(place) is not None:
        found = polars.read_delta(place.shown, storage_options=place.storage)
    else:
        found = polars.concat([polars.read_parquet(path) for path in sorted(Path(table).glob("**/part-*.parquet"))])
    return found.sort("n").to_dicts()


@FORMATS
def test_rows_dead_letters_and_a_second_run(spark: SparkSession, url: str, tmp_path: Path, format: Any) -> None:
    send(url, 200, bad=("nonsense", {"n": "seven"}, {"n": 2**70}))
    table = str(tmp_path / "table")
    done = jobs.table(spark, "orders", table, Order, url=url, format=format, batch=90)
    assert (done.rows, done.dead, done.known, done.batches) == (200, 3, 0, 3)
    found = rows_of(table)
    assert [(row["n"], row["to"]) for row in found] == [(number, f"c{number}") for number in range(200)]
    assert list(found[0]) == ["n", "to", "message_id", "message_enqueued_at"]
    assert len({row["message_id"] for row in found}) == 200
    with holdfast.sync.connect(url) as broker:
        reasons = sorted(letter.error or "" for letter in broker.queue("orders").dead.list())
    assert [reason.partition(":")[0] for reason in reasons] == ["it cannot be read as Order"] * 3
    assert "Expected `int`, got `str` - at `$.n`" in "".join(reasons)
    left = stats(url, "orders")
    assert (left.completed, left.dead, left.pending, left.processing) == (200, 3, 0, 0)

    again = jobs.table(spark, "orders", table, "tests.spark.jobs.table_types:Order", url=url, format=format)
    assert (again.rows, again.batches, again.version) == (0, 0, done.version)
    send(url, 50, first=200)
    later = jobs.table(spark, "orders", table, Order, url=url, format=format)
    assert (later.rows, later.known) == (50, 0)
    assert [row["n"] for row in rows_of(table)] == list(range(250))
