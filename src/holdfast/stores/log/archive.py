"""Finished messages as Parquet files that Spark, DuckDB and pandas read as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...errors import Damaged, StoreError
from .. import history
from ..records import Stored
from . import arrow, damage, names
from .names import ArchiveName
from .space import Buffer, Reading

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = tuple(name for name in Stored.__struct_fields__ if name not in ("payload", "visible_at"))
_INSTANTS = ("enqueued_at", "claimed_at", "finished_at", "expires")
_PAGE = 10_000
FORMAT = 1


@cache
def schema() -> Any:
    """Of every file."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("id", pa.string()),
            ("queue", pa.string()),
            ("value", pa.binary()),
            ("content_type", pa.string()),
            ("headers", pa.map_(pa.string(), pa.string())),
            ("priority", pa.int32()),
            ("attempts", pa.int32()),
            ("max_attempts", pa.int32()),
            ("enqueued_at", instant),
            ("claimed_at", instant),
            ("finished_at", instant),
            ("status", pa.string()),
            ("result", pa.binary()),
            ("error", pa.string()),
            ("worker", pa.string()),
            ("token", pa.string()),
            ("own_max_attempts", pa.int32()),  # None: the queue's
            ("expires", instant),
            ("history", history.arrow_type()),
        ],
        metadata={"holdfast": str(FORMAT)},
    )


def encode(
    queue: str, records: Sequence[Stored], tokens: Sequence[str | None], own: Sequence[int | None] | None = None
) -> Buffer:
    """A Parquet file of these records, which come in id order."""
    return written(table(queue, records, tokens, own))


def table(
    queue: str, records: Sequence[Stored], tokens: Sequence[str | None], own: Sequence[int | None] | None = None
) -> pa.Table:
    """The columns of these records; `own` are the attempts that messages asked for themselves, None: the queue's."""
    import pyarrow as pa

    columns: dict[str, Sequence[Any]] = {
        "id": [each.id for each in records],
        "queue": [queue] * len(records),
        "value": [each.payload for each in records],
        "content_type": [each.content_type for each in records],
        "headers": [list(each.headers.items()) if each.headers else None for each in records],
        "priority": [each.priority for each in records],
        "attempts": [each.attempts for each in records],
        "max_attempts": [each.max_attempts for each in records],
        "enqueued_at": [microseconds(each.enqueued_at) for each in records],
        "claimed_at": [microseconds(each.claimed_at) if each.claimed_at else None for each in records],
        "finished_at": [microseconds(each.finished_at or 0.0) for each in records],
        "status": [each.status for each in records],
        "result": [each.result for each in records],
        "error": [each.error for each in records],
        "worker": [each.worker for each in records],
        "token": list(tokens),
        "own_max_attempts": [None] * len(records) if own is None else [each or None for each in own],
        "expires": [microseconds(each.expires) if each.expires else None for each in records],
        "history": [each.history or None for each in records],
    }
    known = schema()
    return pa.table([arrow.column(columns[field.name], field.type) for field in known], schema=known)


def microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def joined(parts: Sequence[pa.Table]) -> pa.Table:
    """Tables that are in id order each, as one that is, with each id once: a crash leaves a file beside its parts."""
    import pyarrow as pa

    ends = sorted((part["id"][0].as_py(), part["id"][-1].as_py(), place) for place, part in enumerate(parts))
    whole = pa.concat_tables([parts[place] for _, _, place in ends])
    if all(last < first for (_, last, _), (first, _, _) in pairwise(ends)):
        return whole
    ids = whole["id"].to_pylist()
    places = list(dict(sorted(zip(ids, range(len(ids)), strict=True))).values())
    return arrow.taken(whole, places)


