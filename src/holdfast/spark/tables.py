"""`table_sink`: what streams write with into a table of a queue's typed fields, each message once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import config
from ..errors import ConfigError
from .lake.adding import WRITTEN, Added, Format, Order, TableTask, TypedTable, Written
from .lake.place import open_place
from .lake.typed import KEPT, Layout
from .options import check_url
from .schema import RECEIPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY = "sql.streaming.queryId"  # the property under which Spark names the query of a micro-batch


def table_sink(
    table: str | os.PathLike[str],
    type: Any,
    *,
    url: str | None = None,
    keep: Sequence[str] = KEPT,
    by_day: bool = False,
    format: Format = "delta",
) -> TableSink:
    """What `foreachBatch` writes with into a Delta table of the type's fields (`format="parquet"`: a folder of files).

    Each message becomes one row, whatever is killed or repeated; one that cannot be read becomes a dead letter with
    the reason, so the stream needs `withReceipts`. `keep` are columns of the message that are kept as `message_…`;
    `by_day` divides the files by the UTC day on which a message was enqueued. The place is a folder that driver and
    executors share, or a bucket.
    """
    check_url(url)
    made = TypedTable(open_place(table), Layout(type, keep=keep, by_day=by_day), format=format)
    made.check()
    return TableSink(made, url)


class TableSink:
    """Call it with the rows and the number of a micro-batch; `write` is for rows of a batch read."""

    def __init__(self, table: TypedTable, url: str | None) -> None:
        self._table, self._url = table, url

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._need(rows, RECEIPT, "queue")
        self._add(rows, _query_of(rows), number)

    def write(self, rows: DataFrame, *, key: str) -> Added:
        """Rows of a batch read, such as an archive's; messages that the table has are left out.

        `key` names this write: two of one name at once add nothing twice. A message that cannot be read fails it.
        """
        if rows.isStreaming:
            raise ConfigError("write adds rows of a batch read; give the sink itself to foreachBatch of a stream")
        self._need(rows)
        return self._add(rows, config.queue_name(key, what="bad key"), 0)

    def _need(self, rows: DataFrame, *more: str) -> None:
        for name in (*self._table.layout.needs, *more):
            if name not in rows.columns:
                why = ': read the stream with option("withReceipts", "true"), and keep it' if name == RECEIPT else ""
                raise ConfigError(f"the rows have no column {name!r}{why}")

    def _add(self, rows: DataFrame, writer: str, number: int) -> Added:
        names = dict.fromkeys(
            (*self._table.layout.needs, *(name for name in (RECEIPT, "queue") if name in rows.columns))
        )
        chosen = rows.select(*names)

        def do(order: Order) -> list[Written]:
            return written(chosen, TableTask(self._table.layout, order, url=self._url))

        return self._table.add(f"holdfast/table/{writer}", number, do)


def written(df: DataFrame, task: TableTask) -> list[Written]:
    """Run the task over rows; what goes wrong on an executor is said in plain words."""
    from .jobs.faults import in_plain_words  # the jobs are built on this

    with in_plain_words():
        return [msgspec.json.decode(row.written, type=Written) for row in df.mapInArrow(task, WRITTEN).collect()]


def _query_of(rows: DataFrame) -> str:
    """The query that a micro-batch is of; over Spark Connect nobody says, and each batch is compared with the table."""
    try:
        return str(rows.sparkSession.sparkContext.getLocalProperty(_QUERY) or "stream")
    except Exception:  # noqa: BLE001 - whatever a session without a context raises
        return "stream"
