"""Stores whose objects can be spoiled behind their back."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from holdfast.stores import log
from holdfast.stores.log.space import Found
from tests.servers.bucket import BucketServer, Item

KINDS = ("flipped", "truncated", "rubbish", "missing")


def spoiled(data: bytes, kind: str) -> bytes | None:
    """None: nothing is left."""
    if kind == "missing":
        return None
    if kind == "truncated":
        return data[: len(data) // 2]
    if kind == "rubbish":
        return random.Random(1).randbytes(len(data))
    return bytes(byte ^ 0xFF for byte in data[:200]) + data[200:]


@dataclass
class Place:
    """`objects` by key, as they lie there; `write` replaces one, None removes its bytes; `move` changes its key."""

    url: str
    objects: Callable[[], dict[str, bytes]]
    write: Callable[[str, bytes | None], None]
    move: Callable[[str, str], None]

    def spoil(self, part: str, kind: str) -> str:
        """The first object with this in its key, of the queue itself if it has one."""
        found = [(key, data) for key, data in self.objects().items() if part in key]
        key, data = min(found, key=lambda each: ("/dead/" in each[0], each[0]))
        self.write(key, spoiled(data, kind))
        return key

    def rename(self, part: str, change: Callable[[str], str]) -> str:
        """The same for its name; the new key."""
        old = min(key for key in self.objects() if part in key)
        self.move(old, change(old))
        return change(old)


@contextmanager
def place(store: str, folder: Path) -> Iterator[Place]:
    with {"file": _folder, "memory": _memory, "s3": _bucket}[store](folder) as made:
        yield made


@contextmanager
def _folder(folder: Path) -> Iterator[Place]:
    path = folder / "store"

    def database() -> apsw.Connection:
        return apsw.Connection(str(path / "holdfast.db"))

    def objects() -> dict[str, bytes]:
        found = database().execute("SELECT key, data FROM objects").fetchall()
        return {key: _read(path / key) if data is None else data for key, data in found}

    def write(key: str, data: bytes | None) -> None:
        if (path / key).exists():
            os.unlink(path / key) if data is None else (path / key).write_bytes(data)
        elif data is None:
            database().execute("DELETE FROM objects WHERE key = ?", (key,))
        else:
            database().execute("UPDATE objects SET data = ? WHERE key = ?", (data, key))

    def move(old: str, new: str) -> None:
        database().execute("UPDATE objects SET key = ? WHERE key = ?", (new, old))

    yield Place(f"file://{path}", objects, write, move)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@contextmanager
def _memory(folder: Path) -> Iterator[Place]:
    name = f"damaged-{os.getpid()}-{folder.name}"

    def objects() -> dict[str, bytes]:
        return {key: found.data for key, found in log._shared[name]._objects.found.items()}

    def write(key: str, data: bytes | None) -> None:
        log._shared[name]._objects.set(key, None if data is None else Found(data, 1))

    def move(old: str, new: str) -> None:
        held = log._shared[name]._objects
        held.set(new, held.found[old])
        held.set(old, None)

    yield Place(f"memory://{name}", objects, write, move)
    log._shared.pop(name, None)


@contextmanager
def _bucket(folder: Path) -> Iterator[Place]:
    with BucketServer() as server:

        def objects() -> dict[str, bytes]:
            return {key.removeprefix("jobs/"): item.data for key, item in server.items.items()}

        def write(key: str, data: bytes | None) -> None:
            item = server.items.pop(f"jobs/{key}")
            if data is not None:
                server.items[f"jobs/{key}"] = Item(data, item.tag, item.written)
            server._keys[:] = sorted(server.items)

        def move(old: str, new: str) -> None:
            server.items[f"jobs/{new}"] = server.items.pop(f"jobs/{old}")
            server._keys[:] = sorted(server.items)

        yield Place(server.url("jobs"), objects, write, move)
