"""`spark.read.format("holdfast").option("table", …)`: a Delta table by itself for Spark, without a jar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ...errors import ConfigError
from .. import schema
from ..error_text import plain
from ..options import TableReading
from .delta import State, table_at
from .place import Place, open_place
from .reading import COPIED_ROWS, Piece, constant, shared_out
from .source import LakePartition

if TYPE_CHECKING:
    import pyarrow as pa


class TableReader(DataSourceReader):
    """Pickled to executors, so it holds nothing open; it reads the version that it planned."""

    def __init__(self, asked: TableReading, wanted: StructType) -> None:
        self._asked = asked
        self._wanted = wanted

    @plain
    def partitions(self) -> list[InputPartition]:
        state = _state(self._asked)
        schema.check(self._wanted, _columns(state), "the table")
        return [LakePartition(pieces) for pieces in shared_out(state.files)]

    @plain
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LakePartition):  # Spark makes an empty one of no partitions
            return
        place, fitting = open_place(self._asked.table), schema.Fitting(self._wanted)
        for piece in partition.pieces:
            for batch in _read(place, piece, self._wanted):
                yield fitting.fit(batch)


def columns(asked: TableReading) -> StructType:
    """Of a version of a table; ConfigError."""
    return _columns(_state(asked))


def _columns(state: State) -> StructType:
    return StructType.fromJson(msgspec.json.decode(state.schema))


def _state(asked: TableReading) -> State:
    table = table_at(open_place(asked.table))
    if table is None:
        raise ConfigError(f"there is no Delta table at {open_place(asked.table).shown}")
    return table.state(asked.version)


def _read(place: Place, piece: Piece, wanted: StructType) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds: Any = to_arrow_schema(wanted, timezone="UTC")
    with pq.ParquetFile(place.source(piece.path), page_checksum_verification=True, pre_buffer=True) as file:
        groups = piece.groups(file.num_row_groups)
        if not groups:
            return
        there = [name for name in file.schema_arrow.names if name in kinds.names]
        for rows in file.iter_batches(COPIED_ROWS, row_groups=groups, columns=there or file.schema_arrow.names[:1]):
            arrays = [
                constant(piece.partition.get(field.name), field.type, rows.num_rows)
                if field.name not in there
                else rows[field.name]
                for field in kinds
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=kinds.names)
