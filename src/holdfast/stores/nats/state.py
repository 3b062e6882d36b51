"""What may happen to a message: pure decisions over its record. No I/O, no clock."""

from __future__ import annotations

from typing import Literal

from ...config import QueueOptions
from ...limits import HISTORY_ATTEMPTS, TEXT_BYTES, remembered
from ...retry import NoRetry
from ...v1.task_pb2 import Attempt, Record, Task
from ..records import LAPSED, Action, Settlement, Status
from . import tasks
from .clock import Moment

EXPIRED = "lease expired"
CANCELLED = "cancelled"
PURGED = "purged"
UNREAD = "damaged"  # in place of a status, never stored: this stands for a record that cannot be read
_WORKER_BYTES = 1024  # kept of a worker's name: records have room for 32 KiB beside the task

LIVE, DEAD, ARCHIVE = Record.LIVE, Record.DEAD, Record.ARCHIVE
Sight = Literal["take", "wait", "ended", "dead", "expired", "lapsed", "unread"]


def cut(text: str) -> str:
    """An error, no longer than a record has room for."""
    return text if len(text) <= TEXT_BYTES // 4 else text.encode()[:TEXT_BYTES].decode(errors="ignore")


def kept_name(worker: str) -> str:
    """A worker's, as records keep it."""
    return worker.encode()[:_WORKER_BYTES].decode(errors="ignore")


def held(record: Record, moment: Moment) -> bool:
    """Whether somebody holds it; a lease that may not be over is not over."""
    return bool(record.token) and record.lease_end > moment.earliest


def is_unread(record: Record | None) -> bool:
    """Whether this stands for a record that cannot be read: nobody knows what became of the message."""
    return record is not None and record.status == UNREAD


def sight(record: Record | None, task: Task, options: QueueOptions, moment: Moment, *, dead: bool) -> Sight:
    """What a claimer that was handed this message has to do with it."""
    if record is None:
        # A dead letter without a record was replayed or deleted, and its last rest is swept.
        if dead:
            return "ended"
        return "lapsed" if _is_over(task, moment) else "wait" if task.due > moment.now else "take"
    if is_unread(record):
        return "unread"
    if record.place == ARCHIVE:
        return "ended"
    if record.place == DEAD and not dead:
        return "dead"
    lapsed = not dead and _is_over(task, moment)
    if wait(record, task, moment) > 0:
        return "lapsed" if lapsed and not record.token else "wait"
    over = bool(record.token) and not dead
    spent = record.attempts >= tasks.most(task, options) or isinstance(options.retry, NoRetry)
    return "expired" if over and spent else "lapsed" if lapsed else "take"


def _is_over(task: Task, moment: Moment) -> bool:
    """Whether nobody gets it any more."""
    return 0 < task.expires <= moment.now


def wait_until(record: Record | None, task: Task) -> float:
    """When a message that waits becomes visible."""
    if record is None:
        return task.due
    return record.lease_end if record.token else record.visible_at


def wait(record: Record | None, task: Task, moment: Moment) -> float:
    """Seconds until it can be taken: a lease must be over beyond doubt, a delay need not be."""
    is_held = record is not None and bool(record.token)
    return wait_until(record, task) - (moment.earliest if is_held else moment.now)


def lease_end(moment: Moment, seconds: float) -> float:
    """The end of a lease that is given now: as late as it may be by the server's clock."""
    return moment.latest + seconds


def told_end(end: float, moment: Moment) -> float:
    """What its holder is told of it: as early as it may be."""
    return end - moment.doubt


def must_be_alone(record: Record | None, task: Task, options: QueueOptions) -> bool:
    """The last attempt after expired leases runs alone."""
    if record is None or record.place == DEAD:
        return False
    again = record.recovered or bool(record.token)
    return again and record.attempts + 1 == tasks.most(task, options)


def taken(record: Record | None, token: str, end: float, now: float, worker: str | None = None) -> Record:
    """The record of a fresh lease."""
    new = Record(format=tasks.FORMAT)
    if record is not None:
        new.CopyFrom(record)
        new.recovered = record.recovered or bool(record.token)
    if new.place == DEAD:
        new.tries, new.tried_at = new.tries + 1, now
    else:
        if record is not None and record.token:
            _remember(new, record.lease_end, EXPIRED)
        new.attempts, new.claimed_at = new.attempts + 1, now
    new.token, new.lease_end = token, end
    if worker is None:
        new.ClearField("worker")
    else:
        new.worker = kept_name(worker)
    return new


