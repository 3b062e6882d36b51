"""A bucket in this process whose time is ours and whose requests fail when we say so: for the rules of a repeat window.

Every process of a test has a door of its own to it. A door can be shut (its process was killed), and decides over each
write: ok, fail (not applied), lose (applied, no answer) or late (no answer; applied when `deliver` is called).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from obstore.exceptions import AlreadyExistsError, GenericError, NotModifiedError, PreconditionError

from holdfast.config import StoreOptions
from holdfast.stores.log.bucket.space import CloudSpace
from holdfast.stores.log.bucket.store import LateStore

Fate = Callable[[str, str], str]  # of a kind (create, swap, delete) and a key


class FarBucket:
    """What all doors share: objects, their tags, and when they were written (in whole seconds, as servers say it)."""

    def __init__(self, clock: Callable[[], float], *, resolution: float = 1.0) -> None:
        self.clock = clock
        self._resolution = resolution
        self.objects: dict[str, tuple[bytes, str, datetime]] = {}
        self.lock = threading.RLock()
        self.waiting: list[Callable[[], object]] = []  # late requests
        self._tags = 0

    def named(self, part: str = "") -> list[str]:
        with self.lock:
            return sorted(key for key in self.objects if part in key)

    def deliver(self, most: int | None = None) -> int:
        """Late requests arrive: all, or the oldest."""
        waiting, self.waiting = self.waiting[:most], self.waiting[len(self.waiting[:most]) :]
        for request in waiting:
            try:
                request()
            except (AlreadyExistsError, PreconditionError):
                pass
        return len(waiting)

    def write(self, key: str, data: bytes, mode: Any) -> dict[str, Any]:
        with self.lock:
            found = self.objects.get(key)
            if mode == "create" and found is not None:
                raise AlreadyExistsError(key)
            if isinstance(mode, dict) and (found is None or found[1] != mode["e_tag"]):
                raise PreconditionError(key)
            self._tags += 1
            written = datetime.fromtimestamp(self.clock() // self._resolution * self._resolution, UTC)
            self.objects[key] = (data, f"t{self._tags}", written)
            return {"e_tag": f"t{self._tags}", "version": None}

    def rewrite(self, keys: list[str]) -> None:
        """The same bytes again: their dates and tags are new."""
        with self.lock:
            for key in keys:
                self.write(key, self.objects[key][0], "overwrite")

    def copy(self) -> FarBucket:
        """Another bucket with the same objects, as a tool makes it that reads and writes them."""
        other = FarBucket(self.clock, resolution=self._resolution)
        with self.lock:
            for key, (data, _, _) in self.objects.items():
                other.write(key, data, "create")
        return other

    def remove(self, keys: list[str]) -> None:
        with self.lock:
            for key in keys:
                self.objects.pop(key, None)


class Door:
    """The verbs of an obstore store."""

    def __init__(self, bucket: FarBucket) -> None:
        self.bucket = bucket
        self.fate: Fate = lambda kind, key: "ok"
        self.is_shut = False

    def put(self, path: str, file: bytes, *, mode: Any = "overwrite", **options: Any) -> Any:
        kind = "create" if mode == "create" else "swap"
        return self._write(kind, path, lambda: self.bucket.write(path, bytes(file), mode))

    def delete(self, paths: Any) -> None:
        keys = [paths] if isinstance(paths, str) else list(paths)
        self._write("delete", keys[0], lambda: self.bucket.remove(keys))

    def _write(self, kind: str, key: str, call: Callable[[], Any]) -> Any:
        self._pass()
        fate = self.fate(kind, key)
        if fate == "late":
            self.bucket.waiting.append(call)
        answer = call() if fate in ("ok", "lose", "kill") else None
        if fate == "kill":  # applied, and that was the last this process did
            self.is_shut = True
        if fate != "ok":
            raise GenericError("the connection failed")
        return answer

    def get(self, path: str, *, options: Any = None) -> Any:
        self._pass()
        with self.bucket.lock:
            if path not in self.bucket.objects:
                raise FileNotFoundError(path)
            data, tag, _ = self.bucket.objects[path]
            if options and options.get("if_none_match") == tag:
                raise NotModifiedError(path)
            return _Result(data, self._meta(path))

    def head(self, path: str) -> Any:
        self._pass()
        with self.bucket.lock:
            if path not in self.bucket.objects:
                raise FileNotFoundError(path)
            return self._meta(path)

    def list(self, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 50) -> Iterator[Any]:
        self._pass()
        folder = f"{prefix}/" if prefix else ""
        with self.bucket.lock:
            keys = [key for key in self.bucket.named() if key.startswith(folder) and key > (offset or "")]
            metas = [self._meta(key) for key in keys]
        for start in range(0, len(metas), chunk_size):
            yield metas[start : start + chunk_size]

    def _meta(self, path: str) -> dict[str, Any]:
        data, tag, written = self.bucket.objects[path]
        return {"path": path, "e_tag": tag, "version": None, "last_modified": written, "size": len(data)}

    def _pass(self) -> None:
        if self.is_shut:
            raise GenericError("the connection failed")


class _Result:
    def __init__(self, data: bytes, meta: dict[str, Any]) -> None:
        self._data = data
        self.meta = meta

    def bytes(self) -> _Result:
        return self

    def to_bytes(self) -> bytes:
        return self._data


class _Dates:
    """The bucket's dates are by the very clock of the store: there is nothing to learn from them."""

    def sample(self, began: float, ended: float, date: float) -> None: ...


async def process(
    bucket: FarBucket, *, timeout: float = 5.0, ahead: float = 0.0, place: str = "far"
) -> tuple[LateStore, Door]:
    """A store as another process would have it, with a clock that is so far ahead of the bucket's, and its door."""
    door, clock = Door(bucket), (lambda: bucket.clock() + ahead) if ahead else bucket.clock
    space = await CloudSpace.open(door, place, timeout=timeout, connect_timeout=5.0, clock=clock)
    space._shelf.clock = _Dates()  # type: ignore[assignment]  # so that dates count although the clock is a test's
    space._identity.read(space._wire.until(), opening=True)
    return LateStore(space, StoreOptions(operation_timeout=timeout, poll_interval=0.05)), door
