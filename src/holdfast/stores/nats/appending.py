"""Messages in: ids, dedup keys and tasks, all of a call or none."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from ... import ids as makers
from ...errors import MessageTooLarge, QueueFull, QueueNotFound, Unavailable, UnknownOutcome
from ...v1.task_pb2 import Task
from ..records import Enqueued, Envelope
from . import deadline, tasks
from .calls import Call
from .connection import Connection
from .deadline import RETRY_S
from .faults import NO_ROOM, Code, Lost, Nobody, Refused, missing
from .names import id_of
from .partition import Partition
from .tasks import field
from .wire import Post, parts

UNKNOWN = "{}: the server did not say whether the messages arrived"


class Key(msgspec.Struct):
    """A dedup key as it is kept."""

    id: str
    until: float
    call: str = ""  # it counts when this call does


read_key = msgspec.json.Decoder(Key).decode


class Appender:
    """Writes messages of one queue."""

    def __init__(self, partition: Partition, ids: makers.Ids) -> None:
        self._partition = partition
        self._ids = ids

    async def append(self, messages: Sequence[Envelope]) -> list[str]:
        return [each.id for each in await self.append_once(messages)]

    async def append_once(self, messages: Sequence[Envelope]) -> list[Enqueued]:
        """The same, and which messages are new."""
        with self.refusing():
            made = await self._append(messages)
        if any(not message.delay and message.at is None for message in messages):
            self._partition.enqueued()
        return made

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Around what is stored: QueueFull where the server has no room."""
        try:
            yield
        except Refused as error:
            if error.code in NO_ROOM:
                self._partition.reserve.refused()
            if error.code == Code.STREAM_FULL:
                raise QueueFull(
                    f"{self._partition.queue}: its stream {self._partition.names.task_stream!r} is at its limit "
                    f"({error}); complete messages, or raise the limit with `nats stream edit`"
                ) from error
            raise

    async def _append(self, messages: Sequence[Envelope]) -> list[Enqueued]:
        if not messages:
            await self._partition.info()
            return []
        made = await self.posts(messages)
        posts, ids = [post for post, _ in made], [id for _, id in made]
        return await self._append_posts(messages, posts, ids)

    async def posts(self, messages: Sequence[Envelope]) -> list[tuple[Post, str]]:
        """The messages as they are stored, with their ids; their priorities can be claimed."""
        partition = self._partition
        info = await partition.info()
        now = partition.connection.now()
        await partition.reserve.check_room()
        made = self._tasks(messages, now)
        for task in made:
            self.must_fit(task)
        if any(task.expires for task in made):
            await partition.lapses.mark()
        for priority in {message.priority for message in messages}:
            if await partition.consumers.ensure(priority, info.options.lease):
                await partition.note(b"lane")
        marked = len(made) == 1 or partition.connection.is_at_least(2, 14)
        return [(await self.post(task, now, marked=marked), task.id) for task in made]

    async def _append_posts(
        self, messages: Sequence[Envelope], posts: Sequence[Post], ids: list[str]
    ) -> list[Enqueued]:
        partition, keys = self._partition, [message.dedup_key for message in messages]
        info = await partition.info()
        if any(key is not None for key in keys):
            answer = await self._append_once(posts, ids, keys, info.options.dedup_window)
            return [Enqueued(id, id == own) for id, own in zip(answer, ids, strict=True)]
        if self._is_large(posts):
            call = await partition.calls.begin(len(posts))
            await self._store_call(call, call.marked(posts), ids)
        else:
            await self._store(posts, ids)
        return [Enqueued(id, True) for id in ids]

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

    def must_fit(self, task: Task) -> None:
        """Data of any size fits, in the object store; what is beside it has to go into one message of the server."""
        blobs = self._partition.blobs
        if blobs.fits(task.ByteSize()):
            return
        rest = task.ByteSize() - len(task.data) + len(field(Task.BLOB_FIELD_NUMBER, task.id.encode()))
        if not blobs.fits(rest):
            raise MessageTooLarge(
                f"{self._partition.queue}: {rest} bytes beside the payload (headers), and the server has room for "
                f"{blobs.most}; raise its max_payload",
                actual=rest,
                limit=blobs.most,
            )

    async def post(self, task: Task, now: float, *, marked: bool) -> Post:
        """`marked`: with an id that the server itself recognises for a while."""
        partition, priority = self._partition, task.metadata.priority
        if not partition.blobs.fits(task.ByteSize()):
            task.blob = await partition.blobs.put(task.id, task.data)
            task.data = b""
        if task.due > now:
            partition.expect(task.due)
        subject = partition.names.task_of(priority, task.id, later=task.due > now)
        return Post(subject, task.SerializeToString(), f"Nats-Msg-Id: {task.id}\r\n" if marked else "", 0)

    # ------------------------------------------------------------------ storing

    def _is_large(self, posts: Sequence[Post]) -> bool:
        """Whether the server does not take all of these at once."""
        return len(parts(posts)) > 1

    async def _store_call(self, call: Call, posts: Sequence[Post], ids: Sequence[str], *, again: bool = False) -> None:
        """All parts, and then the word that they count."""
        calls = self._partition.calls

        async def retry() -> list[str]:
            await self._store_call(call, posts, ids, again=True)
            return list(ids)

        try:
            if not again or await calls.is_open(call):
                left = await self._missing(posts) if again else posts
                await self._store(left, ids, doubt=again)
            counts = await calls.commit(call)
        except (UnknownOutcome, Lost, Nobody) as error:
            raise UnknownOutcome(UNKNOWN.format(self._partition.queue), ids=ids, retry=retry) from error
        except Refused:
            await calls.drop(call)
            raise
        if not counts:
            raise Unavailable(
                f"nats: {self._partition.queue}: the call took too long; none of its messages was enqueued"
            )
        await self._partition.note(b"call")

    async def _store(self, posts: Sequence[Post], ids: Sequence[str], *, doubt: bool = False) -> None:
        """Store them; when nobody says whether that worked (`doubt`), find out and repeat what is missing."""
        until = deadline.until(self._partition.connection.options.operation_timeout)
        while True:
            try:
                await self._partition.connection.store(posts)
                return
            except (Refused, Lost, Nobody) as error:
                if isinstance(error, Refused):
                    if error.code not in (Code.DUPLICATE_IN_BATCH, Code.WRONG_SEQUENCE) or not doubt:
                        raise  # else it is there already, and its answer was lost
                elif isinstance(error, Nobody):
                    await self._must_exist()
                doubt = True
                if time.monotonic() >= until:
                    raise self._unknown(posts, ids) from error
                await asyncio.sleep(RETRY_S)
            posts = await self._missing(posts) if doubt else posts
            if not posts:
                return

    async def _must_exist(self) -> None:
        self._partition.register.forget(self._partition.queue)
        if await self._partition.register.find(self._partition.queue) is None:
            raise missing(self._partition.queue)

    async def _missing(self, posts: Sequence[Post]) -> Sequence[Post]:
        """Those of which neither task nor record is there: a message may be finished already."""
        ids = [id_of(post.subject) for post in posts]
        try:
            live, known = await self._partition.tasks(ids), await self._partition.records(ids)
        except (Lost, Nobody, QueueNotFound):  # a cluster without a leader does not know its streams either
            return posts
        return [post for post, id in zip(posts, ids, strict=True) if id not in live and id not in known]

    def _unknown(self, posts: Sequence[Post], ids: Sequence[str]) -> UnknownOutcome:
        async def retry() -> list[str]:
            await self._store(await self._missing(posts), ids, doubt=True)
            return list(ids)

        return UnknownOutcome(UNKNOWN.format(self._partition.queue), ids=ids, retry=retry)

    # ------------------------------------------------------------------ dedup keys

    async def _append_once(
        self, posts: Sequence[Post], ids: Sequence[str], keys: Sequence[str | None], window: float
    ) -> list[str]:
        """Keys go in with their messages, each only if nobody else wrote it since we looked."""
        partition = self._partition
        subjects = {key: partition.names.key_of(key) for key in keys if key is not None}
        until, doubt = deadline.until(partition.connection.options.operation_timeout), False
        while time.monotonic() < until:
            old = await self._known_keys(subjects, doubt=doubt)
            if old is None:
                await asyncio.sleep(RETRY_S)  # another's call with one of these keys is under way
                continue
            now = partition.connection.now()
            first = {key: one.id for key, (_, one) in old.items() if one.until > now}
            answer = [first.setdefault(key, id) if key is not None else id for id, key in zip(ids, keys, strict=True)]
            fresh = [post for post, id, given in zip(posts, ids, answer, strict=True) if id == given]
            ours = {key for key, id in zip(keys, ids, strict=True) if key is not None and first[key] == id}
            if not fresh or any(key in old and old[key][1].id == first[key] for key in ours):
                return answer  # nothing is new; or it is our own batch: it went in whole, its answer was lost
            new = {key: (Key(first[key], now + window), old[key][0] if key in old else 0) for key in ours}
            try:
                await self._store_once({subjects[key]: new[key] for key in ours}, fresh, answer)
                return answer
            except Refused as error:
                if error.code not in (Code.WRONG_SEQUENCE, Code.DUPLICATE_IN_BATCH):
                    raise
            except (Lost, Nobody):
                doubt = True
                await asyncio.sleep(RETRY_S)  # the key says next time whether it went in, and everything with it
        if not doubt:
            raise Lost("dedup keys changed too often")

        async def retry() -> list[str]:
            return await self._append_once(posts, ids, keys, window)

        raise UnknownOutcome(UNKNOWN.format(partition.queue), ids=ids, retry=retry)

    async def _known_keys(self, subjects: dict[str, str], *, doubt: bool) -> dict[str, tuple[int, Key]] | None:
        """The keys that are there, with their sequences; None: one belongs to a call that is still open.

        In `doubt`, when our own keys may be there, also None while nobody answers.
        """
        try:
            found = await self._partition.reader.last(self._partition.names.task_stream, list(subjects.values()))
        except Lost:
            if not doubt:
                raise
            return None
        known: dict[str, tuple[int, Key]] = {}
        for key, subject in subjects.items():
            if subject not in found:
                continue
            one = found[subject].read(read_key)
            verdict = await self._partition.calls.verdict(one.call) if one.call else "counts"
            if verdict == "waits":
                return None
            known[key] = (found[subject].sequence, one if verdict == "counts" else Key("", 0.0))
        return known

    async def _store_once(self, keys: dict[str, tuple[Key, int]], fresh: Sequence[Post], answer: Sequence[str]) -> None:
        """Keys and messages, all or none: as one batch, or as a call whose keys go first."""
        partition = self._partition
        written = [key_post(partition.connection, subject, key, expect) for subject, (key, expect) in keys.items()]
        if not self._is_large([*written, *fresh]):
            await partition.connection.store([*written, *fresh])
            return
        call = await partition.calls.begin(len(fresh))
        try:
            await partition.connection.store(
                [
                    key_post(partition.connection, subject, msgspec.structs.replace(key, call=call.name), expect)
                    for subject, (key, expect) in keys.items()
                ]
            )
        except (Refused, Lost, Nobody):
            await partition.calls.drop(call)
            raise
        await self._store_call(call, call.marked(fresh), answer)


def key_post(connection: Connection, subject: str, key: Key, expect: int) -> Post:
    """A dedup key as it is stored; it goes away by itself."""
    ttl = f"Nats-TTL: {math.ceil(max(key.until - connection.now(), 0)) + 60}s\r\n"
    return Post(subject, msgspec.json.encode(key), ttl, expect)
