"""From a store to a target: files first, the manifest last."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from .. import __version__
from ..errors import ConfigError, Damaged, StoreError, Unavailable
from ..stores.backups import Changed, Part, QueueCopy, Section, Snapshot, backups_of
from ..stores.base import QueueInfo, Store
from . import manifest as manifests
from .manifest import File, Manifest, QueueEntry
from .targets import Target

_PARTS_AT_ONCE = 3  # parts: one is read, one encoded, one written
_ROUNDS = 50  # plans of a store that changes while it is read; each has less left to copy
_SECTIONS: tuple[Section, ...] = ("open", "dead", "archive", "keys")


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What was done. `instant` says what time the state is of."""

    number: int
    instant: str
    queues: int
    messages: int
    files: int
    bytes: int  # of all files of this backup
    new_files: int
    new_bytes: int
    repaired: int = 0  # files of earlier backups that were damaged or gone, and were written again
    lost: list[int] = []  # earlier backups whose manifests are damaged


class _Writer:
    """One run of a backup."""

    def __init__(self, target: Target, on_progress: Callable[[int, int], None] | None) -> None:
        self._target = target
        self._on_progress = on_progress or (lambda done, of: None)
        self._turns = asyncio.Semaphore(_PARTS_AT_ONCE)
        self.known: dict[str, list[File]] = {}
        self.new: list[File] = []
        self.repaired = 0
        self.lost: list[int] = []
        self._sizes: dict[str, int] = {}  # as earlier backups have noted them
        self._there: dict[str, int] = {}  # as they are
        self._sound: dict[str, bool] = {}
        self._total = 0

    async def look(self) -> list[str]:
        """What the target has; ConfigError when that is something else."""
        self._there = await asyncio.to_thread(self._target.sizes)
        names = list(self._there)
        if strange := [name for name in names if not manifests.is_ours(name)]:
            raise ConfigError(
                f"{self._target.place} holds something else ({strange[0]}): a backup needs a place of its own"
            )
        for number in manifests.numbers(names):  # sizes are not in the names
            data = await asyncio.to_thread(self._target.read, manifests.manifest_name(number))
            try:
                found = manifests.decode(data or b"", f"{self._target.place}/{manifests.manifest_name(number)}")
            except Damaged:  # what it named is copied again
                self.lost.append(number)
                continue
            self._sizes |= {file.name: file.bytes for file in found.files().values()}
        for origin, files in manifests.whole_origins(names).items():
            if all(name in self._sizes for name, _, _ in files):
                self.known[origin] = [File(name, rows, self._sizes[name], crc) for name, rows, crc in files]
        return names

    async def entry(self, snapshot: Snapshot, queue: QueueCopy) -> QueueEntry:
        """Copy what is not there yet."""
        info: QueueInfo = queue.info
        sections: dict[str, list[File]] = {}
        for section in _SECTIONS:
            parts = queue.parts.get(section, [])
            self._total += sum(part.rows for part in parts)
            tasks = [asyncio.ensure_future(self._part(snapshot, queue, section, part)) for part in parts]
            try:
                sections[section] = [file for files in await asyncio.gather(*tasks) for file in files]
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise
        return QueueEntry(
            name=info.name,
            at=queue.at,
            options=info.options,
            paused=info.paused,
            created_at=info.created_at,
            completed=queue.completed,
            failed=queue.failed,
            sections=sections,
            consumers=queue.consumers,
            sinks=queue.sinks,
            schedules=queue.schedules,
        )

    async def _part(self, snapshot: Snapshot, queue: QueueCopy, section: Section, part: Part) -> list[File]:
        async with self._turns:
            origin = _digest(part.origin.encode()) if part.origin else ""
            if origin in self.known and await asyncio.to_thread(self._are_sound, self.known[origin]):
                self._on_progress(part.rows, self._total)
                return self.known[origin]
            files: list[File] = []
            waiting: Any = None  # the last one says that it is
            place = 0
            async for some in _rows(snapshot, queue, section, part):
                if waiting is not None:
                    files.append(await self._write(origin, place, waiting, last=False))
                    place += 1
                waiting = some
            if waiting is not None:
                files.append(await self._write(origin, place, waiting, last=True))
            if origin:
                self.known[origin] = files
            self._on_progress(part.rows, self._total)
            return files

    async def _write(self, origin: str, place: int, rows: Any, *, last: bool) -> File:
        return await asyncio.to_thread(self._written, origin, place, rows, last=last)

    def _written(self, origin: str, place: int, rows: Any, *, last: bool) -> File:
        data = rows if isinstance(rows, bytes) else manifests.parquet(rows)
        count = manifests.count(data) if isinstance(rows, bytes) else rows.num_rows
        name = manifests.file_name(origin or _digest(data), place, count, data, last=last)
        file = File(name, count, len(data), zlib.crc32(data))
        if name in self._sizes:
            if not self._are_sound([file]):
                self._repair(file, data)
            return file  # the same rows as in an earlier backup
        if self._target.create(name, data) or self._target.read(name) == data:  # that of an interrupted run
            self._sound[name] = True
            self.new.append(file)
        else:
            self._repair(file, data)
        return file

    def _repair(self, file: File, data: bytes) -> None:
        self._target.replace(file.name, data)
        self._sound[file.name] = True
        self.repaired += 1
        self.new.append(file)

    def _are_sound(self, files: Sequence[File]) -> bool:
        """Whether files of earlier backups are there: of a bucket's their size is known, a folder's are read again."""
        for file in files:
            if file.name not in self._sound:
                self._sound[file.name] = self._there.get(file.name) == file.bytes and self._matches(file)
        return all(self._sound[file.name] for file in files)

    def _matches(self, file: File) -> bool:
        if not self._target.is_local:
            return True
        try:
            manifests.check(file, self._target.read(file.name), self._target.place)
        except StoreError:  # Damaged, or the disk cannot read it
            return False
        return True

    async def verify(self) -> None:
        """Read what was written back; Damaged."""
        for file in self.new:
            data = await asyncio.to_thread(self._target.read, file.name)
            manifests.check(file, data, self._target.place)


