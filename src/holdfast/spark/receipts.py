"""Rows of a stream that end by themselves: their receipts, and settling them on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from .. import config
from ..deliveries import Lease, write_receipt
from ..errors import ConfigError
from ..queue import Queue
from ..stores.base import PAGE_ROWS
from .link import Link, link
from .options import check_url
from .schema import RECEIPT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

Outcome: TypeAlias = Literal["completed", "failed", "dead", "released"]
MADE_OF = ("id", "token", "attempt", "max_attempts")
_REASONED = ("failed", "dead")


def added(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with the column `receipt`."""
    import pyarrow as pa

    columns = [batch.column(name).to_pylist() for name in MADE_OF]
    texts = [write_receipt(Lease(*row)) for row in zip(*columns, strict=True)]
    return batch.append_column(RECEIPT, pa.array(texts, pa.string()))


def settle(df: DataFrame, outcome: Outcome, reason: str | Column | None = None, *, url: str | None = None) -> int:
    """End rows of a micro-batch on executors, each by itself: `completed`, `failed` (retried as the queue's policy
    says), `dead` or `released`; how many were still the stream's to end.

    For `foreachBatch` of a stream with `withReceipts`; the rows need their columns `receipt` and `queue`. What is not
    ended like this is completed with its batch. `reason` is text or a column, for `failed` and `dead`.
    """
    from pyspark.sql import functions as F

    check_url(url)
    if outcome not in get_args(Outcome):
        raise ConfigError(config.unknown("outcome: unknown outcome", outcome, get_args(Outcome)))
    if (outcome in _REASONED) != (reason is not None):
        raise ConfigError(f"reason: {outcome} {'needs a' if reason is None else 'takes no'} reason")
    if df.isStreaming:
        raise ConfigError("settle ends rows of one micro-batch: call it in foreachBatch")
    for name in (RECEIPT, "queue"):
        if name not in df.columns:
            raise ConfigError(
                f'the rows have no column {name!r}: read the stream with option("withReceipts", "true"), and keep it'
            )
    why = F.lit(reason) if reason is None or isinstance(reason, str) else reason
    rows = df.select(RECEIPT, "queue", why.cast("string").alias("reason"))
    return sum(row.settled for row in rows.mapInArrow(SettleTask(url, outcome), "settled long").collect())


class SettleTask:
    """For `mapInArrow` over receipts. A task that runs twice finds its rows ended as it wants them."""

    def __init__(self, url: str | None, outcome: Outcome) -> None:
        self._url, self._outcome = url, outcome

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        at, count = link(self._url), 0
        for batch in batches:
            for start in range(0, batch.num_rows, PAGE_ROWS):
                page = batch.slice(start, PAGE_ROWS)
                rows = [page.column(name).to_pylist() for name in (RECEIPT, "queue", "reason")]
                count += at.run(settled(at, self._outcome, list(zip(*rows, strict=True))))
        yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], names=["settled"])


async def settled(at: Link, outcome: Outcome, rows: Sequence[tuple[str, str, str | None]]) -> int:
    """Settle rows (receipt, queue, reason), those of one queue and reason together; how many could be."""
    together: dict[tuple[str, str], list[str]] = {}
    for receipt, queue, reason in rows:
        together.setdefault((queue, reason or "no reason"), []).append(receipt)
    done = 0
    for (name, why), receipts in together.items():
        of: Queue[object] = await at.broker.queue(name)
        done += sum(await _end(of, outcome, receipts, why))
    return done


async def _end(queue: Queue[object], outcome: Outcome, receipts: list[str], reason: str) -> list[bool]:
    if outcome == "completed":
        return await queue.complete_many(receipts)
    if outcome == "failed":
        return await queue.fail_many(receipts, reason)
    if outcome == "dead":
        return await queue.kill_many(receipts, reason)
    return await queue.release_many(receipts)
