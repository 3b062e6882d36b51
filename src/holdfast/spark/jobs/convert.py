"""`holdfast pipeline convert`: a lake of 0.1.0 becomes one of Delta tables, where it lies."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from ..lake import Lake, converting
from .progress import Tell, silent, tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConvertSummary(msgspec.Struct, frozen=True):
    """What a conversion made."""

    lake: str
    version: int
    rows: int  # messages
    replayed: int
    files: int
    seconds: float


def convert(spark: SparkSession, lake: str | os.PathLike[str], *, tell: Tell = silent) -> ConvertSummary:
    """Write the rows of an old lake as Delta tables, then delete the old files. Killed, it is run again."""
    place, started = Lake(lake), time.monotonic()
    with tasks(spark, "convert: writing the tables", tell):
        rows = converting.convert(spark, place)
    messages, replayed = place.messages.state(), place.replayed.state()
    files = len(messages.files) + len(replayed.files)
    return ConvertSummary(place.shown, messages.version, rows, replayed.rows, files, time.monotonic() - started)
