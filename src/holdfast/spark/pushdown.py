"""Spark's filters as ours, and whether Spark is asking for them at all."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

from pyspark.sql import datasource as spark

from ..stores.batches import FILTERED, Filter, Op
from .options import instant

ASKING = "pyspark.sql.worker.data_source_pushdown_filters"
_OPS: dict[type, Op] = {
    spark.EqualTo: "=",
    spark.In: "in",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
}


def asked() -> bool:
    """Whether this process was started to push filters down.

    A reader that can do it fails every read while `spark.sql.python.filterPushdown.enabled` is off, which is the
    default, and a reader cannot see that setting: but Spark plans with another program when it is on.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return ASKING in sys.modules or (main is not None and main.name == ASKING)


def ours(given: spark.Filter, columns: tuple[str, ...]) -> Filter | None:
    """The same filter in our words; None: Spark has to apply it."""
    op = _OPS.get(type(given))
    path: tuple[str, ...] = getattr(given, "attribute", ())
    if op is None or len(path) != 1 or path[0] not in FILTERED or path[0] not in columns:
        return None
    values = list(given.value) if isinstance(given, spark.In) else [given.value]  # type: ignore[attr-defined]  # as `op` says
    plain: list[Any] = [_value(path[0], each) for each in values]
    if not plain or any(each is None for each in plain):
        return None
    return Filter(path[0], op, plain if op == "in" else plain[0])


def _value(column: str, value: Any) -> str | int | None:
    """A value of the column's own kind, or None."""
    if column.endswith("_at"):
        # Without a zone it is local time of a session that we cannot see.
        return instant(value) if isinstance(value, datetime) and value.tzinfo is not None else None
    kind = int if column == "priority" else str
    return value if isinstance(value, kind) and not isinstance(value, bool) else None
