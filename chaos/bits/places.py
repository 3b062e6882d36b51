"""Stores whose objects can be spoiled while they are closed, and put back as they were."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import holdfast
from holdfast.stores.nats.store import NatsStore
from tests.servers.bucket import BucketServer, Item
from tests.servers.nats import Server

T = TypeVar("T")
LOG = "write-ahead log"
KILLED = "file, killed"  # a folder that a killed process left

_KINDS = {
    r"queues/.*": "options",
    r"schedules/.*": "schedule",
    r"[^/]+/removed": "index of the archive",
    r"[^/]+/head": "head",
    r"[^/]+/dead/head": "head of dead letters",
    r"[^/]+/dead/(inbox|later)/.*": "dead letters",
    r".*/(inbox|later)/[^/]+/\S{32}-\d+-\d+-\d+-\d+c?-.*": "retries",
    r".*/inbox/.*\.bundle": "bundle",
    r".*/inbox/.*": "block",
    r".*/later/.*": "delayed block",
    r".*/parts/.*": "part of a call",
    r".*/archive/.*": "archive file",
    r".*/results/.*": "result",
    r".*/dedup/.*": "dedup key",
    r"~identity": "identity",
    r"holdfast\.db": "database pages",
    r"holdfast\.db-wal": LOG,
    r"(wal|compacted|manifest)/.*": "SlateDB file",
    r"holdfast\._\.queue\..*": "options",
    r"holdfast\._\.done\..*": "record",
    r"holdfast\._\.dead\..*": "dead letter",
    r"holdfast\._\.key\..*": "dedup key",
    r"holdfast\._\.tally\..*": "counts",
    r"holdfast\._\.schedule\..*": "schedule",
    r"holdfast\.jobs\..*\.later": "delayed task",
    r"holdfast\.jobs\..*": "task",
}
WHOLE = frozenset(("options", "head", "identity", "database pages", LOG, "SlateDB file"))
"""Kinds that a queue cannot do without: there every call may be refused."""


def kind_of(key: str) -> str | None:
    """None: it says nothing that anybody needs."""
    return next((kind for pattern, kind in _KINDS.items() if re.fullmatch(pattern, key)), None)


class Place(Protocol):
    @property
    def url(self) -> str: ...

    def keep(self) -> None:
        """The closed store as it is now is what every trial begins with."""

    def reset(self) -> None:
        """Back to that."""

    def objects(self) -> dict[str, bytes]:
        """As they lie there."""

    def write(self, key: str, data: bytes | None) -> None:
        """None: it is removed."""

    def can_vanish(self, key: str) -> bool:
        """Whether it can, and anything is left that knows of it."""


class Folder:
    """`file://`: rows, files, the database itself and the log of a process that was killed."""

    def __init__(self, root: Path) -> None:
        self._store, self._kept = root / "store", root / "kept"
        self.url = f"file://{self._store}"

    def keep(self) -> None:
        shutil.copytree(self._store, self._kept)

    def reset(self) -> None:
        shutil.rmtree(self._store, ignore_errors=True)
        shutil.copytree(self._kept, self._store)

    def objects(self) -> dict[str, bytes]:
        with closing(self._database()) as database:
            rows = database.execute("SELECT key, data FROM objects").fetchall()
        found = {key: (self._store / key).read_bytes() if data is None else data for key, data in rows}
        return found | {"holdfast.db": (self._store / "holdfast.db").read_bytes()}

    def write(self, key: str, data: bytes | None) -> None:
        path = self._store / key
        if path.exists():
            path.unlink() if data is None else path.write_bytes(data)
        else:
            with closing(self._database()) as database, database:
                database.execute("UPDATE objects SET data = ? WHERE key = ?", (data, key))

    def can_vanish(self, key: str) -> bool:
        return (self._store / key).exists()  # a row does not go alone: what happens to pages is another kind

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self._store / "holdfast.db")


class KilledFolder(Folder):
    """The same after a process was killed: what it did last is in SQLite's log alone."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._trials = 0

    def reset(self) -> None:
        """Every second time with the dates of a copy, which are new."""
        self._trials += 1
        shutil.rmtree(self._store, ignore_errors=True)
        shutil.copytree(self._kept, self._store, copy_function=shutil.copy if self._trials % 2 else shutil.copy2)

    def objects(self) -> dict[str, bytes]:
        return {name: (self._store / name).read_bytes() for name in ("holdfast.db", "holdfast.db-wal")}


