"""Queues as Spark tables and streams: the format `holdfast` (PySpark 4.3, Python Data Source API).

`register(spark)` makes the format known to a session. Sessions that find the module `pyspark_holdfast` on their path
know it already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError

try:
    import pyspark  # noqa: F401 - everything below needs it, and should not be the one to say so
except ImportError as error:
    raise ConfigError("Spark jobs need PySpark: pip install 'holdfast[spark]'") from error

from . import workers_python
from .receipts import settle
from .source import HoldfastSource
from .tables import table_sink
from .values import pack, unpack
from .watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "HoldfastSource", "Watch", "pack", "register", "settle", "table_sink", "unpack"]

DefaultSource = HoldfastSource


def register(spark: SparkSession) -> None:
    """Make `format("holdfast")` known to this session; ConfigError when its workers run a Python that cannot serve."""
    workers_python.check(spark)
    spark.dataSource.register(HoldfastSource)
