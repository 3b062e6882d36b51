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
    assert reasons['{"order": "nine", "amount": 1}'] == "it does not fit the schema"
    told = sorted(reasons.values())
    assert [text.split(":")[0] for text in told] == [
        "a priority is a whole number from 0 to 255",
        "cannot decode application/json as Order",
        "deliver_at is no time",
        "it does not fit the schema",
        "it does not fit the schema",
        "the dedup key is empty",
        "the value has more than 200 bytes",
    ]
    assert sorted(one.payload.decode() for one in waiting(url, "orders")) == lines[:2], "byte by byte"
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
    assert jobs.ingest(spark, rows, "texts", url=url, value="t", value_as="text", key="1", max_rejects=1).added == 1
    assert jobs.ingest(spark, rows, "raws", url=url, value="b", priority=3, max_rejects=1).added == 1
    with pytest.raises(holdfast.CodecError, match=r"nothing was loaded: 2 of 2"):
        jobs.ingest(spark, rows.where("t is null").union(rows.where("t is null")), "jsons", url=url, value="j")
    done = jobs.ingest(spark, rows, "jsons", url=url, value="j", max_rejects=1)
    assert (done.added, done.reasons, done.rejects) == (1, {"the value is not JSON": 1}, None)
    [text], [raw], [value] = (waiting(url, name) for name in ("texts", "raws", "jsons"))
    assert (json.loads(text.payload), text.content_type) == ('say "hi"\n', "application/json")
    assert (raw.payload, raw.content_type, raw.priority) == (b"\x00\x01", "application/octet-stream", 3)
    assert json.loads(value.payload) == {"a": 1}
    assert jobs.ingest(spark, rows, "texts", url=url, value="t", value_as="text", key="1", max_rejects=1).added == 0


def test_keys_and_headers_beyond_their_limits_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    make(url, "orders")
    rows = [(1, "k", "v" * 65_535), (2, "é" * 513, "v"), (3, "k3", "v" * 65_536), (4, None, None)]
    frame = spark.createDataFrame(rows, "order int, key string, header string")
    done = jobs.ingest(
        spark, frame, "orders", url=url, dedup_key="key", headers={"h": "header"}, key="1", max_rejects=2
    )
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


ODD = [
    b'{"a": 1, "a": 2}',
    b'{ "b" : 1.10 ,  "c":1E5, "d":-0, "e":123456789012345678901234567890 }  ',
    b'\t{"A":1,"a":2,"":3,"a.b":4,"`":5}',
    '{"é":"\u2028","emoji":"😀","esc":"\\u00e9\\/\\ud83d\\ude00"}'.encode(),
    b"[1, 2,\r 3]",
    b'"just text"',
    b"null",
    b"17",
    b"1e400",
    b'{"deep":' + b"[" * 400 + b"]" * 400 + b"}",
    b'{"z":null,"date":"2026-01-02 03:04","id":"00123"}\r',
    b'{"long":"' + b"x" * 100_000 + b'"}',
    # no JSON
    b"{'a': 1}",
    b'{"a": 1,}',
    b'{"a": NaN}',
    b'{"a": 1} // comment',
    b'{"a": "\xff\xfe"}',
    b'{"a": "\\ud800"}',
    b'{"a": "tab\there"}',
    b'{"a": \x00}',
    b"plain text",
    b'{"a": 1',
    b"[" * 100_000 + b"]" * 100_000,
]


