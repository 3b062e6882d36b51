"""A simulated object store as the wire sees it: every request travels, arrives, is answered; each of that may fail.

A write may be applied although its reply is lost, much later, or twice. A list shows what was there when it arrived,
however late its answer comes. Dates are whole seconds, and something may rewrite them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from obstore.exceptions import AlreadyExistsError, GenericError, NotModifiedError, PreconditionError

from holdfast.stores.log import names
from holdfast.stores.log.bucket import identity
from holdfast.stores.log.bucket.transaction import WINDOW

from . import faults
from .baton import EPOCH, Bell, World
from .faults import Dice
from .heads import stored_head

Bytes = bytes  # `bytes` is a method below
_SLOW_LIST_S = 12.0  # at most
_FOR_ONCE = ("probe/", "queues/")  # nothing happens to what opens a store and makes a queue


class Stored:
    __slots__ = ("data", "made", "tag", "written")

    def __init__(self, data: bytes, tag: str, made: datetime, written: datetime | None = None) -> None:
        self.data = data
        self.tag = tag
        self.made = made
        self.written = written or made  # also after its date was rewritten


class Bucket:
    """What all doors share."""

    def __init__(self, world: World, dice: Dice) -> None:
        self.world = world
        self.dice = dice
        self.objects: dict[str, Stored] = {}
        self.keys: list[str] = []
        self.watchers: list[Callable[[str, bytes | None, bytes | None], None]] = []  # key, before, after
        self.trip = 0.01  # seconds a request takes
        self.requests = 0
        self.request_made: Callable[[int], None] = lambda count: None
        self._tags = 0
        self._is_copy = False  # the identity was rewritten, and nobody has said so yet

    def date(self) -> datetime:
        return datetime.fromtimestamp(int(EPOCH + self.world.now), UTC)

    def named(self, part: str) -> list[str]:
        return [key for key in self.keys if part in key]

    # What the server does.

    def write(self, key: str, data: bytes, mode: Any) -> dict[str, Any]:
        found = self.objects.get(key)
        if mode == "create" and found is not None:
            raise AlreadyExistsError(key)
        if isinstance(mode, dict):
            if found is None:
                raise FileNotFoundError(key)  # 404 on If-Match of a missing key
            if found.tag != mode["e_tag"]:
                raise PreconditionError(key)
        self._tags += 1
        tag = f"t{self._tags}"
        if key == identity.KEY:
            self._is_copy = False
        elif self._is_copy and _is_late(key, self.date()):
            return {"e_tag": tag, "version": None}  # see `_lose_repeats`
        self.objects[key] = Stored(data, tag, self.date())
        if found is None:
            insort(self.keys, key)
        for watch in self.watchers:
            watch(key, found.data if found else None, data)
        return {"e_tag": tag, "version": None}

    def remove(self, keys: list[str]) -> None:
        for key in keys:
            found = self.objects.pop(key, None)
            if found is not None:
                del self.keys[bisect_left(self.keys, key)]
                for watch in self.watchers:
                    watch(key, found.data, None)

    def read(self, key: str) -> Stored:
        found = self.objects.get(key)
        if found is None:
            raise FileNotFoundError(key)
        return found

    def page(self, folder: str, after: str, most: int) -> list[dict[str, Any]]:
        first = max(bisect_left(self.keys, folder), bisect_right(self.keys, after))
        page = []
        for key in self.keys[first : first + most]:
            if not key.startswith(folder):
                break
            page.append(meta(key, self.objects[key]))
        return page

    def rewrite(self, share: float, *, keep_tags: bool) -> int:
        """Something copies objects over themselves: they have other dates, and perhaps other tags."""
        count = 0
        for key in self.keys:
            if self.dice.random.random() < share:
                found = self.objects[key]
                self._tags += 1
                tag = found.tag if keep_tags else f"t{self._tags}"
                self.objects[key] = Stored(found.data, tag, self.date(), found.written)
                count += 1
                self._is_copy = self._is_copy or key == identity.KEY
        if self._is_copy:
            self._lose_repeats()
        return count

    def _lose_repeats(self) -> None:
        """A write that arrived late and was not seen before a copy comes back with it once: known, and told to users.

        So that the judge need not excuse it, and with it what else might come back, a copy does not have these.
        """
        held = {
            key.removesuffix("head") + block.key
            for key in self.keys
            if key.endswith("/head")
            for block in stored_head(key, self.objects[key].data).blocks.values()
        }
        self.remove([key for key in self.keys if _is_late(key, self.objects[key].written) and key not in held])


def _is_late(key: str, written: datetime) -> bool:
    birth = names.birth_of(key)
    return birth is not None and written.timestamp() - birth > WINDOW


def meta(key: str, found: Stored) -> dict[str, Any]:
    return {"path": key, "e_tag": found.tag, "version": None, "last_modified": found.made, "size": len(found.data)}


class _Reply:
    __slots__ = ("bell", "error", "is_here", "value")

    def __init__(self, world: World) -> None:
        self.bell = Bell(world)
        self.is_here = False
        self.value: Any = None
        self.error: Exception | None = None

    def give(self, value: Any, error: Exception | None) -> None:
        if not self.is_here:
            self.is_here, self.value, self.error = True, value, error
            self.bell.ring()


class Door:
    """The verbs of an obstore store, for one process. A request outlives its sender."""

    def __init__(self, bucket: Bucket, *, timeout: float) -> None:
        self._bucket = bucket
        self._timeout = timeout  # after which the client of the bucket gives a request up

    def put(self, path: str, file: bytes, *, mode: Any = "overwrite", **options: Any) -> Any:
        data = bytes(file)
        return self._request(path, faults.WRITES, lambda: self._bucket.write(path, data, mode))

    def delete(self, paths: Any) -> None:
        keys = [paths] if isinstance(paths, str) else list(paths)
        self._request(keys[0], faults.WRITES, lambda: self._bucket.remove(keys))

    def get(self, path: str, *, options: Any = None) -> Any:
        def read() -> _Result:
            found = self._bucket.read(path)
            if options and options.get("if_none_match") == found.tag:
                raise NotModifiedError(path)
            return _Result(found.data, meta(path, found))

        return self._request(path, faults.READS, read)

    def head(self, path: str) -> Any:
        return self._request(path, faults.READS, lambda: meta(path, self._bucket.read(path)))

    def list(self, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 50) -> Iterator[Any]:
        folder, after = f"{prefix}/" if prefix else "", offset or ""
        while True:
            page = self._request(folder, faults.LISTS, lambda after=after: self._bucket.page(folder, after, chunk_size))  # type: ignore[misc]
            if not page:
                return
            yield page
            if len(page) < chunk_size:
                return
            after = page[-1]["path"]

    def _request(self, key: str, kinds: tuple[str, ...], effect: Callable[[], Any]) -> Any:
        bucket, world = self._bucket, self._bucket.world
        bucket.requests += 1
        bucket.request_made(bucket.requests)
        dice = bucket.dice
        there, back, much = dice.random.random(), dice.random.random(), dice.random.random()
        fault = dice.draw(kinds)
        if key.startswith(_FOR_ONCE):
            fault = ""
        reply = _Reply(world)
        there, back = bucket.trip * (0.2 + there), bucket.trip * (0.2 + back)
        if fault == "slow":
            part = much * min(1.5 * self._timeout, 20.0)
            there, back = (there + part, back) if there < back else (there, back + part)
        elif fault == "slow list":  # it was made at once
            back += much * _SLOW_LIST_S
        if fault == "refused":  # it never arrives
            world.at(back, lambda: reply.give(None, GenericError("the connection failed")))
        elif fault in ("unavailable", "conflict"):
            status = "503 SlowDown" if fault == "unavailable" else "409 Conflict"
            world.at(there + back, lambda: reply.give(None, GenericError(f"status code: {status}")))
        else:
            self._send(reply, effect, fault, there, back, much)
        if there + back > self._timeout:
            world.at(self._timeout, lambda: reply.give(None, GenericError("operation timed out")))
        while not reply.is_here:
            reply.bell.wait()
        if reply.error is not None:
            raise reply.error
        return reply.value

    def _send(
        self, reply: _Reply, effect: Callable[[], Any], fault: str, there: float, back: float, much: float
    ) -> None:
        world = self._bucket.world

        def arrive() -> None:
            value, error = _tried(effect)
            if fault == "repeated":  # on the way; the answer to the first one is lost
                value, error = _tried(effect)
            if fault != "lost":
                world.at(back, lambda: reply.give(value, error))

        if fault in ("lost", "late"):
            world.at(there + back, lambda: reply.give(None, GenericError("the connection failed")))
        if fault in ("late", "double"):
            world.at(0.05 + 40.0 * much**3, lambda: _tried(effect))
        if fault != "late":
            world.at(there, arrive)


def _tried(effect: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return effect(), None
    except Exception as error:  # noqa: BLE001  it travels to whoever asked
        return None, error


class _Result:
    """The answer to a `get`, as obstore gives it."""

    def __init__(self, data: Bytes, meta: dict[str, Any]) -> None:
        self._data = data
        self.meta = meta

    def bytes(self) -> _Result:
        return self

    def to_bytes(self) -> Bytes:
        return self._data
