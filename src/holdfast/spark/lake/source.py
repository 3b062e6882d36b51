"""`spark.read.format("holdfast").option("lake", …)`: the lake for Spark, planned from Delta's log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...errors import ConfigError
from .. import schema
from ..error_text import plain
from . import tables
from .lake import Lake
from .reading import Chosen, Piece, plan, read

if TYPE_CHECKING:
    import pyarrow as pa


class LakePartition(InputPartition):
    """Files for one task."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces


class LakeReader(DataSourceReader):
    """Pickled to executors, so it holds nothing open; it reads the version that it planned."""

    def __init__(self, chosen: Chosen, wanted: StructType) -> None:
        schema.check(wanted, of_view(chosen.view), f"the view {chosen.view} of a lake")
        self._chosen = chosen
        self._wanted = wanted

    @plain
    def partitions(self) -> list[InputPartition]:
        return [LakePartition(pieces) for pieces in plan(self._chosen)]

    @plain
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LakePartition):  # Spark makes an empty one of no partitions
            return
        fitting = schema.Fitting(self._wanted)
        for batch in read(self._chosen, partition.pieces, self._wanted.names):
            yield fitting.fit(batch)


def of_view(view: str) -> StructType:
    """The columns of a view, as Spark knows them."""
    from pyspark.sql.types import DateType

    made = StructType()
    for name in tables.COLUMNS[view]:
        made.add(name, DateType() if name == "day" else schema.type_of(name))
    return made


def check(chosen: Chosen) -> None:
    """Look for the lake and the version; ConfigError."""
    lake = Lake(chosen.lake)
    state = lake.state() if tables.table_of(chosen.view) == tables.MESSAGES else lake.replayed.state()
    if state.version < 0 and chosen.view != tables.REPLAYED:
        raise ConfigError(f"there is no lake at {lake.shown}; make one with `holdfast pipeline lake QUEUE… LAKE`")
    if chosen.version is not None and not 0 <= chosen.version <= state.version:
        raise ConfigError(f"versionAsOf: {lake.shown} has versions up to {state.version}, not {chosen.version}")
