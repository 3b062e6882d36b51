"""Queues: their streams, and the register of their options."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import msgspec

from ...config import QueueOptions, changed
from ...errors import Damaged, QueueExists, QueueNotFound, StoreError, UnsafeStore
from ...escaping import logger_named
from .. import formats
from ..base import QueueInfo
from . import names
from .connection import WINDOW, Connection
from .deadline import FRESH_S
from .faults import Code, Ignored, missing
from .names import Names
from .reading import Found, Reader
from .wire import Post

_FORMAT = "holdfast_format"  # in the metadata of the stream of queues; versions before it wrote the first
RESTORED = "holdfast_restored_from"  # in the metadata of a queue's stream of tasks: the backup
_BORN = "holdfast_born"  # beside it: the format that the store was made with, where that is known
_LOG = logger_named("holdfast.nats")
_SAME_ID_S = 600  # the server itself recognises a repeated id: longer than any producer repeats a publish


class _Entry(msgspec.Struct):
    """A queue as it is written."""

    options: dict[str, Any]
    paused: bool
    created_at: float
    format: int = formats.FIRST


read_entry = msgspec.json.Decoder(_Entry).decode


class Register:
    """All queues of one prefix."""

    def __init__(self, connection: Connection, reader: Reader, prefix: str) -> None:
        self.prefix = prefix
        self._connection = connection
        self._reader = reader
        self._known: dict[str, tuple[float, QueueInfo]] = {}
        self._changes = 0  # of queues, that we have heard of
        self._stream = names.queues_stream(prefix)
        self._installed = False
        self.format = formats.NATS
        self._is_format_known = False  # the store was there when we looked
        self.unconverted: set[str] = set()  # queues with streams older than the format before, or half upgraded

    def names(self, queue: str) -> Names:
        return Names(self.prefix, queue)

    # ------------------------------------------------------------------ streams

    async def install(self, *, again: bool = False) -> None:
        """The streams that all queues share; `again`: look whether they are still there."""
        if self._installed and not again:
            return
        forgetful = names.forgetful_streams(self.prefix)
        for stream, subjects in names.shared_streams(self.prefix).items():
            more: dict[str, Any] = {}
            if (seconds := forgetful.get(stream)) is not None:
                more = {"max_age": seconds * 10**9, "discard": "old"}
            if stream == self._stream:
                more = {"metadata": {_FORMAT: str(formats.NATS), _BORN: str(formats.NATS)}}
            await self.make(stream, subjects, max_msgs_per_subject=1, **more)
        await self.read_format()
        self._installed = True

    async def read_format(self) -> None:
        """What is written here; StoreError where this version cannot."""
        if (config := await self.config(self._stream)) is not None:
            about = config.get("metadata") or {}
            number, place = int(about.get(_FORMAT, formats.FIRST)), f"nats: prefix {self.prefix!r}"
            self.format = formats.checked(number, formats.NATS, place, oldest=formats.FIRST)
            self._connection.sums.set(number, int(about.get(_BORN, formats.FIRST)))
            self._is_format_known = True

    async def raise_format(self) -> None:
        """The entries first: who is interrupted begins again."""
        await self.install()
        self.format = formats.NATS
        for info in await self.all():
            with suppress(QueueNotFound):
                await self.change(info.name)
        await self.remember(_FORMAT, str(formats.NATS))
        await self.read_format()

    async def remember(self, name: str, text: str) -> None:
        """A word about the whole store, in the metadata of the stream of queues."""
        if (config := await self.config(self._stream)) is not None:
            metadata = {**(config.get("metadata") or {}), name: text}
            await self._connection.api(f"STREAM.UPDATE.{self._stream}", {**config, "metadata": metadata})

    async def remembered(self, name: str) -> str | None:
        found: str | None = ((await self.config(self._stream) or {}).get("metadata") or {}).get(name)
        return found

    async def config(self, stream: str) -> dict[str, Any] | None:
        """Of a stream; None: it is not there."""
        with Ignored(Code.STREAM_NOT_FOUND):
            config: dict[str, Any] = (await self._connection.api(f"STREAM.INFO.{stream}"))["config"]
            return config
        return None

    async def make(self, name: str, subjects: list[str], **more: Any) -> None:
        """One stream; one that is there keeps what an operator set, but for subjects and safety that came later."""
        config = {
            "name": name,
            "subjects": subjects,
            "storage": "file",
            "retention": "limits",
            "num_replicas": self._connection.options.replicas,
            "allow_direct": True,
            "discard": "new",  # a full stream refuses; it never drops what was acknowledged
            "allow_atomic": True,
            "allow_msg_ttl": True,
            **more,
        }
        if (found := await self.config(name)) is None:
            await self._connection.api(f"STREAM.CREATE.{name}", config)
            return
        old = found.get("subjects") or []
        if not names.is_ours(self.prefix, name, old):
            raise StoreError(f"nats: there is a stream {name!r} that is not Holdfast's; choose another prefix")
        came_later = {"allow_atomic": True, "allow_msg_ttl": True}
        better = {**found, **came_later, "subjects": [*old, *sorted(set(subjects) - set(old))]}
        if not found.get("allow_msg_schedules"):  # else it takes more than that: see upgrading.py
            better["discard"] = config["discard"]
        if better != found:
            await self._connection.api(f"STREAM.UPDATE.{name}", better)

    async def make_streams(self, queue: str) -> None:
        """The three streams of a queue, idempotently."""
        n = self.names(queue)
        tasks: dict[str, Any] = {"retention": "workqueue", "max_msgs_per_subject": 1}
        await self.make(n.task_stream, n.task_subjects(), duplicate_window=_SAME_ID_S * 10**9, **tasks)
        await self.make(n.done_stream, n.done_subjects(), max_msgs_per_subject=1)
        await self.make(n.dead_stream, n.dead_subjects(), max_msgs_per_subject=1)

    async def drop_stream(self, name: str) -> None:
        with Ignored(Code.STREAM_NOT_FOUND):
            await self._connection.api(f"STREAM.DELETE.{name}")

    # ------------------------------------------------------------------ entries

    async def create(self, queue: str, options: QueueOptions) -> QueueInfo:
        info = QueueInfo(queue, options, False, self._connection.now())
        await self.install()
        count = 0 if await self._read(queue) is not None else sum((await self.strays(queue)).values())
        if await self._read(queue) is not None:  # again: who was quicker has messages by now
            raise QueueExists(f"there is a queue {queue!r} already")
        if count:
            raise self._lost_options(queue, count)
        await self.make_streams(queue)
        await self._write(info, expect=0, format=self.format)
        return info

    async def strays(self, queue: str) -> dict[str, int]:
        """The streams of a queue's name that are there, and how many messages each has."""
        found: dict[str, int] = {}
        for stream in self.names(queue).streams():
            with Ignored(Code.STREAM_NOT_FOUND):
                found[stream] = int((await self._connection.api(f"STREAM.INFO.{stream}"))["state"]["messages"])
        return found

    def _lost_options(self, queue: str, count: int) -> Damaged:
        """Streams with messages are no new queue: nobody knows whether it was paused, or how often it tries."""
        key, why = names.queue_subject(self.prefix, queue), stray(count)
        what = f"the options {key} of queue {queue!r} are gone ({why})"
        advice = "`holdfast scrub --quarantine` makes new ones and pauses the queue, `queue delete --force` removes it"
        return Damaged(f"{what}: {advice}", queue=queue, key=key, why=why)

    async def all_strays(self) -> dict[str, int]:
        """Queues that streams have messages of and that have no options, and how many."""
        found: dict[str, int] = {}
        for one in await self._reader.pages("STREAM.LIST", "streams", {"subject": f"{self.prefix}.>"}):
            config, count = one["config"], int(one["state"]["messages"])
            queue = names.queue_of_stream(config["name"])
            if queue is not None and count and names.is_ours(self.prefix, config["name"], config.get("subjects") or []):
                found[queue] = found.get(queue, 0) + count
        return {queue: count for queue, count in found.items() if await self._read(queue) is None}

    async def is_restored(self, queue: str) -> bool:
        """Whether a restore has made it, or is about to."""
        config = await self.config(self.names(queue).task_stream) or {}
        return RESTORED in (config.get("metadata") or {})

    async def restore(self, info: QueueInfo) -> None:
        """Show a queue whose streams are there; QueueExists."""
        await self._write(info, expect=0, format=self.format)

    async def change(self, queue: str, *, options: QueueOptions | None = None, paused: bool | None = None) -> QueueInfo:
        """Replace options or pause; others may do so at the same time."""
        while True:
            found = await self._read(queue)
            if found is None:
                raise missing(queue)
            old, format = _entry(queue, found)
            new = QueueInfo(
                queue,
                old.options if options is None else options,
                old.paused if paused is None else paused,
                old.created_at,
            )
            try:
                await self._write(new, expect=found.sequence, format=max(self.format, format))
            except QueueExists:
                continue
            return new

    async def _write(self, info: QueueInfo, *, expect: int, format: int) -> None:
        entry = _Entry(msgspec.to_builtins(info.options), info.paused, info.created_at, format)
        post = Post(names.queue_subject(self.prefix, info.name), msgspec.json.encode(entry), "", expect)
        asked, changes = time.monotonic(), self._changes
        self._known.pop(info.name, None)
        stored: list[int] = []
        with Ignored(Code.WRONG_SEQUENCE):
            stored = await self._connection.store([post])
        if not stored:
            found = await self._read(info.name)
            if found is None or _entry(info.name, found)[0] != info:  # else: our own write, its answer was lost
                raise QueueExists(f"there is a queue {info.name!r} already")
        self._believe(info, asked, changes)

    async def _read(self, queue: str) -> Found | None:
        with Ignored(Code.STREAM_NOT_FOUND):
            return await self._reader.last_exact(self._stream, names.queue_subject(self.prefix, queue))
        return None  # nothing is installed yet

    async def find(self, queue: str) -> QueueInfo | None:
        """The queue as it is now."""
        asked, changes = time.monotonic(), self._changes
        found = await self._read(queue)
        if found is None:
            self._known.pop(queue, None)
            return None
        info, format = _entry(queue, found)
        if not self._is_format_known or format > self.format:  # made, or made anew or raised, since we looked
            await self.read_format()
        self._believe(info, asked, changes)
        return info

    def _believe(self, info: QueueInfo, asked: float, changes: int) -> None:
        """Remember a queue, unless we heard of a change since we asked: it may be older than that."""
        if changes == self._changes:
            self._known[info.name] = (asked, info)

    async def get(self, queue: str) -> QueueInfo:
        """The queue, as looked up a second ago at most; QueueNotFound, UnsafeStore."""
        if queue in self.unconverted:
            await self._check_converted(queue)
        known = self._known.get(queue)
        if known is not None and time.monotonic() - known[0] < FRESH_S:
            return known[1]
        info = await self.find(queue)
        if info is None:
            raise missing(queue)
        return info

    async def _check_converted(self, queue: str) -> None:
        """Another process may have done it since; UnsafeStore."""
        n = self.names(queue)
        for stream in (n.task_stream, n.moving_stream):
            config = await self.config(stream)
            if config is not None and must_be_converted(config):
                raise UnsafeStore(
                    f"queue {queue!r}: its streams are of an earlier version, or their upgrade was interrupted; "
                    "run `holdfast install`"
                )
        self.unconverted.discard(queue)

    def forget(self, queue: str) -> None:
        """It has changed."""
        self._changes += 1
        self._known.pop(queue, None)

    async def all(self, *, damaged: bool = True) -> list[QueueInfo]:
        """By name. One whose options are damaged is left out and logged; Damaged where that is not good enough."""
        prefix = names.queue_subject(self.prefix, "")
        if await self.config(self._stream) is None:
            return []  # nothing is installed yet
        found = await self._reader.last(self._stream, await self._reader.subjects(self._stream, f"{prefix}*"))
        infos: list[QueueInfo] = []
        for subject, one in found.items():
            try:
                infos.append(_entry(names.queue_of(subject.removeprefix(prefix)), one)[0])
            except Damaged as error:  # whoever works on that queue is told; the others are listed
                if not damaged:
                    raise
                _LOG.error("%s", error)
        return sorted(infos, key=lambda info: info.name)

    async def delete(self, queue: str) -> None:
        """The entry last: whoever is killed before that has a queue whose deletion can be repeated."""
        for stream in self.names(queue).streams():
            await self.drop_stream(stream)
        await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": names.ends_subject(self.prefix, queue)})
        await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": names.queue_subject(self.prefix, queue)})
        self.forget(queue)

    async def uninstall(self) -> list[str]:
        """Remove every stream that Holdfast makes under this prefix; what else lies there, in words."""
        self._known.clear()
        self._installed = False
        left: list[str] = []
        for name, subjects in (await self._streams()).items():
            if names.is_ours(self.prefix, name, subjects):
                await self.drop_stream(name)
            else:
                left.append(f"stream {name}")
        return left

    async def _streams(self) -> dict[str, list[str]]:
        """Streams with a name or a subject of this prefix, and their subjects."""
        configs = [one["config"] for one in await self._reader.pages("STREAM.LIST", "streams", {})]
        own = (f"{self.prefix}.", f"{self.prefix}=")
        found = {config["name"]: list[str](config.get("subjects") or []) for config in configs}
        return {
            name: subjects
            for name, subjects in found.items()
            if any(each.startswith(own) for each in (name, *subjects))
        }


def stray(count: int) -> str:
    """What is wrong with streams of no queue."""
    return f"its streams have {count:,} messages, and its options are not there"


def must_be_converted(config: Mapping[str, Any]) -> bool:
    """Whether an upgrade of its queue has to be done or finished before anybody may work on it.

    A stream of tasks with schedules, or with a place of its own for delayed messages, is older than the format before.
    """
    subjects = config.get("subjects") or []
    return (
        bool(config.get("allow_msg_schedules"))
        or config["name"].endswith(f"={names.MOVING}")
        or any(subject.split(".")[1:3] == ["_", "later"] for subject in subjects)
    )


def _entry(queue: str, found: Found) -> tuple[QueueInfo, int]:
    """A queue and its format; Damaged."""
    return found.read(partial(_info, queue))


@lru_cache(WINDOW)
def _info(queue: str, data: bytes) -> tuple[QueueInfo, int]:
    """What is looked up every second is the same nearly always."""
    entry = read_entry(data)
    formats.checked(entry.format, formats.NATS, f"queue {queue!r}", oldest=formats.FIRST)
    options = changed(QueueOptions(), entry.options, where=f"queue {queue!r}")
    return QueueInfo(queue, options, entry.paused, entry.created_at), entry.format
