"""The format `holdfast`: what Spark asks of a data source."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from . import options, schema
from .reading import check, reader


class HoldfastSource(DataSource):
    """Queues as tables and streams. Options are checked in each call: Spark allows no constructor of our own."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        read = options.reading(self.options)
        check(read)  # here, so that load() says what is wrong, not the first action
        return schema.of_stats() if read.stats else schema.of_view(read.view)

    def reader(self, schema: StructType) -> DataSourceReader:
        return reader(options.reading(self.options), schema)