def test_odd_json_lines_come_out_as_they_were_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    url, source = (tmp_path / "store").as_uri(), tmp_path / "odd.jsonl"
    make(url, "odd")
    lines = [ODD[n % len(ODD)].replace(b"1", str(n).encode(), 1) for n in range(10_300)]
    lines += [b'{"n": %d}' % n for n in range(200)]
    lines = [line for line in lines if len(line) < 150_000] + [ODD[-1]]  # one of the largest is enough
    source.write_bytes(b"\xef\xbb\xbf" + b"\n\n".join(lines) + b"\n  \n")
    with pytest.raises(holdfast.CodecError, match=r"nothing was loaded: .* rows cannot be messages") as failed:
        jobs.ingest(spark, source, "odd", url=url)
    assert "--rejects" in str(failed.value)
    assert waiting(url, "odd") == []
    done = jobs.ingest(spark, source, "odd", url=url, rejects=tmp_path / "bad")
    assert done.rejects is not None
    rejected = [bytes(row["bytes"]) for row in spark.read.parquet(done.rejects).select("bytes").collect()]
    arrived = [one.payload for one in every(url, "odd")]
    assert sorted(arrived + rejected) == sorted(line.removesuffix(b"\r") for line in lines)
    assert (len(arrived), len(rejected)) == (done.added, done.rejected)
    for payload in arrived:
        msgspec.json.decode(payload)
    for payload in rejected:
        with pytest.raises((msgspec.DecodeError, RecursionError, UnicodeDecodeError)):
            msgspec.json.decode(payload)
    assert done.added > 4000
    assert done.sample is not None
    assert done.sample["value"] in {line.decode(errors="replace").removesuffix("\r") for line in lines}


def every(url: str, name: str) -> list[Any]:
    """All that waits, in pages."""

    async def work() -> list[Any]:
        async with holdfast.connect(url) as broker:
            found: list[Any] = []
            while page := await broker.store.scan(name, "ready", limit=5000, after=found[-1].id if found else None):
                found += page
            return found

    return asyncio.run(work())


def test_columns_of_json_lines_are_a_second_look(spark: SparkSession, tmp_path: Path) -> None:
    url, source = (tmp_path / "store").as_uri(), tmp_path / "orders.jsonl"
    make(url, "orders")
    lines = ['{"p": 7, "h": 1.10, "k": "00123"}', '{"p": null, "h": {"a":  [1]}}', "[7]", '{"p": "9", "h": "x\\ty"}']
    source.write_text("\n".join(lines))
    done = jobs.ingest(
        spark, source, "orders", url=url, priority="p", headers={"h": "h", "k": "k"}, rejects=tmp_path / "bad"
    )
    assert (done.added, done.reasons) == (3, {"it is JSON, but no object": 1})
    found = {one.payload.decode(): (one.priority, one.headers or {}) for one in waiting(url, "orders")}
    assert found == {
        lines[0]: (7, {"h": "1.10", "k": "00123"}),
        lines[1]: (0, {"h": '{"a":  [1]}'}),
        lines[3]: (9, {"h": "x\ty"}),
    }


def test_a_column_that_no_line_has_is_a_mistake(spark: SparkSession, tmp_path: Path) -> None:
    url, source = (tmp_path / "store").as_uri(), tmp_path / "orders.jsonl"
    make(url, "orders")
    source.write_text('{"urgency": 7}\n{}\n')
    with pytest.raises(holdfast.ConfigError, match="there is no column 'urgenci'; did you mean 'urgency'"):
        jobs.ingest(spark, source, "orders", url=url, priority="urgenci")


def test_a_document_of_json_is_split_without_being_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    url, source = (tmp_path / "store").as_uri(), tmp_path / "orders.json"
    make(url, "orders")
    source.write_text('[\n  {"a": 1.10,\n   "b": 00},\n  {"a": 2.0}\n]')
    with pytest.raises(holdfast.CodecError):
        jobs.ingest(spark, source, "orders", url=url, options={"multiLine": "true"})
    source.write_text('[\n  {"a": 1.10,\n   "b": 0},\n  {"a": 2.0}\n]')
    assert jobs.ingest(spark, source, "orders", url=url, options={"multiLine": "true"}).added == 2
    assert sorted(one.payload for one in waiting(url, "orders")) == [b'{"a": 1.10,\n   "b": 0}', b'{"a": 2.0}']