def _remember(new: Record, end: float, error: str | None) -> None:
    """An attempt is over that did not end the message."""
    worker = remembered(new.worker) if new.HasField("worker") else None
    new.history.append(Attempt(start=new.claimed_at, end=end, worker=worker, error=remembered(error)))
    del new.history[:-HISTORY_ATTEMPTS]


def taken_back(record: Record, token: str, moment: Moment) -> Record:
    """The record of a lease that is over for everybody's clock, under a token that nobody has."""
    new = Record()
    new.CopyFrom(record)
    new.token, new.lease_end = token, min(record.lease_end, moment.earliest - moment.doubt)
    return new


def attempt(record: Record) -> int:
    """The number of the attempt that holds the lease."""
    return record.tries if record.place == DEAD else record.attempts


def repeat(record: Record, token: str, action: Action) -> bool:
    """Whether this settlement has been done before."""
    return bool(token) and record.last_token == token and record.last_action == action


def settled(record: Record, task: Task, s: Settlement, options: QueueOptions, moment: Moment) -> Record:
    """The record after its holder's decision."""
    new, now = Record(), moment.now
    new.CopyFrom(record)
    new.token, new.last_token, new.last_action = "", s.token, s.action
    new.visible_at = now + s.delay if s.delay else moment.earliest  # at once, for everybody's clock
    if s.worker is not None:
        new.worker = kept_name(s.worker)
    if s.error:
        new.error = cut(s.error)
    if s.action == "complete":
        new.claimed_at = record.tried_at if record.place == DEAD else record.claimed_at
        if s.result is not None:
            new.result = s.result
        return ended(new, "completed", options, now, keep=s.keep)
    if s.action == "release":
        return _given_back(new)
    spent = s.action == "dead" or record.attempts >= tasks.most(task, options)
    if record.place == LIVE and spent:
        return buried(new, s.error or "dead", options, now)
    if record.place == LIVE:
        _remember(new, now, s.error)
    new.retrying = True
    return new


def _given_back(new: Record) -> Record:
    new.retrying = new.attempts > 1
    if new.place == DEAD:
        new.tries -= 1
    else:
        new.attempts -= 1
    return new


def ended(record: Record, status: Status, options: QueueOptions, now: float, *, keep: bool | None = None) -> Record:
    """Into the archive, or out of sight."""
    record.place, record.status, record.token, record.finished_at = ARCHIVE, status, "", now
    record.gone = not (options.archive if keep is None else keep)
    return record


def lapsed(record: Record, options: QueueOptions, now: float) -> Record:
    """The end of a message that nobody got in time."""
    new = Record()
    new.CopyFrom(record)
    new.error, new.claimed_at = LAPSED, 0.0
    return ended(new, "failed", options, now)


def purged(record: Record, now: float) -> Record:
    """Out of sight, and counted nowhere; its record stays for a moment, for whoever was handed it before."""
    new = Record(format=tasks.FORMAT)
    new.CopyFrom(record)
    new.place, new.status, new.token, new.finished_at = ARCHIVE, PURGED, "", now
    new.gone = True
    return new


def buried(record: Record, reason: str, options: QueueOptions, now: float) -> Record:
    """The end without success: a dead letter, a message for another queue, or `failed`."""
    record.error, record.token = cut(reason), ""
    if options.dead_letter is True:
        record.place, record.finished_at, record.visible_at = DEAD, now, now
        return record
    ended(record, "failed", options, now)
    if isinstance(options.dead_letter, str):
        record.moving_to = options.dead_letter
    return record


def status(record: Record | None, task: Task, moment: Moment, *, dead: bool) -> Status:
    """What a message is called now."""
    if record is None:
        return "delayed" if task.due > moment.now else "pending"
    if record.place == ARCHIVE:
        return "failed" if record.status == "failed" else "completed"
    if record.place == DEAD and not dead:
        return "dead"
    if held(record, moment):
        return "processing"
    if record.token or record.visible_at <= moment.now:
        return "pending"
    return "retry" if record.retrying else "delayed"
