"""Names of streams and subjects. Everything Holdfast writes lies under `<prefix>.`; names of queues are encoded first.

<prefix>.<queue>.<priority>.<id>           a task that waits or is being worked on   stream <prefix>=<queue>=tasks
<prefix>.<queue>.<priority>.<id>.later     a task that was enqueued with a delay     same stream
<prefix>._.key.<queue>.<hash>              a dedup key                               same stream
<prefix>._.key.<queue>.alive-<hash>        one that holds until its message ends     same stream
<prefix>._.call.<queue>.<call>             a call of several parts, while open       same stream
<prefix>._.key.<queue>.schedules           how far each schedule has come            same stream
<prefix>._.once.<queue>.<hash>             a copy that was made, of what             same stream
<prefix>._.done.<queue>.<id>               the fence of a message, and its archive   stream <prefix>=<queue>=done
<prefix>._.tally.<queue>.<client>          what one client has finished              same stream
<prefix>._.dead.<queue>.<priority>.<id>    a dead letter                             stream <prefix>=<queue>=dead
<prefix>._.queue.<queue>                   a queue and its options                   stream <prefix>=queues
<prefix>._.lock.<queue>                    who maintains it                          same stream
<prefix>._.lock.~<queue>                   how far its streams had come              same stream
<prefix>._.schedule.<name>                 a schedule                                stream <prefix>=schedules
<prefix>._.worker.<process>                a process with workers; for a day      stream <prefix>=workers
<prefix>._.value.<hash>                    a value of an integration                 stream <prefix>=values
<prefix>._.gone.<queue>.<id>               it ended and is not kept; for an hour     stream <prefix>=gone
<prefix>._.reserve.<n>                     room that is given up when it is needed   stream <prefix>=reserve
<prefix>._.moving.<queue>.<…>              a task stream that is being upgraded      stream <prefix>=<queue>=moving
<prefix>._.note.<queue>                    a wake-up; not stored
<prefix>._.later.<queue>.<priority>.<id>   a task with a delay, of earlier versions  stream <prefix>=<queue>=tasks

The third token of a task is a number and that of everything else a word, so no queue can be named like a family.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from ...errors import ConfigError

LATER = ".later"
LIVING = "alive-"  # before the hash of a dedup key that holds until its message ends
_REPORT_KEPT_S = 86_400  # of a process that was killed: its page says so for a day
TRACE_S = 3600  # a message that is not kept can be settled again: longer than any caller repeats
MOVING = "moving"
_OF_NO_QUEUE = ("reserve", "schedule", "value", "worker")
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_prefix(prefix: str) -> str:
    """The prefix, when it is one token that cannot reach another's subjects."""
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"prefix: 1 to 64 letters, digits, '_' and '-', not {prefix!r}")
    return prefix


def token(queue: str) -> str:
    """A queue's name as one token: '.' divides tokens, and '~' is in no name."""
    return queue.replace(".", "~")


def queue_of(token: str) -> str:
    return token.replace("~", ".")


class Names:
    """The names of one queue."""

    def __init__(self, prefix: str, queue: str) -> None:
        q = token(queue)
        self.queue = queue
        self.task = f"{prefix}.{q}."
        self.old_later = f"{prefix}._.later.{q}."  # converted by upgrading.py
        self.key = f"{prefix}._.key.{q}."
        self.marks = f"{self.key}schedules"  # no hash of a key
        self.expiring = f"{self.key}expiring"  # the same: some tasks of the queue expire
        self.call = f"{prefix}._.call.{q}."
        self.once = f"{prefix}._.once.{q}."
        self.done = f"{prefix}._.done.{q}."
        self.tally = f"{prefix}._.tally.{q}."
        self.dead = f"{prefix}._.dead.{q}."
        self.gone = f"{prefix}._.gone.{q}."
        self.note = f"{prefix}._.note.{q}"
        self.task_stream = f"{prefix}={q}=tasks"
        self.done_stream = f"{prefix}={q}=done"
        self.dead_stream = f"{prefix}={q}=dead"
        self.moving = f"{prefix}._.moving.{q}."
        self.moved = f"{prefix}._.moved.{q}"  # nobody publishes there
        self.moving_stream = f"{prefix}={q}={MOVING}"

    def streams(self) -> dict[str, list[str]]:
        """Every stream of the queue, and the subjects that it may have."""
        of_before = [f"{self.old_later}*.*", self.moved]
        return {
            self.task_stream: [*self.task_subjects(), *of_before],
            self.done_stream: self.done_subjects(),
            self.dead_stream: self.dead_subjects(),
            self.moving_stream: [f"{self.moving}>"],
        }

    def task_subjects(self) -> list[str]:
        return [f"{self.task}*.*", self.later, f"{self.key}*", f"{self.call}*", f"{self.once}*"]

    def done_subjects(self) -> list[str]:
        return [f"{self.done}*", f"{self.tally}*"]

    def dead_subjects(self) -> list[str]:
        return [f"{self.dead}*.*"]

    def task_of(self, priority: int, id: str, *, later: bool = False) -> str:
        """The subject of a task."""
        return f"{self.task}{priority}.{id}{LATER if later else ''}"

    @property
    def later(self) -> str:
        """Every task that was enqueued with a delay."""
        return f"{self.task}*.*{LATER}"

    def key_of(self, dedup_key: str) -> str:
        """The subject of a dedup key: any text, so only its hash goes into a subject."""
        return self.key + _hash(dedup_key)

    def living_key_of(self, dedup_key: str) -> str:
        """The same for one that holds until its message ends."""
        return self.key + LIVING + _hash(dedup_key)

    def once_of(self, purpose: str, id: str) -> str:
        """The subject that says that this message was copied for this purpose."""
        return self.once + _hash(f"{purpose}\0{id}")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def queues_stream(prefix: str) -> str:
    return f"{prefix}=queues"


