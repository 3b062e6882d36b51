"""A bucket in this process that fails like a server far away: for tests of what stands on obstore, without a wire.

The faults are those of the proxy, as the driver tells them; the bucket underneath is any store of obstore's, its one
in memory for instance, which honours conditions.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from obstore.exceptions import AlreadyExistsError, GenericError

from .proxy import Faults

T = TypeVar("T")
_UNAVAILABLE = "Server returned non-2xx status code: 503 Service Unavailable: <Code>SlowDown</Code>"
_CONFLICT = "Server returned non-2xx status code: 409 Conflict: <Code>ConditionalRequestConflict</Code>"
_DROPPED = "HTTP error: error sending request: connection closed before message completed"
_TRUNCATED = "HTTP error: request or response body error: unexpected end of file"


class FaultyBucket:
    """The verbs of an obstore store, from any thread; `hits` counts the faults that hit something."""

    def __init__(self, store: Any, faults: Faults | None = None, *, seed: int = 0) -> None:
        self.faults = faults or Faults()
        self.requests: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self._store = store
        self._chance = random.Random(seed)
        self._lock = threading.Lock()

    def put(self, path: str, file: Any, *, mode: Any = "overwrite", **options: Any) -> Any:
        kind = "put" if mode == "overwrite" else "create" if mode == "create" else "swap"
        return self._write(kind, lambda: self._store.put(path, file, mode=mode, **options))

    def delete(self, paths: Any) -> Any:
        return self._write("delete", lambda: self._store.delete(paths))

    def get(self, path: str, *, options: Any = None) -> Any:
        cut, result = self._read("get", lambda: self._store.get(path, options=options))
        return _Broken(result) if cut else result

    def head(self, path: str) -> Any:
        return self._read("head", lambda: self._store.head(path))[1]

    def list(self, prefix: str | None = None, **options: Any) -> Iterator[Any]:
        """One page is one request."""
        pages = iter(self._store.list(prefix, **options))
        while True:
            cut, page = self._read("list", lambda: next(pages, None))
            if page is None:
                return
            if cut:
                raise GenericError(_TRUNCATED)
            yield page

    # ------------------------------------------------------------------ faults

    def _write(self, kind: str, call: Callable[[], T]) -> T:
        fault, early = self._begin(kind, "unavailable", "dropped", "delayed", *_conflict(kind))
        if fault == "conflict":
            raise AlreadyExistsError(_CONFLICT)
        answer = self._late(fault, early, call)
        if fault == "dropped":  # a refusal has been raised by now: only what was applied loses its answer
            self._hit("dropped")
            raise GenericError(_DROPPED)
        return answer

    def _read(self, kind: str, call: Callable[[], T]) -> tuple[bool, T]:
        """Whether the body breaks off, and the answer."""
        fault, early = self._begin(kind, "unavailable", "delayed", *(("truncated",) if kind != "head" else ()))
        return fault == "truncated", self._late(fault, early, call)

    def _begin(self, kind: str, *possible: str) -> tuple[str, bool]:
        with self._lock:
            self.requests[kind] += 1
            fault, early = self.faults.pick(self._chance.random()), self._chance.random() < 0.5
        if fault not in possible:
            return "", early
        if fault != "dropped":
            self._hit(fault)
        if fault == "unavailable":
            raise GenericError(_UNAVAILABLE)
        return fault, early

    def _late(self, fault: str, early: bool, call: Callable[[], T]) -> T:
        if fault == "delayed" and early:
            time.sleep(self.faults.delay)
        answer = call()
        if fault == "delayed" and not early:
            time.sleep(self.faults.delay)
        return answer

    def _hit(self, fault: str) -> None:
        with self._lock:
            self.hits[fault] += 1


class _Broken:
    """An answer whose body breaks off."""

    def __init__(self, result: Any) -> None:
        self.meta = result.meta

    def bytes(self) -> Any:
        raise GenericError(_TRUNCATED)


def _conflict(kind: str) -> tuple[str, ...]:
    return ("conflict",) if kind in ("create", "swap") else ()
