"""The attempts that a message remembers, as columns of tables have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
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


def from_arrow(found: Sequence[Mapping[str, Any]] | None) -> tuple[Attempt, ...]:
    """One row's, as pyarrow gives it out."""
    return tuple(
        [
            Attempt(_seconds(each["start"]), each["end"].timestamp(), each["worker"], each["error"])
            for each in found or ()
        ]
    )


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


def _seconds(instant: datetime | None) -> float | None:
    return None if instant is None else instant.timestamp()


def joined(*parts: Sequence[Attempt] | None) -> tuple[Attempt, ...]:
    """The newest of them all, which come in the order of time."""
    return tuple([each for part in parts for each in part or ()][-HISTORY_ATTEMPTS:])