def written(rows: pa.Table) -> Buffer:
    """A Parquet file of these rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pool = pa.system_memory_pool()  # the default one keeps what a large file needed
    sink = pa.BufferOutputStream(pool)
    pq.write_table(
        rows, sink, compression="zstd", compression_level=1, use_dictionary=_REPETITIVE, memory_pool=pool,
        write_page_checksum=True,  # for other programs: our own reads verify the sum of the whole file
    )  # fmt: skip
    return memoryview(sink.getvalue())


# A dictionary of ids or payloads would be built, found useless and thrown away.
_REPETITIVE = ["queue", "content_type", "priority", "attempts", "max_attempts", "status", "error", "worker", "token"]
_REPETITIVE += ["own_max_attempts"]


def decode(data: bytes) -> tuple[list[Stored], list[str | None]]:
    """The records of a file, in id order, and their tokens."""
    import pyarrow as pa

    table = _columns(data, schema().names)
    instants = {name: table.column(name).cast(pa.int64()).to_pylist() for name in _INSTANTS}
    columns = {name: table.column(name).to_pylist() for name in _COLUMNS if name not in (*instants, "history")}
    histories = history.from_arrow(table.column("history"))
    payloads = table.column("value").to_pylist()
    records = [
        Stored(
            columns["id"][row],
            columns["status"][row],
            payloads[row],
            columns["content_type"][row],
            dict(columns["headers"][row]) if columns["headers"][row] else None,
            columns["priority"][row],
            columns["attempts"][row],
            columns["max_attempts"][row],
            instants["enqueued_at"][row] / 1e6,
            None,
            instants["finished_at"][row] / 1e6,
            columns["result"][row],
            columns["error"][row],
            columns["worker"][row],
            claimed / 1e6 if (claimed := instants["claimed_at"][row]) is not None else None,
            until / 1e6 if (until := instants["expires"][row]) is not None else None,
            histories[row],
        )
        for row in range(len(payloads))
    ]
    return records, table.column("token").to_pylist()


def columns(data: bytes) -> pa.Table:
    """The rows of a file as columns."""
    table = _columns(data, schema().names)
    table.validate(full=True)  # text that is none would go on into the next file
    return table


def without(data: bytes, *, gone: Collection[str] | None, before: float | None) -> pa.Table | None:
    """The rows of a file but for these ids, or those that ended before; None: all of them, as those columns tell."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tested = _columns(data, ["id", "finished_at"])
    ids, goes = tested["id"], []
    if gone is not None:
        goes.append(pc.is_in(ids, value_set=arrow.column(sorted(gone), ids.type)))
    if before is not None:
        ended = tested["finished_at"].cast("int64").cast("double")
        million, limit = arrow.column([1e6, before], pa.float64())
        goes.append(pc.less(pc.divide(ended, million), limit))
    both = reduce(pc.and_, goes)
    return columns(data).filter(pc.invert(both)) if pc.any(both).as_py() else None


def own_attempts(data: bytes) -> list[int | None]:
    """By row: the attempts a message asked for itself; None: the queue's. Older files do not say."""
    return list(_columns(data, ["own_max_attempts"]).column("own_max_attempts").to_pylist())


def _columns(data: bytes, names: Sequence[str]) -> pa.Table:
    """These columns of a file; one that older files do not have is empty.

    Not by `read_table`, which loads the part of pyarrow for folders of files: 45 MB.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data))
    check_format(file.schema_arrow)
    known, kept = schema(), file.schema_arrow.names
    table = file.read(columns=[name for name in names if name in kept], use_threads=False)
    fields = [known.field(name) for name in names]
    found = [
        arrow.as_type(table.column(each.name), each.type)
        if each.name in kept
        else pa.nulls(file.metadata.num_rows, each.type)
        for each in fields
    ]
    return pa.table(found, schema=pa.schema(fields, metadata=known.metadata))


def read(key: str, data: bytes) -> tuple[list[Stored], list[str | None]]:
    """The same; Damaged."""
    return damage.read(key, decode, data)


def check_format(schema: Any) -> None:
    format = int((schema.metadata or {}).get(b"holdfast", b"1"))
    if format > FORMAT:
        raise StoreError(f"an archive file has format {format}, this version reads up to {FORMAT}: upgrade holdfast")


def files(view: Reading, root: str) -> list[ArchiveName]:
    """The archive files of a queue, by what their names say."""
    found: list[ArchiveName] = []
    for key in _keys(view, root):
        with suppress(names.BadKey):  # `unnamed` has it
            found.append(names.parse_archive(key))
    return found


def unnamed(view: Reading, root: str) -> Iterator[Damaged]:
    """Objects among them whose names say nothing."""
    for key in _keys(view, root):
        try:
            names.parse_archive(key)
        except names.BadKey as error:
            yield damage.damaged(key, str(error))


def _keys(view: Reading, root: str) -> Iterator[str]:
    after = ""
    while page := view.list(root + "archive/", after=after, limit=_PAGE):
        after = page[-1]
        yield from page


def holding(found: Sequence[ArchiveName], id: str) -> list[ArchiveName]:
    """The files that may hold an id (32 hex digits)."""
    return [each for each in found if each.first <= id <= each.last]