async def _rows(snapshot: Snapshot, queue: QueueCopy, section: Section, part: Part) -> AsyncIterator[Any]:
    async for some in snapshot.read(queue, section, part):
        yield some


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16, person=b"holdfast-1").hexdigest()


async def backup(
    store: Store,
    target: Target,
    *,
    source: str,
    paused: Sequence[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
) -> Backup:
    """Back up everything. `paused`: queues that are so only meanwhile."""
    copies = backups_of(store)
    writer = _Writer(target, on_progress)
    names = await writer.look()
    found = _sources_first(await store.queues())
    groups = [[info.name for info in found]] if copies.one_instant else [[info.name] for info in found]
    entries: list[QueueEntry] = []
    for some in groups:
        entries += await _copied(store, writer, some)
    entries = [msgspec.structs.replace(each, paused=each.paused and each.name not in paused) for each in entries]
    await writer.verify()
    written = Manifest(
        id=secrets.token_hex(16),
        number=max(manifests.numbers(names), default=0) + 1,
        version=__version__,
        made_at=time.time(),
        source=source,
        one_instant=copies.one_instant,
        queues=sorted(entries, key=lambda each: each.name),
    )
    while not await asyncio.to_thread(
        target.create, manifests.manifest_name(written.number), manifests.encode(written)
    ):
        written = msgspec.structs.replace(written, number=written.number + 1)  # another backup was quicker
    files = written.files()
    return Backup(
        number=written.number,
        instant=written.instant,
        queues=len(entries),
        messages=sum(each.rows(section) for each in entries for section in ("open", "dead", "archive")),
        files=len(files),
        bytes=sum(file.bytes for file in files.values()),
        new_files=len(writer.new),
        new_bytes=sum(file.bytes for file in writer.new),
        repaired=writer.repaired,
        lost=writer.lost,
    )


async def _copied(store: Store, writer: _Writer, names: Sequence[str]) -> list[QueueEntry]:
    last: Changed | None = None
    missing: Damaged | None = None
    for _ in range(_ROUNDS):
        try:
            async with backups_of(store).snapshot(names) as snapshot:
                return [await writer.entry(snapshot, queue) for queue in snapshot.queues]
        except Changed as changed:
            missing, last = changed.again(last), changed
    raise missing or Unavailable("the store changes faster than it can be copied: try again when there is less to do")


def _sources_first(found: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Queues whose dead letters go to another one before that one: on its way a letter is seen twice, never not."""
    left = {info.name: info for info in found}
    ordered: list[QueueInfo] = []
    while left:
        targets = {info.options.dead_letter for info in left.values()}
        free = [name for name in left if name not in targets] or list(left)[:1]  # a circle is cut anywhere
        ordered += [left.pop(name) for name in free]
    return ordered
