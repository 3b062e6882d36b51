"""`holdfast scrub`: every object of a space is read again: its sum, its content, and what it refers to.

Whatever looks wrong is looked at once more before it is told: files leave after the commit that ends their messages,
and on a bucket objects leave between a list and a read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial

import msgspec

from ...errors import Damaged
from ..base import Check, Reread
from . import archive, archive_index, bundles, damage, names, queues, rows, tokens
from .head import codec
from .queues import Address
from .space import Reading, Space, Transaction, Verifying

_AT_ONCE = 20  # objects of one look: whoever reads beside it waits so long
_OPENING = ("~identity", "probe/")  # of a bucket: read when it is opened


class Last(msgspec.Struct, frozen=True):
    """What the last scrub of the whole store found."""

    at: float
    objects: int
    bytes: int
    without: int  # objects that have no sum
    wrong: int
    first: list[str]  # the first keys of those


async def scrub(space: Space, queue: str | None, *, quarantine: bool) -> AsyncIterator[Reread]:
    """One answer for each object, then what is missing."""
    scrubbing = _Scrub(space, quarantine=quarantine)
    prefixes = [""] if queue is None else [f"{queue}@", names.config_key(queue)]
    told: list[Reread] = []
    count = size = without = 0
    try:
        async for each in scrubbing.everything(prefixes):
            count, size, without = count + bool(each.size), size + each.size, without + (not each.has_sum)
            if each.problem:
                told.append(each)
            yield each
    finally:
        space.sums.without = None
    if queue is None:
        last = Last(space.clock(), count, size, without, len(told), [each.key for each in told[:3]])
        await space.transact(lambda tx: _note(tx, last))


def _note(tx: Transaction, last: Last) -> None:
    damage.note(tx, names.SCRUBBED, Last)  # on a bucket only what was read can be replaced
    tx.put(names.SCRUBBED, msgspec.msgpack.encode(last))


async def check(space: Space) -> Check:
    """The line of `doctor` about the last one."""
    last = await space.read(lambda view: damage.note(view, names.SCRUBBED, Last))
    if last is None:
        return Check("scrub", "ok", "never done; `holdfast scrub` rereads everything and verifies it")
    days = max(0.0, space.clock() - last.at) / 86_400
    what = f"{days:.1f} days ago {last.objects:,} objects were read, {last.without:,} of them without a sum"
    if last.wrong:
        return Check("scrub", "fail", f"{what}; {last.wrong:,} things were wrong: {', '.join(last.first)}")
    return Check("scrub", "ok", f"{what}; nothing was wrong")


class _Scrub:
    def __init__(self, space: Space, *, quarantine: bool) -> None:
        self._space = space
        self._quarantine = quarantine
        self._without = space.sums.without = set[str]()
        self._named: dict[str, str] = {}  # what must be there: the key, and who names it
        self._queues: dict[str, queues.Config] = {}
        self._strays: dict[str, int | None] = {}  # how many objects a root of no queue has; None: it has its queue

    async def everything(self, prefixes: list[str]) -> AsyncIterator[Reread]:
        for prefix in prefixes:
            after = ""
            while keys := await self._space.read(partial(_page, prefix, after)):
                after = keys[-1]
                wanted = [key for key in keys if not prefix or names.queue_of(key) == names.queue_of(prefix)]
                for start in range(0, len(wanted), _AT_ONCE):
                    for each in await self._looked_at(wanted[start : start + _AT_ONCE]):
                        yield each
        async for each in self._missing():
            yield each

    async def _missing(self) -> AsyncIterator[Reread]:
        for key, by in list(self._named.items()):
            if await self._space.read(partial(_is_missing, key=key, by=by)):
                yield Reread(names.queue_of(key), key, 0, problem=f"it is missing, {by} names it")
        for root, count in self._strays.items():
            name = root.partition("@")[0]
            if count and await self._space.read(partial(_is_stray, root=root)):
                yield Reread(name, root, 0, problem=f"{count:,} objects, but the options of the queue are not there")
        for queue, config in self._queues.items() if self._space.request_costs else ():
            lost = await self._space.read(partial(archive_index.told, queue=queue, config=config))
            for key, count in lost.items():
                yield Reread(queue, key, 0, problem=f"{count:,} messages of this day are missing: a file is gone")
        if isinstance(self._space, Verifying):
            for said in await self._space.verify():
                yield Reread("", "", 0, problem=said)

    async def _looked_at(self, keys: list[str]) -> list[Reread]:
        found = await self._space.read(partial(self._read, keys=keys))
        again = [each.key for each in found if each.problem]
        if again:
            sound = [each for each in found if not each.problem]
            found = sound + await self._space.read(partial(self._read, keys=again))
        if self._quarantine:
            found = [await self._set_aside(each) if each.problem else each for each in found]
        return found

    def _read(self, view: Reading, keys: list[str]) -> list[Reread]:
        return [each for key in keys if (each := self._one(view, key)) is not None]

    def _one(self, view: Reading, key: str) -> Reread | None:
        self._named.pop(key, None)
        queue, without = names.queue_of(key), self._without
        size, problem = 0, ""
        try:
            found = view.get(key)
            if found is None:
                return None if not view.list(key, limit=1) else Reread(queue, key, 0, problem="its bytes are gone")
            size = len(found.data)
            self._decode(view, key, found.data)
        except Damaged as error:
            size, problem = size or 1, error.why
        return Reread(queue, key, size, has_sum=key not in without, problem=problem)

    def _decode(self, view: Reading, key: str, data: bytes) -> None:
        if key.startswith(names.CONFIGS):
            self._options(key, queues.decode(data, names.queue_of(key)))
        elif not names.is_ours(key):
            raise damage.damaged(key, "its name makes no sense")
        elif names.queue_of(key):  # of a schedule, a value and a worker's report the sum is all there is to verify
            self._stray(view, key)
            log = names.log_of(key)
            damage.read(key, partial(self._decoder(key.removeprefix(log)), key), data)

    def _decoder(self, relative: str) -> Callable[[str, bytes], object]:
        folder = relative.partition("/")[0]
        if relative == "head":
            return self._head
        if bundles.is_bundle(relative):
            return self._bundle
        if folder == "archive":
            return _file
        if folder in ("inbox", "later", "late", bundles.FOLDER.rstrip("/")):
            return _block
        return _any

    def _options(self, key: str, config: queues.Config) -> None:
        if config.store and self._space.store_id and config.store != self._space.store_id:
            raise damage.damaged(key, f"it is of the store {config.store}, this is {self._space.store_id}")
        if config.closing is None:
            self._queues[names.queue_of(key)] = config
        if config.has_heads and config.closing is None:
            for root in queues.log_roots(names.queue_of(key), config):
                self._named.setdefault(root + "head", key)
        if config.closing is None:
            for name in config.schedules:
                self._named.setdefault(names.schedule_key(name), key)

    def _head(self, key: str, data: bytes) -> None:
        head, root = codec.decode(data), key.removesuffix("head")
        for block in head.blocks.values():
            self._named[root + block.key] = key
        for group in [*head.settled, *(head.frozen.settled if head.frozen else ())]:
            for result in filter(None, map(tokens.result_key, group.results or ())):
                self._named[root + result] = key

    def _bundle(self, key: str, data: bytes) -> None:
        for part in bundles.decoded(data):
            self._named[names.log_of(key) + part] = key

    def _stray(self, view: Reading, key: str) -> None:
        root = key[: key.index("/") + 1]
        if root not in self._strays:
            self._strays[root] = 0 if _is_stray(view, root) else None
        count = self._strays[root]
        self._strays[root] = None if count is None else count + 1

    async def _set_aside(self, wrong: Reread) -> Reread:
        """What nobody can read; not blocks, which the next claim ends as dead, nor bundles, whose parts are sound."""
        done = await self._space.transact(partial(_move, key=wrong.key, counts=self._space.request_costs))
        return msgspec.structs.replace(wrong, problem=f"{done}: {wrong.problem}") if done else wrong


def _page(prefix: str, after: str, view: Reading) -> list[str]:
    found = view.list(prefix, after=after)
    return [key for key in found if not key.startswith(_OPENING)]


def _block(key: str, data: bytes) -> object:
    return damage.read_block(key, rows.decode, data)


def _file(key: str, data: bytes) -> None:
    found, told = archive.columns(data).num_rows, names.parse_archive(key).rows
    if found != told:
        raise ValueError(f"{found} messages instead of {told}")


def _any(key: str, data: bytes) -> None:
    """Its sum is all there is to verify."""


def _is_missing(view: Reading, key: str, by: str) -> bool:
    """Still named, and still not there."""
    if view.list(key, limit=1):
        return False
    try:
        found = view.get(by)
        if found is not None and by.startswith(names.CONFIGS):
            config = queues.decode(found.data, names.queue_of(by))
            heads = [root + "head" for root in queues.log_roots(names.queue_of(by), config)]
            return config.closing is None and key in (*heads, *map(names.schedule_key, config.schedules))
        return found is not None and key.removeprefix(names.log_of(key)).encode() in found.data
    except Damaged:
        return False  # that is told already


def _is_stray(view: Reading, root: str) -> bool:
    """Nobody's: there are no options, or those of a queue that was made anew."""
    queue = root.partition("@")[0]
    try:
        found = view.get(names.config_key(queue))
        config = queues.decode(found.data, queue) if found is not None else None
    except Damaged:
        return False
    if config is None:
        return True
    return config.closing is None and Address(queue, False).archive_root(config) != root


def _move(tx: Transaction, key: str, counts: bool) -> str:
    """What was done, in words; empty: nothing."""
    relative = key.removeprefix(names.log_of(key)) if "/" in key else key
    if relative == "head" or key.startswith(names.CONFIGS) or relative.startswith(damage.KEPT):
        return ""
    if "/" not in key or names.is_block(key):
        return ""
    left = damage.left(tx, key)
    if counts and relative.startswith("archive/") and tx.list(key, limit=1):
        with suppress(names.BadKey):
            archive_index.remove(tx, names.log_of(key), [names.parse_archive(key)])
    if left is not None:
        # Not under a name that ends like an archive file: it would have to be one.
        tx.create(f"{names.log_of(key)}{damage.KEPT}{relative}.bytes", left)
    tx.delete(key)
    return f"moved to {damage.KEPT}" if left is not None else "taken off the store's list"
