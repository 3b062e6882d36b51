"""Streams as Spark reports them: how far each is behind and how fast it goes, for Prometheus and in the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from ..escaping import logger_named
from ..metrics import StreamMetrics

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

logger = logger_named("holdfast.spark")


class Standing(msgspec.Struct, frozen=True):
    """A source of ours in one report of a query."""

    consumer: str
    rows: int  # of this micro-batch
    lag: int | None  # messages that are ready and were not read yet
    arriving: float  # rows a second, as Spark measures them
    done: float


class Watch(StreamingQueryListener):
    """For `spark.streams.addListener`: logs every report of a stream from `holdfast`, and with `port` serves
    `/metrics` (the extra `server`) until `close`."""

    def __init__(self, port: int | None = None, host: str = "127.0.0.1") -> None:
        self.metrics = None if port is None else StreamMetrics()
        self._consumers: dict[str, set[str]] = {}  # by the run of a query
        if self.metrics is not None and port is not None:
            self.metrics.serve(port, host)

    def close(self) -> None:
        if self.metrics is not None:
            self.metrics.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known of its sources yet."""

    def onQueryIdle(self, event: Any) -> None:
        """What was reported last still holds."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        took = event.progress.batchDuration / 1000
        for each in standings(event.progress.sources):
            self._consumers.setdefault(str(event.progress.runId), set()).add(each.consumer)
            behind = "" if each.lag is None else f", {each.lag:,} behind"
            logger.info(
                "stream %s: %d messages in %.1f s (%.0f/s)%s", each.consumer, each.rows, took, each.done, behind
            )
            if self.metrics is not None:
                rates = (each.arriving, each.done)
                self.metrics.reported(each.consumer, rows=each.rows, seconds=took, lag=each.lag, rates=rates)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for consumer in self._consumers.pop(str(event.runId), set()):
            if event.exception is None:
                logger.info("stream %s has ended", consumer)
            else:
                logger.error("stream %s has failed: %s", consumer, event.exception.strip().partition("\n")[0])
            if self.metrics is not None:
                self.metrics.ended(consumer, failed=event.exception is not None)


def standings(sources: Any) -> Iterator[Standing]:
    """Those of ours among the sources of a report: they are known by their offsets."""
    for source in sources:
        end = _offset(source.endOffset)
        if end is not None:
            newest = _offset(source.latestOffset)
            lag = None if newest is None else max(0, newest.n - end.n)
            rates = (source.inputRowsPerSecond or 0.0, source.processedRowsPerSecond or 0.0)
            yield Standing(end.c, source.numInputRows, lag, *rates)


class _Offset(msgspec.Struct):
    """What the offsets of one queue and of several have in common."""

    c: str
    n: int
    v: int


def _offset(text: Any) -> _Offset | None:
    try:
        return msgspec.json.decode(text or "", type=_Offset)
    except (msgspec.MsgspecError, TypeError):
        return None
