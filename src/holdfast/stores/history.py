"""The attempts that a message remembers, as columns of tables have them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ..limits import HISTORY_ATTEMPTS
from .records import Attempt


@cache
def arrow_type() -> Any:
    """A list of rows in each row."""
    import pyarrow as pa

    instant, text = pa.timestamp("us", tz="UTC"), pa.string()
    return pa.list_(pa.struct([("start", instant), ("end", instant), ("worker", text), ("error", text)]))


@cache
def _numbers_type() -> Any:
    import pyarrow as pa

    number, text = pa.int64(), pa.string()
    return pa.list_(pa.struct([("start", number), ("end", number), ("worker", text), ("error", text)]))


def from_arrow(column: Any) -> list[tuple[Attempt, ...]]:
    """A column's, row by row. Its instants as numbers: pyarrow loads pandas for others, where that is installed."""
    return [
        tuple([Attempt(_seconds(one["start"]), one["end"] / 1e6, one["worker"], one["error"]) for one in each or ()])
        for each in column.cast(_numbers_type()).to_pylist()
    ]


def to_arrow(found: Sequence[Attempt]) -> list[dict[str, Any]] | None:
    """As `pyarrow.array` takes one row's; None: there are none."""
    return [
        {
            "start": None if each.start is None else round(each.start * 1e6),
            "end": round(each.end * 1e6),
            "worker": each.worker,
            "error": each.error,
        }
        for each in found
    ] or None


def _seconds(instant: int | None) -> float | None:
    return None if instant is None else instant / 1e6


def joined(*parts: Sequence[Attempt] | None) -> tuple[Attempt, ...]:
    """The newest of them all, which come in the order of time."""
    return tuple([each for part in parts for each in part or ()][-HISTORY_ATTEMPTS:])