class Slate:
    """`slatedb+file://`: its files."""

    def __init__(self, root: Path) -> None:
        self._store, self._kept = root / "store", root / "kept"
        self._trials = 0

    @property
    def url(self) -> str:
        return f"slatedb+file://{self._store}"

    keep = Folder.keep

    def reset(self) -> None:
        """In another folder: SlateDB may still clean up in the one before."""
        self._trials += 1
        shutil.rmtree(self._store, ignore_errors=True)
        self._store = self._kept.with_name(f"store{self._trials}")
        shutil.copytree(self._kept, self._store)

    def objects(self) -> dict[str, bytes]:
        found = (path for path in sorted(self._store.rglob("*")) if path.is_file())
        return {"/".join(path.relative_to(self._store).parts[-2:]): path.read_bytes() for path in found}

    def write(self, key: str, data: bytes | None) -> None:
        [path] = (path for path in self._store.rglob(key.rpartition("/")[2]) if path.is_file())
        path.unlink() if data is None else path.write_bytes(data)

    def can_vanish(self, key: str) -> bool:
        return True


class Bucket:
    """`s3://`, on a server that is honest and lives here."""

    def __init__(self, server: BucketServer) -> None:
        self._server = server
        self._kept: dict[str, Item] = {}
        self.url = server.url("jobs")

    def keep(self) -> None:
        self._kept = dict(self._server.items)

    def reset(self) -> None:
        self._server.items.clear()
        self._server.items.update(self._kept)
        self._server._keys[:] = sorted(self._kept)

    def objects(self) -> dict[str, bytes]:
        return {key.removeprefix("jobs/"): item.data for key, item in self._server.items.items()}

    def write(self, key: str, data: bytes | None) -> None:
        full = f"jobs/{key}"
        if data is None:
            del self._server.items[full]
            self._server._keys.remove(full)
        else:
            item = self._server.items[full]
            self._server.items[full] = Item(data, f'"{hash(data):x}"', item.written)

    def can_vanish(self, key: str) -> bool:
        """Of a block that no head has absorbed and of a dedup key only the producer knows: without them a bucket looks
        like one that never had them.
        """
        if kind_of(key) in ("block", "delayed block", "retries", "dead letters"):
            heads = [data for each, data in self.objects().items() if each.endswith("/head")]
            return any(key.partition("/")[2].encode() in data for data in heads)
        return kind_of(key) != "dedup key"


class Streams:
    """`nats://`: what is stored, altered or purged past our sums as another program could; the server's own hold."""

    _STREAMS = (
        "holdfast=queues",
        "holdfast=jobs=tasks",
        "holdfast=jobs=done",
        "holdfast=jobs=dead",
        "holdfast=schedules",
    )

    def __init__(self, server: Server, root: Path) -> None:
        self._server = server
        self._kept = root / "kept"
        self._thread = ThreadPoolExecutor(1)  # whoever plays a story runs an event loop
        self.url = server.url

    def keep(self) -> None:
        self._server.stop()
        shutil.copytree(self._server.folder / "data", self._kept)
        self._server.start()

    def reset(self) -> None:
        self._server.kill()
        shutil.rmtree(self._server.folder / "data")
        shutil.copytree(self._kept, self._server.folder / "data")
        self._server.start()

    def objects(self) -> dict[str, bytes]:
        return self._run(self._objects())

    async def _objects(self) -> dict[str, bytes]:
        async with holdfast.connect(self.url) as broker:
            assert isinstance(broker.store, NatsStore)
            pages = [await broker.store.reader.run(stream, ">", 1, 1 << 20) for stream in self._STREAMS]
        return {one.subject: one.stored for page in pages for one in page}

    def write(self, key: str, data: bytes | None) -> None:
        self._run(self._write(key, data))

    async def _write(self, key: str, data: bytes | None) -> None:
        async with holdfast.connect(self.url) as broker:
            assert isinstance(broker.store, NatsStore)
            connection = broker.store.connection
            if data is None:
                [stream] = (await connection.api("STREAM.NAMES", {"subject": key}))["streams"]
                await connection.api(f"STREAM.PURGE.{stream}", {"filter": key})
            else:
                await connection.request(key, data)

    def can_vanish(self, key: str) -> bool:
        """Of what waits, of a dedup key and of what has ended only its producer knows."""
        return kind_of(key) in ("options", "dead letter")

    def _run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(asyncio.run, doing).result()


@contextmanager
def place(store: str, root: Path) -> Iterator[Place]:
    if store == "s3":
        with BucketServer() as server:
            yield Bucket(server)
    elif store == "nats":
        with Server() as streams:
            yield Streams(streams, root)
    else:
        kinds: dict[str, Callable[[Path], Place]] = {"slatedb": Slate, KILLED: KilledFolder}
        yield kinds.get(store, Folder)(root)
