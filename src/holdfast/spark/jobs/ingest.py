"""`holdfast pipeline ingest`: any table or files into a queue; what cannot be a message goes to a reject table."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from ... import config
from ...broker import Broker
from ...errors import CodecError, ConfigError, QueueNotFound
from ..link import link
from ..options import check_url
from . import files
from .faults import in_plain_words
from .handler import named
from .progress import Tell, silent, tasks
from .rows import BYTES, REASON, ROW, Mapped, messages
from .store import ask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENDINGS = {
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".txt", ".text", ".log"), "text"),
    ".parquet": "parquet",
    ".orc": "orc",
}
_PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4")
_GLOB = re.compile(r"[\\*?\[\]{}]")  # means something in a path that Spark is given
_SHOWN = 500  # characters of a sample value, or of a bad row in an error


class IngestSummary(msgspec.Struct, frozen=True):
    """What a run of `ingest` did, or would do."""

    queue: str
    read: int
    accepted: int
    rejected: int
    added: int  # 0 when this very input was ingested before
    rejects: str | None  # where the rejected rows are
    reasons: dict[str, int]
    key: str | None
    schema: str  # what the rows were read as
    sample: dict[str, Any] | None  # one of the messages
    seconds: float


def ingest(
    spark: SparkSession,
    source: str | os.PathLike[str] | DataFrame,
    queue: str,
    *,
    url: str | None = None,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    schema: str | None = None,
    type: Any = None,
    rejects: str | os.PathLike[str] | None = None,
    max_rejects: int | None = None,
    key: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    tell: Tell = silent,
    **columns: Any,
) -> IngestSummary:
    """Rows of files or of a DataFrame become messages; `columns` are the fields of `Mapped`: value, priority, headers …

    The good ones arrive once: a second run over the same input (the same files, unchanged; or the same `key`) adds
    nothing. With a `checkpoint` only files that are new since the last run are read. Bad rows go to `rejects`
    (Parquet: row, reason, bytes). Without it a bad row fails the load, before anything is written; `max_rejects` is how
    many may be left out, with or without a place for them.
    """
    check_url(url, "write")
    if checkpoint is not None and dry_run:
        raise ConfigError("dry_run looks at all files: leave the checkpoint out")
    started, mapped = time.monotonic(), _mapped(columns)
    wanted = named(type) if isinstance(type, str) else type
    most = _limit(url, queue)
    kept = None if rejects is None else str(rejects)
    if max_rejects is None and kept is None:
        max_rejects = 0
    step = _Step(url, config.queue_name(queue), mapped, most, wanted, kept, max_rejects)
    kind = (format or _format(os.fspath(source))) if isinstance(source, str | os.PathLike) else None
    with tasks(spark, f"ingest into {queue}", tell), files.kept_whole(spark, kind):
        read = files.source(spark, source, kind, options=options or {}, schema=schema, mapped=mapped, most=most)
        if checkpoint is not None:
            summary = _stream(spark, step, read, str(checkpoint))
        else:
            df = read.load(spark.read)
            found = key if key is not None else _fingerprint(spark, df, step.queue, mapped)
            summary = step.run(read.made(df), read.said, found, dry_run=dry_run)
    return msgspec.structs.replace(summary, seconds=time.monotonic() - started)


class _Step:
    """One batch of rows on its way in."""

    def __init__(
        self,
        url: str | None,
        queue: str,
        mapped: Mapped,
        most: int,
        type: Any,
        rejects: str | None,
        max_rejects: int | None,
    ) -> None:
        self._url, self.queue, self.mapped = url, queue, mapped
        self._most, self._type, self._rejects = most, type, rejects
        self._left = max_rejects  # rows that may still be left out

    def run(self, df: DataFrame, schema: str, key: str | None, *, dry_run: bool = False) -> IngestSummary:
        made = messages(df, self.mapped, most=self._most, type=self._type).persist()
        try:
            reasons = {row[REASON]: row["count"] for row in made.groupBy(REASON).count().collect()}
            accepted, rejected = reasons.pop(None, 0), sum(reasons.values())
            place = None
            added = 0
            if not dry_run:
                if rejected:
                    self._allow(made, reasons, key, accepted)
                added = self._write(made, key, accepted)
                place = self._reject(made, key) if rejected else None
            sample = _sample(made, self.mapped) if accepted else None
        finally:
            made.unpersist()
        read = accepted + rejected
        return IngestSummary(self.queue, read, accepted, rejected, added, place, reasons, key, schema, sample, 0.0)

    def _allow(self, made: DataFrame, reasons: dict[str, int], key: str | None, accepted: int) -> None:
        """CodecError when more rows are bad than may be; before anything is written but the rows themselves."""
        rejected = sum(reasons.values())
        if self._left is None or rejected <= self._left:
            self._left = None if self._left is None else self._left - rejected
            return
        first = made.where(f"{REASON} is not null").select(ROW).first()
        most = sorted(reasons.items(), key=lambda each: -each[1])
        told = "; ".join(f"{count:,} × {reason}" for reason, count in most)[:_SHOWN]
        kept = self._reject(made, key)
        way = (
            f"They are in {kept}"
            if kept
            else "Keep them apart with --rejects FOLDER, or leave them out with --max-rejects N"
        )
        raise CodecError(
            f"nothing was loaded: {rejected:,} of {accepted + rejected:,} rows cannot be messages ({told}), such as "
            f"{first[ROW][:_SHOWN] if first else ''!r}. {way}"
        )

    def _write(self, made: DataFrame, key: str | None, accepted: int) -> int:
        from .. import register

        register(made.sparkSession)
        if not accepted or (key is not None and was_published(self._url, self.queue, key)):
            return 0
        good = made.where(f"{REASON} is null").select(*self.mapped.written())
        writer = good.write.format("holdfast").mode("append")
        for name, value in (("url", self._url), ("idempotencyKey", key)):
            writer = writer if value is None else writer.option(name, value)
        writer.save(self.queue)
        return accepted

    def _reject(self, made: DataFrame, key: str | None) -> str | None:
        if self._rejects is None:
            return None
        place = f"{self._rejects}/{(key or 'once').replace('/', '-')}"
        made.where(f"{REASON} is not null").select(ROW, REASON, BYTES).write.mode("overwrite").parquet(place)
        return place


def _stream(spark: SparkSession, step: _Step, read: files.Source, checkpoint: str) -> IngestSummary:
    """New files only, each once: Spark's checkpoint knows the files, the queue knows the batches."""
    token = secrets.token_hex(8)
    query = read.load(spark.readStream).writeStream.foreachBatch(_EachBatch(step, read, checkpoint, token))
    running = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        with in_plain_words():
            running.awaitTermination()
        rows = [spark.table(f"global_temp.{name}").first() for name in _views(spark, token)]
        sums = [msgspec.json.decode(row[0], type=IngestSummary) for row in rows if row is not None]
    finally:
        for name in _views(spark, token):
            spark.catalog.dropGlobalTempView(name)
    return _summed(step.queue, read.said, sums)


