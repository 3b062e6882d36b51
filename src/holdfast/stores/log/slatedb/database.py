"""SlateDB as plain calls: what it answers, when it is durable, and who owns it."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec

from ....errors import Fenced, StoreError, Unavailable
from ... import formats
from .. import heap
from . import layout
from .binding import Caller, slatedb
from .disk import Disk
from .faults import FENCED, another, translated
from .index import Entry
from .location import Place
from .pinned import Pinned

T = TypeVar("T")
_PAGE = 1000
_LOOK = 5.0  # seconds to find out who owns the database
_CONFLICT = "the bucket refused a write as if another process owned the database, but none does; try again"
_FULL = 16 << 20  # bytes; SlateDB writes tables of 64 MiB, so the end comes before zero
# Blocks that were read. SlateDB's own 640 MiB are for what is read again and again; here that is in `index.Recent`.
_CACHE_BYTES, _CACHE_SHARDS = 32 << 20, 4
# SlateDB keeps what was written last in memory until it is 64 MiB or 4,096 log files, and under a small load that is
# half an hour. A table this large and this old is written out; under full load its own limit comes first.
_TABLE_BYTES, _TABLE_SECONDS = 4 << 20, 60.0


class Opened(msgspec.Struct):
    """What opening found."""

    entries: list[tuple[str, Entry]]
    gone: list[int]  # tags of bytes that are to go
    latest: float  # the clock when it was last noted
    apart: float  # and how far it was ahead of the wall clock
    is_new: bool
    format: int
    born: int  # the format it was made with
    store_id: str


class Database:
    """One life of a writer: after an error that leaves a write in doubt it is not used again."""

    def __init__(
        self,
        place: Place,
        caller: Caller,
        *,
        timeout: float,
        pinned: Pinned | None,
        background: Callable[[Callable[[], None]], object],  # runs something in another thread
    ) -> None:
        self._place = place
        self._pinned = pinned
        self._call = caller
        self._timeout = timeout
        self._db: Any = None
        self._admin: Any = None
        self._epoch = 0
        self._disk = Disk(place.folder / place.path) if place.is_local else None
        self._background = background
        self._table = 0  # bytes of rows in memory, about
        self._table_began = time.monotonic()
        self.failed: BaseException | None = None

    def open(self, *, only_after: int | None = None) -> Opened:
        """Become the writer, which fences the one before, and read what there is.

        With `only_after`, an epoch of ours: Fenced, and nothing done, when somebody else has come since.
        """
        try:
            return self._call(self._open(only_after), timeout=self._timeout)
        except BaseException as error:
            raise self._give_up(error, opening=self._place.text) from error

    async def _open(self, only_after: int | None) -> Opened:
        package = slatedb()
        if self._pinned is not None:
            self._pinned.check()  # or a new database would be made where the old one was
        store = self._place.object_store()
        self._admin = admin = package.AdminBuilder(self._place.path, store).build()
        if only_after is not None and await _epoch(admin) != only_after:
            raise Fenced(FENCED)
        if self._disk is not None:
            self._disk.refuse_shorter()
            await self._mend(self._disk, store)
        builder = package.DbBuilder(self._place.path, store)
        builder.with_settings(self._place.settings())
        cache = package.FoyerCacheOptions(max_capacity=_CACHE_BYTES, shards=_CACHE_SHARDS)
        builder.with_db_cache(package.DbCache.new_foyer_cache(cache), 0)  # nobody shares it: any number does
        self._db = await builder.build()
        self._epoch = await _epoch(admin)
        found = await self._read_all()
        if found.is_new or not found.store_id:
            found.store_id = found.store_id or secrets.token_hex(8)
            batch = package.WriteBatch()
            batch.put(layout.STORE_ROW, found.store_id.encode())
            if found.is_new:
                batch.put(layout.FORMAT_ROW, str(found.format).encode())
                batch.put(layout.BORN_ROW, str(found.format).encode())
            await self._durable(batch)
        if self._disk is not None:
            self._disk.sync_everything()
        if self._pinned is not None:
            self._pinned.pin()
            self._pinned.check()
        return found

    async def _mend(self, disk: Disk, store: Any) -> None:
        package = slatedb()
        good = disk.mend()
        if good is None:
            return

        async def readable_after(number: int) -> int:
            reader = package.SlateDbWalReader(self._place.path, store)
            files = await reader.iterator(number + 1)
            last = await reader.last_wal_file_id(number)
            try:
                while number < last:
                    number = (await files.next()).last_consumed_wal_file_id
            except package.Error.Data:
                pass
            return number

        await disk.mend_log(good, readable_after)

    async def _read_all(self) -> Opened:
        format = await self._db.get(layout.FORMAT_ROW)
        anything = [row async for row in self._rows(b"", limit=1)]
        is_new = layout.check_format(format, empty=not anything, place=self._place.text)
        entries = [layout.decode(row.key, row.value) async for row in self._rows(layout.OBJECTS)]
        gone = [layout.tag_of(row.key) async for row in self._rows(layout.GONE)]
        latest = layout.decode_instant(await self._db.get(layout.CLOCK_ROW))
        apart = layout.decode_instant(await self._db.get(layout.APART_ROW))
        born = formats.LOG if is_new else int(await self._db.get(layout.BORN_ROW) or formats.FIRST)
        store_id = (await self._db.get(layout.STORE_ROW) or b"").decode()
        number = formats.LOG if format is None else int(format)
        return Opened(entries, gone, latest, apart, is_new, number, born, store_id)

    async def _rows(self, prefix: bytes, *, limit: int = _PAGE) -> Any:
        everything = slatedb().KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
        rows = await self._db.scan_prefix(prefix, everything)
        while True:
            page = await rows.next_batch(limit)
            for row in page:
                yield row
            if len(page) < limit or limit < _PAGE:
                return

    @property
    def epoch(self) -> int:
        return self._epoch

    def refuse_fenced(self) -> None:
        """Notices within a second or so that another writer has come, also when nothing is written."""
        if self.failed is None:
            reason = self._db.status().close_reason
            if reason is slatedb().CloseReason.FENCED:
                self.failed = self._fenced()
            elif reason is not None:
                self.failed = Unavailable(f"SlateDB has stopped ({reason.name.lower()})")
        if self.failed is not None:
            raise another(self.failed)

    def refuse_moved(self) -> None:
        """Before anything is written, and before anybody is told of it; without this SlateDB would not notice."""
        if self._pinned is None:
            return
        try:
            self._pinned.check()
        except Unavailable as error:
            if self.failed is None:
                self.failed = error
            raise

    def get(self, row: bytes) -> bytes | None:
        found: bytes | None = self._run(lambda: self._db.get(row))
        return found

    def write(self, operations: Iterable[tuple[bytes, bytes | None]], *, durable: bool = True) -> None:
        """All or nothing; None deletes. Returns when it is durable, or at least in the hands of the next flush."""
        self.refuse_moved()
        batch = slatedb().WriteBatch()
        for row, value in operations:
            if value is None:
                batch.delete(row)
            else:
                batch.put(row, value)
                self._table += len(value)
        try:
            self._run(lambda: self._durable(batch) if durable else self._db.write(batch))
            if durable and self._disk is not None:
                self._disk.sync()
                self.refuse_moved()
            self._limit_table()
        except OSError as error:
            raise self._give_up(error) from error

    def sync(self) -> None:
        """Local disk: what SlateDB has written by now survives a power cut."""
        if self._disk is not None:
            self.refuse_moved()
            self._disk.sync()

    def _limit_table(self) -> None:
        now = time.monotonic()
        if self._table < _TABLE_BYTES or now < self._table_began + _TABLE_SECONDS:
            return
        self._table, self._table_began = 0, now
        with contextlib.suppress(RuntimeError):  # closing: no thread is left, and no need
            self._background(self._flush_table)

    def _flush_table(self) -> None:
        package, db = slatedb(), self._db
        if db is None:
            return
        how = package.FlushOptions(flush_type=package.FlushType.MEM_TABLE)
        try:
            self.refuse_moved()
            self._call(db.flush_with_options(how), timeout=self._timeout)
            heap.give_back()  # a dozen threads of the library have a heap each
        except (package.Error, TimeoutError, Unavailable, OSError):
            pass  # nothing is lost by it; what it means for writes shows with the next

    async def _durable(self, batch: Any) -> None:
        package = slatedb()
        handle = await self._db.write(batch)
        await self._db.flush_with_options(package.FlushOptions(flush_type=package.FlushType.WAL))
        await handle.await_durable()

    def close(self) -> None:
        """Without a last flush when it has failed: what was not acknowledged need not be."""
        db, self._db = self._db, None
        if db is None or self._moved() is not None:
            return  # a shutdown would write a manifest, by its path: into whatever lies there now
        package = slatedb()
        how = None if self.failed is not None else package.FlushType.WAL
        try:
            self._call(db.shutdown_with_options(package.CloseOptions(flush_type=how)), timeout=self._timeout)
            self.sync()
        except (package.Error, OSError, TimeoutError, Unavailable):
            pass  # everything acknowledged is durable already

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self.failed is not None:
            raise another(self.failed)
        try:
            return self._call(call())
        except BaseException as error:
            raise self._give_up(error) from error

    def _fenced(self) -> StoreError:
        """Fenced, unless nobody has come: SlateDB also takes a bucket's "conflict, try again" for another writer."""
        if self._place.is_local:
            return Fenced(FENCED)
        try:
            now = self._call(_epoch(self._admin), timeout=_LOOK)
        except (slatedb().Error, TimeoutError):
            now = self._epoch  # opening again looks once more
        return Fenced(FENCED) if now != self._epoch else Unavailable(_CONFLICT)

    def _moved(self) -> Unavailable | None:
        """What SlateDB makes of files that it cannot find may be anything."""
        try:
            self.refuse_moved()
        except Unavailable as error:
            return error
        except OSError:  # the disk fails: that is what the caller is told
            pass
        return None

    def _give_up(self, error: BaseException, *, opening: str = "") -> BaseException:
        """What the caller is told, and everybody after him."""
        ours = self._moved() or translated(error, opening=opening)
        if type(ours) is Fenced and not opening:
            ours = self._fenced()
        if type(ours) is Unavailable and self._place.is_local:
            ours = full_disk(self._place) or ours
        if self.failed is None:
            self.failed = ours
        return ours


def full_disk(place: Place) -> Unavailable | None:
    """SlateDB only says that it cannot write; most often this is why."""
    try:
        free = shutil.disk_usage(place.folder).free
    except OSError:
        return None
    if free >= _FULL:
        return None
    return Unavailable(f"the disk of {place.text} is full, {free >> 20} MiB are free: make room, then try again")


async def _epoch(admin: Any) -> int:
    manifest = await admin.read_manifest(None)
    return 0 if manifest is None else int(manifest.writer_epoch)
