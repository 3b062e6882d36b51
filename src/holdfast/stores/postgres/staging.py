"""Staged messages: copied into a table that nobody reads, then moved into the queue in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ... import ids as makers
from ...errors import QueueFull, StoreError
from ..batches import Staged
from ..consumers import missing_queue
from . import rows
from .partition import Topic
from .pool import Pool
from .registry import Registry
from .statements import Statements

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ["stage", "place", "id", "rank", "due", "content_type", "headers", "key", "payload"]
_COPY_ROWS = 5000  # of one COPY: a third more a second than with 2,000, and a tenth less than with 10,000
SINK_DAYS = 30.0  # after which a sink that publishes nothing is forgotten


class Stager:
    """One task's messages for one queue, under one stage."""

    def __init__(self, pool: Pool, sql: Statements, queue: str, root: str, number: Callable[[], int]) -> None:
        self._pool = pool
        self._sql = sql
        self._queue = queue
        self._root = root
        self._number = number
        self._stage = makers.text(number())
        self._count = 0
        self._size = 0

    async def add(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _COPY_ROWS):
            await self._copy(batch.slice(start, _COPY_ROWS))

    async def _copy(self, batch: pa.RecordBatch) -> None:
        records = self._records(batch)

        async def step(connection: Any) -> None:
            # A repeat after a lost answer finds the rows there: they have these positions and no others.
            await connection.fetch(self._sql["staged_clear"], self._stage, self._count)
            await connection.copy_records_to_table(
                "staged", schema_name=self._sql.schema, records=records, columns=_COLUMNS
            )

        await self._pool.transact(step, queue=self._queue)
        self._count += len(records)
        self._size += batch.nbytes

    def _records(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        import pyarrow as pa

        names, count = set(batch.schema.names), batch.num_rows
        nothing: list[Any] = [None] * count
        priorities = (
            [each or 0 for each in batch.column("priority").to_pylist()] if "priority" in names else [0] * count
        )
        dues = batch.column("deliver_at").cast(pa.int64()).to_pylist() if "deliver_at" in names else nothing
        headers = batch.column("headers").to_pylist() if "headers" in names else nothing
        kinds = (
            batch.column("content_type").to_pylist()
            if "content_type" in names
            else ["application/octet-stream"] * count
        )
        keys = batch.column("dedup_key").to_pylist() if "dedup_key" in names else nothing
        block = self._number()
        bases = {priority: makers.text(block | priority << 54)[:-5] for priority in set(priorities)}
        return [
            (
                self._stage,
                self._count + position,
                f"{bases[priority]}{position:05x}",
                255 - priority,
                None if due is None else datetime.fromtimestamp(due / 1e6, UTC),
                rows.content_type(kind),
                rows.headers_text(dict(header)) if header else None,
                None if key is None else key.encode(),
                payload,
            )
            for position, (priority, due, kind, header, key, payload) in enumerate(
                zip(priorities, dues, kinds, headers, keys, batch.column("value").to_pylist(), strict=True)
            )
        ]

    async def finish(self) -> list[Staged]:
        return [Staged(self._queue, self._root, self._stage, self._count, self._size)] if self._count else []


class StagedWrites:
    """Stages messages, and shows what was staged, once; see `stores/batches.py`."""

    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        topic: Callable[[str], Topic],
        *,
        number: Callable[[], int],
        changed: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._registry = registry
        self._topic = topic
        self._number = number
        self._changed = changed

    async def stager(self, queue: str) -> Stager:
        sql = self._topic(queue).sql
        found = await self._pool.fetch(sql["staged_count"], queue, [], None, queue=queue)
        if not found:
            raise missing_queue(queue)
        return Stager(self._pool, sql, queue, str(found[0][3]), self._number)

    async def published(self, queue: str, sink: str) -> int | None:
        found = await self._pool.fetch(self._topic(queue).sql["sink_look"], queue, sink, queue=queue)
        return found[0][0] if found else None

    async def publish(self, queue: str, sink: str | None, batch: int, staged: Sequence[Staged]) -> bool:
        options, room, sql = (await self._registry.must(queue)).options, None, self._topic(queue).sql
        if options.max_messages is not None:
            stats = await self._topic(queue).letters.stats(dead=False)
            room = options.max_messages - stats.pending - stats.delayed - stats.processing - stats.retry
        stages = [each.key for each in staged]
        expected = sum(each.rows for each in staged)

        async def step(connection: Any) -> bool:
            await connection.fetch(sql["lock"], f"holdfast.sink.{sql.schema}.{queue}.{sink}")
            found = await connection.fetch(sql["staged_count"], queue, stages, sink)
            if not found:
                raise missing_queue(queue)
            count, keyed, done, id = found[0]
            if done is not None and done >= batch:
                return False
            if any(each.root != str(id) for each in staged):
                raise StoreError(
                    f"queue {queue!r} was created again while messages were staged for it: write them again"
                )
            if count != expected:
                raise StoreError(
                    f"{expected} messages were staged for queue {queue!r}, {count} are there: the server crashed, or "
                    "they waited for more than an hour; write them again"
                )
            if room is not None and count > room:
                raise QueueFull(f"{queue} has room for {room} messages, and {count} are to be added")
            if keyed:
                await connection.fetch(sql["staged_take"], queue, stages, options.dedup_window)
            await connection.fetch(sql["staged_publish"], queue, stages)
            if sink is not None:
                await connection.fetch(sql["sink_note"], id, sink, batch)
            return True

        done = await self._pool.transact(step, queue=queue)
        self._changed(queue)
        return done

    async def sweep(self, queue: str, older_than: float) -> int:
        """Remove what nobody published, and forget sinks long unheard of."""
        sql = self._topic(queue).sql
        [(now,)] = await self._pool.fetch(sql["clock"])
        lowest = makers.text(max(0, int((now - older_than) * 1000 + 1)) << 80)
        return int((await self._pool.fetch(sql["pipelines_sweep"], queue, lowest, SINK_DAYS))[0][0])
