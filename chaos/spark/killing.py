"""The format `holdfast` with a fault in it: at a named point, once, the driver or the executor is killed.

The points are methods that Spark calls, so nothing in Holdfast knows of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from holdfast.spark import options
from holdfast.spark.source import HoldfastSource
from holdfast.spark.streaming import Offset, StreamReader
from holdfast.spark.writing import Message, StreamWriter

# In the order of a micro-batch.
POINTS = (
    "owned",  # the consumer is ours, nothing is claimed
    "before settle",  # Spark has committed a batch, the store does not know
    "claimed",  # before Spark's offset log
    "planned",  # after the offset log
    "reading",  # while tasks run
    "staged",  # all tasks are done, nothing is published
    "published",  # before Spark's commit log
    "executor",  # while tasks run, and only the executor
)


class Fault:
    """Kills at one point; a marker makes sure that it happens once, whichever process comes there first."""

    def __init__(self, point: str, marker: str) -> None:
        self.point = point
        self.marker = marker

    def at(self, point: str) -> None:
        if point == self.point and self._first():
            kill_executor() if point == "executor" else kill_driver()

    def _first(self) -> bool:
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def ancestors(pid: int) -> Iterator[tuple[int, str]]:
    """The processes above one, nearest first, with the names of their programs."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid > 1:
            yield pid, os.path.basename(os.path.realpath(f"/proc/{pid}/exe"))


def kill_driver() -> None:
    """The Java process at the top, the program that started it, and ourselves last."""
    above = list(ancestors(os.getpid()))
    top = max(place for place, (_, name) in enumerate(above) if name == "java")
    victims = [above[top][0]]
    if top + 1 < len(above) and above[top + 1][1].startswith("python"):
        victims.insert(0, above[top + 1][0])
    _kill([*victims, os.getpid()])


def kill_executor() -> None:
    """The Java process that started us."""
    _kill([next(pid for pid, name in ancestors(os.getpid()) if name == "java"), os.getpid()])


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class KillingSource(HoldfastSource):
    """`format("killing")`: takes two more options, `killAt` and `killMarker`."""

    @classmethod
    def name(cls) -> str:
        return "killing"

    def _parted(self) -> tuple[CaseInsensitiveDict, Fault]:
        own = CaseInsensitiveDict(dict(self.options))
        fault = Fault(own.pop("killAt", ""), own.pop("killMarker", ""))
        return own, fault

    def schema(self) -> StructType:
        return HoldfastSource(self._parted()[0]).schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        own, fault = self._parted()
        return _Reader(options.streaming(own), schema, fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        own, fault = self._parted()
        return _Writer(options.writing(own, stream=True), schema, fault)


class _Reader(StreamReader):
    def __init__(self, options: Any, wanted: StructType, fault: Fault) -> None:
        super().__init__(options, wanted)
        self._fault = fault

    def initialOffset(self) -> Offset:
        made = super().initialOffset()
        self._fault.at("owned")
        return made

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        if start["seq"] > 0:
            self._fault.at("before settle")
        made = super().latestOffset(start, limit)
        if made != start:
            self._fault.at("claimed")
        return made

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        made = super().partitions(start, end)
        self._fault.at("planned")
        return made

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            yield batch
            self._fault.at("reading")
            self._fault.at("executor")


class _Writer(StreamWriter):
    def __init__(self, options: Any, schema: StructType, fault: Fault) -> None:
        super().__init__(options, schema)
        self._fault = fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._fault.at("staged")
        super().commit(messages, batchId)
        self._fault.at("published")
