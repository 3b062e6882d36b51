"""Messages in: ids, dedup keys and tasks, all of a call or none."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from ... import ids as makers
from ...errors import QueueNotFound, UnknownOutcome
from ...messages import Envelope
from ...v1.task_pb2 import Task
from . import tasks
from .faults import DUPLICATE_IN_BATCH, WRONG_SEQUENCE, Lost, Nobody, Refused
from .log import Log
from .queues import missing
from .wire import Post

_TRIES = 20


class Key(msgspec.Struct):
    """A dedup key as it is kept."""

    id: str
    until: float


class Appender:
    """Writes messages of one queue."""

    def __init__(self, log: Log, ids: makers.Ids, expect: Callable[[float, str], None]) -> None:
        self._log = log
        self._ids = ids
        self._expect = expect  # told when a message becomes visible, and where it lies until then

    async def append(self, messages: Sequence[Envelope]) -> list[str]:
        log = self._log
        info = await log.info()
        if not messages:
            return []
        now = log.link.now()
        made = self._tasks(messages, now)
        for priority in {message.priority for message in messages}:
            if await log.lanes.ensure(priority, info.options.lease):
                await log.note(b"lane")
        keys = [message.dedup_key for message in messages]
        marked = len(made) == 1 or not log.link.features.batches or log.link.features.batch_ids
        posts = [await self._post(task, now, marked=marked) for task in made]
        ids = [task.id for task in made]
        if not any(key is not None for key in keys):
            await self._store(posts, ids)
            return ids
        return await self._append_once(posts, ids, keys, info.options.dedup_window)

    def _tasks(self, messages: Sequence[Envelope], now: float) -> list[Task]:
        """A run of equal priority shares the bits of one id, so that ids go up in input order."""
        made: list[Task] = []
        kind: tuple[int, bool] | None = None
        prefix, place = "", 0
        for message in messages:
            due = message.at if message.at is not None else now + message.delay if message.delay else 0.0
            due = due if due > now else 0.0
            if kind != (message.priority, due > 0) or place == makers.PLACES:
                kind = (message.priority, due > 0)
                prefix, place = makers.text(self._ids.block(now, kind[0], carried=kind[1]))[:-5], 0
            made.append(tasks.task_of(f"{prefix}{place:05x}", message, now, due))
            place += 1
        return made

    async def _post(self, task: Task, now: float, *, marked: bool) -> Post:
        """`marked`: with an id that the server itself recognises for a while."""
        log, priority = self._log, task.metadata.priority
        if not log.blobs.fits(task.ByteSize()):
            task.blob = await log.blobs.put(task.id, task.data)
            task.data = b""
        subject = f"{log.names.task}{priority}.{task.id}"
        if task.due > now:
            later, headers = f"{log.names.later}{priority}.{task.id}", ""
            if log.link.features.schedules:
                at = datetime.fromtimestamp(task.due, UTC).isoformat().replace("+00:00", "Z")
                headers = f"Nats-Schedule: @at {at}\r\nNats-Schedule-Target: {subject}\r\n"
                self._expect(task.due, later)
            return Post(later, task.SerializeToString(), headers, 0)
        return Post(subject, task.SerializeToString(), f"Nats-Msg-Id: {task.id}\r\n" if marked else "", 0)

    # ------------------------------------------------------------------ storing

    async def _store(self, posts: Sequence[Post], ids: Sequence[str], *, doubt: bool = False) -> None:
        """Store them; when nobody says whether that worked (`doubt`), find out and repeat what is missing."""
        deadline = time.monotonic() + self._log.link.options.operation_timeout
        while True:
            try:
                await self._log.link.store(posts)
                return
            except (Refused, Lost, Nobody) as error:
                if isinstance(error, Refused):
                    if error.code not in (DUPLICATE_IN_BATCH, WRONG_SEQUENCE) or not doubt:
                        raise  # else it is there already, and its answer was lost
                elif isinstance(error, Nobody):
                    await self._must_exist()
                doubt = True
                if time.monotonic() > deadline:
                    raise self._unknown(posts, ids) from error
                await asyncio.sleep(0.05)
            posts = await self._missing(posts) if doubt else posts
            if not posts:
                return

    async def _must_exist(self) -> None:
        self._log.register.forget(self._log.queue)
        if await self._log.register.find(self._log.queue) is None:
            raise missing(self._log.queue)

    async def _missing(self, posts: Sequence[Post]) -> Sequence[Post]:
        """Those of which neither task nor record is there: a message may be finished already."""
        ids = [post.subject.rsplit(".", 1)[1] for post in posts]
        try:
            live, known = await self._log.tasks(ids), await self._log.records(ids)
        except (Lost, Nobody, QueueNotFound):  # a cluster without a leader does not know its streams either
            return posts
        return [post for post, id in zip(posts, ids, strict=True) if id not in live and id not in known]

    def _unknown(self, posts: Sequence[Post], ids: Sequence[str]) -> UnknownOutcome:
        async def retry() -> list[str]:
            await self._store(await self._missing(posts), ids, doubt=True)
            return list(ids)

        sentence = f"{self._log.queue}: the server did not say whether the messages arrived"
        return UnknownOutcome(sentence, ids=ids, retry=retry)

    # ------------------------------------------------------------------ dedup keys

    async def _append_once(
        self, posts: Sequence[Post], ids: Sequence[str], keys: Sequence[str | None], window: float
    ) -> list[str]:
        """Keys go in with their messages, each only if nobody else wrote it since we looked."""
        log = self._log
        subjects = {key: log.names.key_of(key) for key in keys if key is not None}
        for _ in range(_TRIES):
            found = await log.reader.last(log.names.task_stream, list(subjects.values()))
            known = {
                key: (found[subject].sequence, found[subject].data)
                for key, subject in subjects.items()
                if subject in found
            }
            now = log.link.now()
            old = {key: msgspec.json.decode(data, type=Key) for key, (_, data) in known.items()}
            first = {key: one.id for key, one in old.items() if one.until > now}
            answer = [first.setdefault(key, id) if key is not None else id for id, key in zip(ids, keys, strict=True)]
            fresh = [post for post, id, given in zip(posts, ids, answer, strict=True) if id == given]
            ours = {key for key, id in zip(keys, ids, strict=True) if key is not None and first[key] == id}
            if any(key in old and old[key].id == first[key] for key in ours):
                return answer  # our own batch: it went in whole, its answer was lost
            written = [
                self._key(subjects[key], first[key], now + window, known[key][0] if key in known else 0) for key in ours
            ]
            try:
                if fresh and not log.link.features.batches:
                    await log.link.store(written)  # the key decides; whoever dies now has used it up
                    await self._store(fresh, answer)
                elif fresh:
                    await log.link.store([*written, *fresh])
                return answer
            except Refused as error:
                if error.code not in (WRONG_SEQUENCE, DUPLICATE_IN_BATCH):
                    raise
            except (Lost, Nobody):
                await asyncio.sleep(0.05)  # the key says next time whether it went in, and everything with it
        raise Lost("dedup keys changed too often")

    def _key(self, subject: str, id: str, until: float, expect: int) -> Post:
        ttl = ""
        if self._log.link.features.message_ttl:
            ttl = f"Nats-TTL: {math.ceil(max(until - self._log.link.now(), 0)) + 60}s\r\n"
        return Post(subject, msgspec.json.encode(Key(id, until)), ttl, expect)
