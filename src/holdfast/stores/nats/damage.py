"""Tasks and records that cannot be read: what stands for them, so that the message can end and others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...errors import Damaged
from ...escaping import logger_named
from ...v1.task_pb2 import Record, Task, TaskMetadata
from . import state, tasks
from .names import LATER, id_of
from .reading import Found, read
from .sums import Sums, damaged

HEADER = "damaged_message"  # of a message that could not be read: where it lay
KEPT = ".damaged"  # after the id, in the object store: the bytes that could not be read
T = TypeVar("T")
logger = logger_named("holdfast.nats")


def task_of(found: Found) -> Task:
    """The task, or what stands for it."""
    return _or(lambda: found.read(tasks.read_task), lambda _: substitute(found.subject))


def raw_of(found: Found, task: Task) -> bytes:
    """The bytes of a task, or of what stands for it."""
    try:
        return found.data
    except Damaged:
        return bytes(task.SerializeToString())


def record_of(found: Found) -> Record:
    """The record, or what stands for it: nobody holds it, and nobody knows how often it was tried."""
    return _or(
        lambda: found.read(tasks.read_record),
        lambda error: Record(format=tasks.FORMAT, status=state.UNREAD, error=str(error)),
    )


def handed_task(sums: Sums, subject: str, stored: bytes) -> tuple[Task, bytes, str]:
    """A task as it was handed to us, its bytes, and what is wrong with it: then it is what stands for it."""
    try:
        data = sums.opened(subject, stored)
        return read(subject, tasks.read_task, data), data, ""
    except Damaged as error:
        logger.error("%s", error)
        task = substitute(subject)
        return task, task.SerializeToString(), str(error)


def substitute(subject: str) -> Task:
    """What its subject tells of a task, and no payload."""
    priority = subject.removesuffix(LATER).split(".")[-2]
    return Task(
        id=id_of(subject),
        metadata=TaskMetadata(priority=int(priority)),
        headers={HEADER: subject},
        format=tasks.FORMAT,
    )


def ended(id: str, unread: Record, letter: Task | None) -> tuple[Task, Record]:
    """What is known of a message whose record cannot be read and whose task has left: a dead letter, or archived."""
    known = Record()
    known.CopyFrom(unread)
    known.place = Record.DEAD if letter is not None else Record.ARCHIVE
    return letter or Task(id=id), known


def is_lost(record: Record | None) -> bool:
    """Whether nothing tells any more what became of a message."""
    return record is not None and state.is_unread(record) and record.place == Record.ARCHIVE


def why(task: Task) -> str:
    """What is to be said of a message that stands for one that cannot be read; "": it does not."""
    subject = task.headers.get(HEADER, "")
    return str(damaged(subject, "it cannot be read")) if subject else ""


def kept_of(record: Record) -> str:
    """The name of the bytes that are kept of what could not be read; "": there are none."""
    return record.task.id + KEPT if HEADER in record.task.headers else ""


def _or(get: Callable[[], T], instead: Callable[[Damaged], T]) -> T:
    try:
        return get()
    except Damaged as error:
        return instead(error)