NASTY = (
    b"\xef\xbb\xbfid,zip,price,ok,when,note\r\n"
    b'1,00123,2.50,true,2026-01-02 03:04,"two\r\nlines, and a comma"\r\n'
    b'2,01234,10,false,2026-01-02,"a ""quoted"" word"\r\n'
    b"\r\n"
    b"3,99999,0.1,true,,\r\n"
    b'4,10000,3,false,,""\r\n'
    b"5,10000,3,true,one,field,too,many\r\n"
    b'6,10000,3,true,x,"stray\r\n'
    b'7,10000,-3,true,x,"fine"\r\n'
    b"8,10000,3\r\n"
    b"9,10000,3,true,\xff,latin\r\n"
    b'10,10000,3,true,x,"closed"too early\r\n'
    b"11,10000,123456789012345,true,1e5,NaN\r\n"
    b'12,10000,3,true,x,"never closed\r\n'
)


def test_a_nasty_csv_comes_out_as_it_was_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    url, source = (tmp_path / "store").as_uri(), tmp_path / "nasty.csv"
    make(url, "rows")
    source.write_bytes(NASTY)
    dry = jobs.ingest(spark, source, "rows", url=url, dry_run=True)
    assert dry.schema == "CSV; id number, zip text, price number, ok boolean, when text, note text"
    assert dry.sample is not None
    assert dry.sample["value"].startswith('{"id":')
    done = jobs.ingest(spark, source, "rows", url=url, rejects=tmp_path / "bad")
    assert (done.read, done.added, done.rejected) == (12, 6, 6)
    assert sorted(one.payload for one in waiting(url, "rows")) == sorted([
        b'{"id":1,"zip":"00123","price":2.50,"ok":true,"when":"2026-01-02 03:04","note":"two\\r\\nlines, and a comma"}',
        b'{"id":2,"zip":"01234","price":10,"ok":false,"when":"2026-01-02","note":"a \\"quoted\\" word"}',
        b'{"id":3,"zip":"99999","price":0.1,"ok":true,"when":null,"note":null}',
        b'{"id":4,"zip":"10000","price":3,"ok":false,"when":null,"note":""}',
        b'{"id":7,"zip":"10000","price":-3,"ok":true,"when":"x","note":"fine"}',
        b'{"id":11,"zip":"10000","price":123456789012345,"ok":true,"when":"1e5","note":"NaN"}',
    ])  # fmt: skip
    assert done.rejects is not None
    rejected = {bytes(row["bytes"]): row.reason for row in spark.read.parquet(done.rejects).collect()}
    assert sorted(rejected) == sorted(
        line for line in NASTY.split(b"\r\n") if line.startswith((b"5,", b"6,", b"8,", b"9,", b"10,10000", b"12,"))
    )
    assert rejected[b"8,10000,3"] == "it has 3 fields instead of 6"

    make(url, "typed")
    schema = "id int, zip int, price double"
    typed = jobs.ingest(spark, source, "typed", url=url, schema=schema, max_rejects=6)
    assert (typed.added, typed.rejected) == (6, 6)
    assert b'{"id":1,"zip":123,"price":2.5}' in [one.payload for one in waiting(url, "typed")]


def test_files_of_csv_have_the_same_columns(spark: SparkSession, tmp_path: Path) -> None:
    url, folder = (tmp_path / "store").as_uri(), tmp_path / "inbox"
    make(url, "rows")
    folder.mkdir()
    (folder / "1.csv").write_text("a,b\n1,x\n")
    (folder / "2.csv").write_text("b,a\ny,2\n")
    assert jobs.ingest(spark, folder, "rows", url=url, format="csv").added == 2
    assert sorted(one.payload for one in waiting(url, "rows")) == [b'{"a":1,"b":"x"}', b'{"a":2,"b":"y"}']
    (folder / "3.csv").write_text("c,a\ny,2\n")
    with pytest.raises(holdfast.ConfigError, match="different columns"):
        jobs.ingest(spark, folder, "rows", url=url, format="csv")
    for options, sentence in (
        ({"dateFormat": "yyyy"}, "CSV is read without 'dateFormat'"),
        ({"sep": "::"}, "one ASCII character"),
        ({"encoding": "utf-16"}, "convert the file to UTF-8"),
    ):
        with pytest.raises(holdfast.ConfigError, match=sentence):
            jobs.ingest(spark, folder / "1.csv", "rows", url=url, options=options)


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
