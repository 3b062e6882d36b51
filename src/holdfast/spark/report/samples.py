"""The payloads of a report's samples, read on the driver: of each its own row group, not the whole table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ..lake import Lake, State
from .figures import TEXT_CHARS, Reason
from .frame import MOST_SHOWN

if TYPE_CHECKING:
    from ..lake import File


def with_values(lake: Lake, state: State, reasons: list[Reason]) -> list[Reason]:
    """The first reasons, with what their sample said."""
    shown = [msgspec.structs.replace(one, value=_value(lake, state, one)) for one in reasons[:MOST_SHOWN]]
    return [*shown, *reasons[MOST_SHOWN:]]


def _value(lake: Lake, state: State, reason: Reason) -> str | None:
    for file in state.files:
        if file.partition["queue"] == reason.queue and _may_hold(file, reason.last):
            found = _in_file(lake, file, reason)
            if found is not None:
                return as_text(*found)
    return None


def _may_hold(file: File, at: float) -> bool:
    return (file.first is None or file.first <= at) and (file.last is None or at <= file.last)


def _in_file(lake: Lake, file: File, reason: Reason) -> tuple[bytes | None, str | None] | None:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    moment = datetime.fromtimestamp(reason.last, UTC)
    with pq.ParquetFile(lake.messages.place.source(file.path)) as opened:
        for group in range(opened.num_row_groups):
            if not _group_may_hold(opened.metadata.row_group(group), moment):
                continue
            keys = opened.read_row_group(group, columns=["id", "status"])
            is_it = pc.and_(pc.equal(keys["id"], reason.example), pc.equal(keys["status"], reason.status))
            if pc.any(is_it).as_py():
                [row] = opened.read_row_group(group, columns=["value", "content_type"]).filter(is_it).to_pylist()[:1]
                return row["value"], row["content_type"]
    return None


def _group_may_hold(group: Any, moment: datetime) -> bool:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "finished_at" and column.statistics is not None and column.statistics.has_min_max:
            return bool(column.statistics.min <= moment <= column.statistics.max)
    return True


def as_text(value: bytes | None, content_type: str | None) -> str:
    """The beginning of a payload; what is not text is said in words."""
    if value is None:
        return "no value"
    try:
        text = value[: 4 * TEXT_CHARS].decode(errors="strict" if len(value) <= 4 * TEXT_CHARS else "ignore")
    except UnicodeDecodeError:
        return f"{len(value):,} bytes of {content_type or 'an unknown type'}"
    if "\0" in text:
        return f"{len(value):,} bytes of {content_type or 'an unknown type'}"
    return text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}… ({len(value):,} bytes in all)"
