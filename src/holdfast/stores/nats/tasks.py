"""Tasks on the wire: from an envelope, and back to what the seam gives out."""

from __future__ import annotations

from ...config import QueueOptions
from ...errors import CodecError, StoreError
from ...v1.task_pb2 import Task, TaskMetadata
from ..records import Envelope
from . import blobs

FORMAT = 1


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
    )


def read_task(data: bytes) -> Task:
    """A task from its bytes; StoreError for a newer format."""
    try:
        task: Task = Task.FromString(data)
    except Exception as error:
        raise CodecError("nats: a message in the stream is no task") from error
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


def most(task: Task, options: QueueOptions) -> int:
    """How many attempts it has."""
    return task.max_attempts or options.max_attempts


async def fitted(task: Task, raw: bytes, store: blobs.Blobs) -> tuple[Task, bytes]:
    """A task and its bytes that a record has room for: of days when the server took more, its data lies elsewhere.

    Headers that are too large even so are left out: the message must be able to end.
    """
    if store.fits(len(raw)):
        return task, raw
    small = Task()
    small.CopyFrom(task)
    if small.data:
        small.blob, small.data = await store.put(task.id, task.data), b""
    if not store.fits(small.ByteSize()):
        small.headers.clear()
    return small, small.SerializeToString()


async def payload(task: Task, store: blobs.Blobs) -> bytes:
    """The data, wherever it lies."""
    return await store.get(task.blob) if task.blob else task.data