def _views(spark: SparkSession, token: str) -> list[str]:
    return [row.viewName for row in spark.sql(f"show views in global_temp like 'ingest_{token}_*'").collect()]


class _EachBatch:
    """For `foreachBatch`. With Spark Connect it runs in a process of the server: what it did is said in a view."""

    def __init__(self, step: _Step, read: files.Source, checkpoint: str, token: str) -> None:
        self._step, self._read, self._checkpoint, self._token = step, read, checkpoint, token

    def __call__(self, df: DataFrame, number: int) -> None:
        spark = df.sparkSession
        row = spark.read.text(f"{self._checkpoint}/metadata").first()
        query = msgspec.json.decode(row[0])["id"] if row is not None else ""
        done = self._step.run(self._read.made(df), self._read.said, f"ingest/{query}/{number}")
        said = msgspec.json.encode(done).decode()
        spark.createDataFrame([(said,)], "said string").createGlobalTempView(f"ingest_{self._token}_{number}")


def _summed(queue: str, schema: str, sums: list[IngestSummary]) -> IngestSummary:
    reasons: dict[str, int] = {}
    for one in sums:
        for reason, count in one.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    read, accepted, rejected, added = (
        sum(getattr(one, name) for one in sums) for name in ("read", "accepted", "rejected", "added")
    )
    place = next((one.rejects for one in sums if one.rejects), None)
    sample = next((one.sample for one in sums if one.sample), None)
    folder = place and str(Path(place).parent)
    return IngestSummary(queue, read, accepted, rejected, added, folder, reasons, None, schema, sample, 0.0)


def _sample(made: DataFrame, mapped: Mapped) -> dict[str, Any] | None:
    """One good message as people read it."""
    found = made.where(f"{REASON} is null").select(*mapped.written()).first()
    if found is None:
        return None
    value = bytes(found["value"]).decode(errors="replace")
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]} … ({len(value):,} characters)"
    rest = {name: each for name, each in found.asDict().items() if name != "value"}
    return {"value": shown, **rest, **({"deliver_at": str(rest["deliver_at"])} if rest.get("deliver_at") else {})}


def was_published(url: str | None, queue: str, key: str) -> bool:
    """Whether a write under this key is in the queue already."""
    from ..writing import sink_of

    at = link(url)
    return at.run(at.sink.published(queue, sink_of(key))) is not None


def _format(place: str) -> str:
    name = place.rstrip("/").lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    kind = _ENDINGS.get(Path(name).suffix)
    if kind is None:
        raise ConfigError(f"{place}: which format? Say csv, json, parquet, orc, text or any other that Spark reads")
    return kind


def _mapped(columns: Mapping[str, Any]) -> Mapped:
    for name in columns:
        if name not in Mapped.__struct_fields__:
            raise ConfigError(config.unknown("ingest: unknown argument", name, Mapped.__struct_fields__))
    return Mapped(**{name: value for name, value in columns.items() if value is not None})


def _limit(url: str | None, queue: str) -> int:
    async def look(broker: Broker) -> int:
        info = await broker.store.queue(queue)
        if info is None:
            names = [one.name for one in await broker.store.queues()]
            raise QueueNotFound(
                f"{config.unknown('there is no queue', queue, names)}; `holdfast queue create` makes one"
            )
        return info.options.max_message_size

    return ask(url, look)


def _fingerprint(spark: SparkSession, df: DataFrame, queue: str, mapped: Mapped) -> str | None:
    """Stands for these files as they are now; None for what is not made of files."""
    files = sorted(df.inputFiles())
    if not files:
        return None
    places = [_GLOB.sub(r"\\\g<0>", unquote(file)) for file in files]
    found = spark.read.format("binaryFile").load(places).selectExpr("path", "length", "unix_millis(modificationTime)")
    said = [queue, msgspec.json.encode(mapped).decode(), *sorted(" ".join(map(str, row)) for row in found.collect())]
    return "ingest-" + hashlib.blake2b("\n".join(said).encode(), digest_size=12).hexdigest()
