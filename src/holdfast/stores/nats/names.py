"""Names of streams and subjects. Everything Holdfast writes lies under `<prefix>.`; names of queues are encoded first.

<prefix>.<queue>.<priority>.<id>           a task that waits or is being worked on   stream <prefix>=<queue>=tasks
<prefix>._.later.<queue>.<priority>.<id>   a task that is not due                    same stream
<prefix>._.key.<queue>.<hash>              a dedup key                               same stream
<prefix>._.call.<queue>.<call>             a call of several parts, while open       same stream
<prefix>._.once.<queue>.<hash>             a copy that was made, of what             same stream
<prefix>._.done.<queue>.<id>               the fence of a message, and its archive   stream <prefix>=<queue>=done
<prefix>._.tally.<queue>.<client>          what one client has finished              same stream
<prefix>._.dead.<queue>.<priority>.<id>    a dead letter                             stream <prefix>=<queue>=dead
<prefix>._.queue.<queue>                   a queue and its options                   stream <prefix>=queues
<prefix>._.lock.<queue>                    who maintains it                          same stream
<prefix>._.gone.<queue>.<id>               it ended and is not kept; for an hour     stream <prefix>=gone
<prefix>._.note.<queue>                    a wake-up; not stored

A task has four tokens and everything else five or more, so no queue can be named like a family.
"""

from __future__ import annotations

import hashlib
import re

from ...errors import ConfigError

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
        self.later = f"{prefix}._.later.{q}."
        self.key = f"{prefix}._.key.{q}."
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

    def streams(self) -> tuple[str, str, str]:
        return self.task_stream, self.done_stream, self.dead_stream

    def key_of(self, dedup_key: str) -> str:
        """The subject of a dedup key: any text, so only its hash goes into a subject."""
        return self.key + _hash(dedup_key)

    def once_of(self, purpose: str, id: str) -> str:
        """The subject that says that this message was copied for this purpose."""
        return self.once + _hash(f"{purpose}\0{id}")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def queues_stream(prefix: str) -> str:
    return f"{prefix}=queues"


def gone_stream(prefix: str) -> str:
    return f"{prefix}=gone"


def queue_subject(prefix: str, queue: str) -> str:
    return f"{prefix}._.queue.{token(queue)}"


def lock_subject(prefix: str, queue: str) -> str:
    return f"{prefix}._.lock.{token(queue)}"


def id_of(subject: str) -> str:
    """The last token."""
    return subject.rsplit(".", 1)[1]
