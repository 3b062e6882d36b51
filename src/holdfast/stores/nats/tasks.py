"""Tasks and records as bytes: from an envelope, and back to what the seam gives out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ...config import QueueOptions
from ...errors import StoreError
from ...v1.task_pb2 import Attempt as Tried
from ...v1.task_pb2 import Record, Task, TaskMetadata
from ..records import Attempt, Envelope

FORMAT = 1  # of tasks and of records; a newer one is refused


def task_of(id: str, message: Envelope, now: float, due: float) -> Task:
    """A fresh task; `due` is 0 for at once."""
    return Task(
        id=id,
        data=message.payload,
        metadata=TaskMetadata(priority=message.priority, timestamp=int(now * 1000)),
        content_type=message.content_type,
        headers=message.headers,
        max_attempts=message.max_attempts or 0,
        due=due,
        format=FORMAT,
        expires=_end(message, now),
    )


def _end(message: Envelope, now: float) -> float:
    """When it expires; 0: never."""
    if message.expires is not None:
        return max(message.expires, 1.0)
    return 0.0 if message.lifetime is None else now + message.lifetime


def read_task(data: bytes) -> Task:
    """A task from its bytes; StoreError for a newer format."""
    task: Task = Task.FromString(data)
    if task.format > FORMAT:
        raise StoreError(f"nats: a task of format {task.format}; this version of Holdfast reads up to {FORMAT}")
    return task


def enqueued_at(task: Task) -> float:
    return task.metadata.timestamp / 1000


def content_type(task: Task) -> str:
    """What the payload is; tasks of the schema we grew from do not say."""
    return task.content_type or "application/octet-stream"


def headers(task: Task) -> dict[str, str] | None:
    return dict(task.headers) if task.headers else None


def history(record: Record) -> tuple[Attempt, ...]:
    """The attempts that did not end it."""
    return tuple(
        [
            Attempt(
                each.start or None,
                each.end,
                each.worker if each.HasField("worker") else None,
                each.error if each.HasField("error") else None,
            )
            for each in record.history
        ]
    )


def attempts(history: Sequence[Attempt]) -> list[Tried]:
    """The same, back."""
    return [Tried(start=each.start or 0.0, end=each.end, worker=each.worker, error=each.error) for each in history]


def most(task: Task, options: QueueOptions) -> int:
    """How many attempts it has."""
    return task.max_attempts or options.max_attempts


def read_record(data: bytes) -> Record:
    """A record from its bytes; StoreError for a newer format."""
    record: Record = Record.FromString(data)
    if record.format > FORMAT:
        raise StoreError(f"nats: a record of format {record.format}; this version reads up to {FORMAT}")
    return record


def field(number: int, data: bytes) -> bytes:
    """A field of bytes, as Protocol Buffers write it; of two in one message the later counts."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


@lru_cache(4096)
def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