def gone_stream(prefix: str) -> str:
    return f"{prefix}=gone"


def schedules_stream(prefix: str) -> str:
    return f"{prefix}=schedules"


def values_stream(prefix: str) -> str:
    return f"{prefix}=values"


def value_subject(prefix: str, key: str) -> str:
    """Any text, so only its hash goes into a subject."""
    return f"{prefix}._.value.{_hash(key)}"


def workers_stream(prefix: str) -> str:
    return f"{prefix}=workers"


def forgetful_streams(prefix: str) -> dict[str, int]:
    """Those from which the server drops what is older than so many seconds."""
    return {gone_stream(prefix): TRACE_S, workers_stream(prefix): _REPORT_KEPT_S}


def shared_streams(prefix: str) -> dict[str, list[str]]:
    """The streams that all queues share, and their subjects."""
    return {
        queues_stream(prefix): [f"{prefix}._.queue.*", f"{prefix}._.lock.*"],
        schedules_stream(prefix): [f"{prefix}._.schedule.*"],
        values_stream(prefix): [f"{prefix}._.value.*"],
        gone_stream(prefix): [f"{prefix}._.gone.*.*"],
        workers_stream(prefix): [worker_subject(prefix, "*")],
        reserve_stream(prefix): [f"{reserve_subject(prefix)}.*"],
    }


def is_ours(prefix: str, stream: str, subjects: Iterable[str]) -> bool:
    """Whether Holdfast makes a stream of this name, with nothing but these subjects."""
    made = shared_streams(prefix)
    if stream.startswith(f"{prefix}=") and (queue := queue_of_stream(stream)) is not None:
        made |= Names(prefix, queue).streams()
    return stream in made and set(subjects) <= set(made[stream])


def queue_of_stream(stream: str) -> str | None:
    """The queue that a stream belongs to; None: all queues share it."""
    words = stream.split("=")
    return queue_of(words[1]) if len(words) == 3 else None


def reserve_stream(prefix: str) -> str:
    return f"{prefix}=reserve"


def reserve_subject(prefix: str) -> str:
    return f"{prefix}._.reserve"


def queue_subject(prefix: str, queue: str) -> str:
    return f"{prefix}._.queue.{token(queue)}"


def schedule_subject(prefix: str, name: str) -> str:
    return f"{prefix}._.schedule.{token(name)}"


def worker_subject(prefix: str, process: str) -> str:
    return f"{prefix}._.worker.{process}"


def lock_subject(prefix: str, queue: str) -> str:
    return f"{prefix}._.lock.{token(queue)}"


def queue_of_subject(subject: str) -> str:
    """The queue that a subject is about; "": none alone."""
    words = subject.split(".")
    if len(words) > 2 and words[1] != "_":
        return queue_of(words[1])
    return queue_of(words[3].removeprefix("~")) if len(words) > 3 and words[2] not in _OF_NO_QUEUE else ""


def ends_subject(prefix: str, queue: str) -> str:
    """How far its streams had come; no queue's name begins with a dot."""
    return f"{prefix}._.lock.~{token(queue)}"


def id_of(subject: str) -> str:
    """The last token, but for the mark of a delay."""
    return subject.removesuffix(LATER).rsplit(".", 1)[1]
