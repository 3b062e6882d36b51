"""ingest: good rows arrive once, bad rows are kept apart with their reason."""

from __future__ import annotations

import asyncio
import datetime
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs


class Order(msgspec.Struct):
    """Executors import it from here."""

    order: int
    amount: float


def make(url: str, *names: str, **options: Any) -> None:
    async def work() -> None:
        async with holdfast.connect(url) as broker:
            for name in names:
                await broker.queue(name, **options)

    asyncio.run(work())


def waiting(url: str, name: str) -> list[Any]:
    """What is in the queue, message by message."""

    async def work() -> list[Any]:
        async with holdfast.connect(url) as broker:
            found = await broker.store.scan(name, "ready", limit=10_000)
            return found + await broker.store.scan(name, "delayed", limit=10_000)

    return asyncio.run(work())


def test_rows_of_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    url, source = (tmp_path / "store").as_uri(), tmp_path / "orders.jsonl"
    make(url, "orders", max_message_size=200)
    lines = [
        '{"order": 1, "amount": 2.5, "p": 7, "at": "2099-01-01T00:00:00Z", "k": "a", "land": "it"}',
        '{"order": 2, "amount": 3, "p": null, "land": null}',
        '{"order": 3, "amount": 1, "p": 256}',
        '{"order": 4, "amount": 1, "at": "tomorrow"}',
        '{"order": 5}',
        '{"order": 6',
        '{"order": "nine", "amount": 1}',
        '{"order": 7, "amount": 1, "k": ""}',
        json.dumps({"order": 8, "amount": 1, "note": "x" * 300}),
    ]
    source.write_text("\n".join(lines) + "\n")
    schema = "order int, amount double, p string, at string, k string, land string, note string"
    columns = {"priority": "p", "headers": {"country": "land"}, "deliver_at": "at", "dedup_key": "k"}
    load = {"url": url, "type": Order, "schema": schema, "rejects": tmp_path / "bad", **columns}
    dry = jobs.ingest(spark, source, "orders", dry_run=True, **load)
    assert (dry.read, dry.accepted, dry.added, waiting(url, "orders")) == (9, 2, 0, [])
    done = jobs.ingest(spark, source, "orders", **load)
    assert (done.read, done.accepted, done.rejected, done.added) == (9, 2, 7, 2)
    assert done.rejects is not None
    reasons = {row["row"]: row.reason for row in spark.read.parquet(done.rejects).collect()}
    assert len(reasons) == 7
    assert reasons['{"order": 6'] == "the row cannot be read"
    told = sorted(reasons.values())
    assert [text.split(":")[0] for text in told] == [
        "a priority is a whole number from 0 to 255",
        "cannot decode application/json as Order",
        "deliver_at is no time",
        "the dedup key is empty",
        "the row cannot be read",
        "the row cannot be read",
        "the value has more than 200 bytes",
    ]
    first, later = sorted(waiting(url, "orders"), key=lambda one: one.priority)
    assert (json.loads(first.payload)["order"], first.priority, first.headers or {}) == (2, 0, {})
    assert (json.loads(later.payload)["order"], later.priority, later.headers) == (1, 7, {"country": "it"})
    due = datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert due <= later.visible_at <= due + 0.02 * (due - time.time())  # the log engine may be late by 2 %

    assert jobs.ingest(spark, source, "orders", **load).added == 0  # the same file, unchanged
    assert len(waiting(url, "orders")) == 2


def test_one_column_is_the_value(spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    make(url, "texts", "raws", "jsons")
    rows = spark.createDataFrame(
        [('say "hi"\n', b"\x00\x01", '{"a":1}'), (None, None, "{a")], "t string, b binary, j string"
    )
    assert jobs.ingest(spark, rows, "texts", url=url, value="t", value_as="text", key="1").added == 1
    assert jobs.ingest(spark, rows, "raws", url=url, value="b", priority=3).added == 1
    done = jobs.ingest(spark, rows, "jsons", url=url, value="j")
    assert (done.added, done.reasons, done.rejects) == (1, {"the value is not JSON": 1}, None)
    [text], [raw], [value] = (waiting(url, name) for name in ("texts", "raws", "jsons"))
    assert (json.loads(text.payload), text.content_type) == ('say "hi"\n', "application/json")
    assert (raw.payload, raw.content_type, raw.priority) == (b"\x00\x01", "application/octet-stream", 3)
    assert json.loads(value.payload) == {"a": 1}
    assert jobs.ingest(spark, rows, "texts", url=url, value="t", value_as="text", key="1").added == 0


def test_keys_and_headers_beyond_their_limits_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    make(url, "orders")
    rows = [(1, "k", "v" * 65_535), (2, "é" * 513, "v"), (3, "k3", "v" * 65_536), (4, None, None)]
    frame = spark.createDataFrame(rows, "order int, key string, header string")
    done = jobs.ingest(spark, frame, "orders", url=url, dedup_key="key", headers={"h": "header"}, key="1")
    assert (done.added, done.rejected) == (2, 2)
    assert done.reasons == {
        "the dedup key has more than 1024 bytes": 1,
        "the headers have more than 65536 bytes": 1,
    }
    assert sorted(json.loads(one.payload)["order"] for one in waiting(url, "orders")) == [1, 4]


def test_new_files_only(spark: SparkSession, tmp_path: Path) -> None:
    url, inbox = (tmp_path / "store").as_uri(), tmp_path / "inbox"
    make(url, "orders")
    inbox.mkdir()
    load = {"url": url, "format": "csv", "checkpoint": tmp_path / "state", "rejects": tmp_path / "bad", "priority": "p"}
    (inbox / "1.csv").write_text("order,p\n1,0\n2,1000\n")
    first = jobs.ingest(spark, inbox, "orders", **load)
    assert (first.read, first.added, first.rejected) == (2, 1, 1)
    (inbox / "2.csv").write_text("order,p\n3,0\n4,0\n")
    assert jobs.ingest(spark, inbox, "orders", **load).added == 2
    assert jobs.ingest(spark, inbox, "orders", **load).read == 0
    assert sorted(json.loads(one.payload)["order"] for one in waiting(url, "orders")) == [1, 3, 4]


def test_bad_input_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    make(url, "orders")
    rows = spark.createDataFrame([(1,)], "n int")
    for arguments, sentence in (
        ({"value": "m"}, "there is no column 'm'"),
        ({"value": "n", "value_as": "xml"}, "value_as: unknown kind"),
        ({"priority": 300}, "0 to 255"),
        ({"priority": "n"}, "nothing is left for the value"),
        ({"prioritty": "n"}, "did you mean 'priority'"),
    ):
        with pytest.raises(holdfast.ConfigError, match=sentence):
            jobs.ingest(spark, rows, "orders", url=url, **arguments)
    with pytest.raises(holdfast.QueueNotFound, match="did you mean 'orders'"):
        jobs.ingest(spark, rows, "order", url=url)
    with pytest.raises(holdfast.ConfigError, match=r"Spark says: .*PATH_NOT_FOUND"):
        jobs.ingest(spark, tmp_path / "none.csv", "orders", url=url)
    with pytest.raises(holdfast.ConfigError, match="which format"):
        jobs.ingest(spark, tmp_path / "orders.xlsx", "orders", url=url)
