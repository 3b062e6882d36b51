"""`holdfast pipeline ingest`: any table or files into a queue; what cannot be a message goes to a reject table."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ... import config
from ...broker import Broker
from ...errors import ConfigError, QueueNotFound
from ..options import check_url
from .faults import in_plain_words
from .handler import named
from .progress import Tell, silent, tasks
from .rows import CORRUPT, REASON, ROW, Mapped, messages
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
_LINES = ("csv", "json")  # formats in which single rows can be unreadable


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
    key: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    tell: Tell = silent,
    **columns: Any,
) -> IngestSummary:
    """Rows of files or of a DataFrame become messages; `columns` are the fields of `Mapped`: value, priority, headers …

    The good ones arrive once: a second run over the same input (the same files, unchanged; or the same `key`) adds
    nothing. With a `checkpoint` only files that are new since the last run are read. Bad rows go to `rejects`
    (Parquet: row, reason); without it a bad row is only counted.
    """
    check_url(url)
    started, mapped = time.monotonic(), _mapped(columns)
    wanted = named(type) if isinstance(type, str) else type
    most = _limit(url, queue)
    step = _Step(spark, url, config.queue_name(queue), mapped, most, wanted, None if rejects is None else str(rejects))
    if checkpoint is not None:
        summary = _stream(step, source, checkpoint, format=format, options=options, schema=schema, tell=tell)
    else:
        with tasks(spark, f"ingest into {queue}", tell):
            df = _table(spark, source, format=format, options=options or {}, schema=schema)
            found = key if key is not None else _fingerprint(spark, df, queue, mapped)
            summary = step.run(df, found, dry_run=dry_run)
    return msgspec.structs.replace(summary, seconds=time.monotonic() - started)


class _Step:
    """One batch of rows on its way in."""

    def __init__(
        self,
        spark: SparkSession,
        url: str | None,
        queue: str,
        mapped: Mapped,
        most: int,
        type: Any,
        rejects: str | None,
    ) -> None:
        self._spark, self._url, self._queue, self._mapped = spark, url, queue, mapped
        self._most, self._type, self._rejects = most, type, rejects

    def run(self, df: DataFrame, key: str | None, *, dry_run: bool = False) -> IngestSummary:
        made = messages(df, self._mapped, most=self._most, type=self._type).persist()
        try:
            reasons = {row[REASON]: row["count"] for row in made.groupBy(REASON).count().collect()}
            accepted, rejected = reasons.pop(None, 0), sum(reasons.values())
            place = None
            added = 0
            if not dry_run:
                added = self._write(made, key, accepted)
                place = self._reject(made, key) if rejected else None
        finally:
            made.unpersist()
        read = accepted + rejected
        return IngestSummary(self._queue, read, accepted, rejected, added, place, reasons, key, 0.0)

    def _write(self, made: DataFrame, key: str | None, accepted: int) -> int:
        from .. import register

        register(self._spark)
        if not accepted or (key is not None and was_published(self._url, self._queue, key)):
            return 0
        good = made.where(f"{REASON} is null").select(*self._mapped.written())
        writer = good.write.format("holdfast").mode("append")
        for name, value in (("url", self._url), ("idempotencyKey", key)):
            writer = writer if value is None else writer.option(name, value)
        writer.save(self._queue)
        return accepted

    def _reject(self, made: DataFrame, key: str | None) -> str | None:
        if self._rejects is None:
            return None
        place = f"{self._rejects}/{(key or 'once').replace('/', '-')}"
        made.where(f"{REASON} is not null").select(ROW, REASON).write.mode("overwrite").parquet(place)
        return place


def _stream(
    step: _Step,
    source: Any,
    checkpoint: str | os.PathLike[str],
    *,
    format: str | None,
    options: Mapping[str, str] | None,
    schema: str | None,
    tell: Tell,
) -> IngestSummary:
    """New files only, each once: Spark's checkpoint knows the files, the queue knows the batches."""
    spark, sums = step._spark, []
    kind = format or _format(str(source))
    with in_plain_words():
        batch = _table(spark, source, format=kind, options=options or {}, schema=schema)
    live = (
        spark.readStream.format(kind).schema(batch.schema).options(**_defaults(kind, options or {})).load(str(source))
    )

    def each(df: DataFrame, number: int) -> None:
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        sums.append(step.run(df, f"ingest/{query}/{number}"))

    query = live.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    running = query.trigger(availableNow=True).start()
    with tasks(spark, "ingest: new files", tell):
        running.awaitTermination()
    return _summed(step._queue, sums)


def _summed(queue: str, sums: list[IngestSummary]) -> IngestSummary:
    reasons: dict[str, int] = {}
    for one in sums:
        for reason, count in one.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    read, accepted, rejected, added = (
        sum(getattr(one, name) for one in sums) for name in ("read", "accepted", "rejected", "added")
    )
    place = next((one.rejects for one in sums if one.rejects), None)
    return IngestSummary(queue, read, accepted, rejected, added, place and str(Path(place).parent), reasons, None, 0.0)


def was_published(url: str | None, queue: str, key: str) -> bool:
    """Whether a write under this key is in the queue already."""
    from ...stores.batches import batches_of
    from ..writing import sink_of

    async def look(broker: Broker) -> bool:
        return await batches_of(broker.store).published(queue, sink_of(key)) is not None

    return ask(url, look)


def _table(
    spark: SparkSession, source: Any, *, format: str | None, options: Mapping[str, str], schema: str | None
) -> DataFrame:
    """The rows of the source; lines that cannot be read have their text in a column of its own."""
    if not isinstance(source, str | os.PathLike):
        return source  # type: ignore[no-any-return]  # a DataFrame
    place = os.fspath(source)
    kind = format or _format(place)
    reader = spark.read.format(kind).options(**_defaults(kind, options))
    if schema is not None:
        return reader.schema(f"{schema}, {CORRUPT} string" if kind in _LINES else schema).load(place)
    if kind not in _LINES:
        return reader.load(place)
    guessed = reader.load(place).schema
    if CORRUPT not in guessed.fieldNames():
        guessed = guessed.add(CORRUPT, "string")
    return spark.read.format(kind).options(**_defaults(kind, options)).schema(guessed).load(place)


def _format(place: str) -> str:
    name = place.rstrip("/").lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    kind = _ENDINGS.get(Path(name).suffix)
    if kind is None:
        raise ConfigError(f"{place}: which format? Say csv, json, parquet, orc, text or any other that Spark reads")
    return kind


def _defaults(kind: str, options: Mapping[str, str]) -> dict[str, str]:
    own = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
    return {**own, **({"columnNameOfCorruptRecord": CORRUPT} if kind in _LINES else {}), **options}


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
    jvm: Any = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    said = [queue, msgspec.json.encode(mapped).decode()]
    for file in files:
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
        status = path.getFileSystem(conf).getFileStatus(path)
        said.append(f"{file} {status.getLen()} {status.getModificationTime()}")
    return "ingest-" + hashlib.blake2b("\n".join(said).encode(), digest_size=12).hexdigest()
