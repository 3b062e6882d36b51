"""Rows of a lake with instants as numbers, and what several aggregations of a report share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .periods import Period

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ENDS = ("completed", "failed", "dead")


def as_numbers(df: DataFrame) -> DataFrame:
    """`came`, `claimed` and `ended` are microseconds since 1970, so that no session's time zone has a part in it."""
    from pyspark.sql import functions as F

    moments = {"came": "enqueued_at", "claimed": "claimed_at", "ended": "finished_at"}
    there = {name: F.unix_micros(column) for name, column in moments.items() if column in df.columns}
    return df.withColumns(there).drop(*moments.values())


def during(df: DataFrame, start: float, end: float) -> DataFrame:
    """What ended from then until before then."""
    return df.where((df["ended"] >= in_micros(start)) & (df["ended"] < in_micros(end)))


def in_micros(seconds: float) -> int:
    return round(seconds * 1e6)


def seconds(column: Column) -> Column:
    return column / 1e6


def place(column: Column, period: Period) -> Column:
    """The step of the period that an instant is in; -1 is before it, and what is after it has none."""
    from pyspark.sql import functions as F

    at = F.floor((column - in_micros(period.origin)) / in_micros(period.step)).cast("int")
    return F.when(column < in_micros(period.start), -1).when(column < in_micros(period.end), at)


def counts() -> list[Column]:
    """How many ended in each way."""
    from pyspark.sql import functions as F

    return [F.count_if(F.col("status") == status).alias(status) for status in ENDS]
