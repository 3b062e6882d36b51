"""The format `holdfast`: what Spark asks of a data source."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .. import config
from ..errors import ConfigError, HoldfastError
from . import options, schema
from .error_text import in_worker, plain
from .lake import source as lake
from .lake import table_source, tables
from .lake.reading import Chosen
from .reading import check, reader
from .several import SeveralReader
from .streaming import Refused, StreamReader
from .writing import BatchWriter, StreamWriter, refuse_overwrite


class HoldfastSource(DataSource):
    """Queues as tables and streams. Options are checked in each call: Spark allows no constructor of our own."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    @plain
    def schema(self) -> StructType:
        """Of a read or of a stream: Spark does not say which it plans, but only a stream has a consumer."""
        if "consumer" in self.options:
            streamed = options.streaming(self.options)
            check(streamed.place)
            return schema.of_stream(receipts=streamed.receipts)
        if "lake" in self.options:
            chosen = _chosen(self.options)
            lake.check(chosen)
            return lake.of_view(chosen.view)
        if "table" in self.options:
            return table_source.columns(options.table_reading(self.options))
        read = options.reading(self.options)
        check(read.place)  # here, so that load() says what is wrong, not the first action
        return schema.of_read(read)

    @plain
    def reader(self, schema: StructType) -> DataSourceReader:
        if "lake" in self.options:
            return lake.LakeReader(_chosen(self.options), schema)
        if "table" in self.options:
            return table_source.TableReader(options.table_reading(self.options), schema)
        return reader(options.reading(self.options), schema)

    @plain
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            streamed = options.streaming(self.options)
            return (StreamReader if streamed.place.queue else SeveralReader)(streamed, schema)
        except HoldfastError as error:
            if not in_worker():
                raise
            return Refused(error)  # Spark stops the reader that it did not get, and says only that

    @plain
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        refuse_overwrite(overwrite)
        return BatchWriter(options.writing(self.options, stream=False), schema)

    @plain
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        refuse_overwrite(overwrite)
        return StreamWriter(options.writing(self.options, stream=True), schema)


def _chosen(given: Mapping[str, str]) -> Chosen:
    """What is to be read of a lake; ConfigError."""
    asked = options.lake_reading(given)
    view = asked.view or tables.MESSAGES
    if view not in tables.VIEWS:
        raise ConfigError(config.unknown("a lake has no view called", view, tables.VIEWS))
    return Chosen(asked.lake, view, asked.version, asked.queues, asked.since, asked.until)
