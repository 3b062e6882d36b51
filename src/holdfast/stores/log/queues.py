"""The queue's own object: options, pause, incarnation. Steps that run inside a transaction or a snapshot."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from ...config import QueueOptions
from ...errors import ConfigError, Damaged, QueueExists, QueueNotFound, StoreError
from ...first_look import known
from ...retry import NoRetry
from ...schedules import Plan
from .. import formats
from ..base import DEAD, QueueInfo
from . import damage, names
from .calendar import IN_STEP, Calendar
from .head import codec
from .head.state import ENDLESS, Head, Rules
from .space import Reading, Transaction

FORMAT = 1
WITH_SCHEDULES = 2  # of queues that have some; versions that would lose them refuse it
CLOSING = 2.5  # seconds for which producers may still believe in a queue that is being deleted
_PAGE = 10_000
_AT_ONCE = 50  # objects of one survey
_SHARD = "#"  # not in the name of any queue
_EMPTY_HEAD = codec.HeadWriter().encode(Head())


class Closing(Exception):
    """The queue is being deleted; try again after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@known
class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a queue. Keys carry the incarnation, so that a queue created anew inherits nothing."""

    format: int = FORMAT
    incarnation: str
    created_at: float
    options: QueueOptions
    paused: bool = False
    closing: float | None = None  # being deleted, since when; producers may not know yet
    schedules: dict[str, Plan] = {}
    store: str = ""  # the id of the store that it belongs to; empty: of an earlier version
    has_heads: bool = False  # every log of it has a head since then: one that is not there is lost, not new


Named: TypeAlias = tuple[str, Config]
Basis: TypeAlias = tuple[Config, int, Calendar]  # of rules: the options, the store's format, its calendar


class Address(msgspec.Struct, frozen=True):
    """A log: a queue's messages (one shard of them, where it has several), or its dead letters."""

    queue: str
    dead: bool
    shard: int = 0

    @property
    def text(self) -> str:
        name = self.queue + DEAD if self.dead else self.queue
        return f"{name}{_SHARD}{self.shard}" if self.shard else name

    def root(self, config: Config) -> str:
        root, shards = self.archive_root(config), config.options.shards
        if self.dead:
            return root + "dead/"
        # A queue made anew may have fewer shards than somebody still believes.
        return f"{root}s{self.shard % shards:04d}/" if shards > 1 else root

    def archive_root(self, config: Config) -> str:
        return f"{self.queue}@{config.incarnation}/"

    def rules(self, config: Config, format: int = formats.LOG, calendar: Calendar = IN_STEP) -> Rules:
        """What the options mean to the head of this log; dead letters never run out of attempts."""
        options = config.options
        rules = partial(
            Rules,
            calendar=calendar,
            names_workers=format >= formats.RETRIES_NAME_WORKERS,
            names_holders=format >= formats.REMEMBERS,
        )
        if self.dead:
            return rules(max_attempts=ENDLESS, archive=options.archive)
        return rules(
            max_attempts=options.max_attempts,
            retry_expired=not isinstance(options.retry, NoRetry),
            archive=options.archive,
            dead="dead" if options.dead_letter is True else "moved" if options.dead_letter else "failed",
            paused=config.paused,
        )


def beside(root: str, config: Config) -> list[str]:
    """The roots of a queue's dead letters, or of the queue (all shards) that has them: each writes for the other."""
    base = root[: root.index("/") + 1]
    if root != base + "dead/":
        return [base + "dead/"]
    return [Address(base.partition("@")[0], False, shard).root(config) for shard in range(config.options.shards)]


def log_roots(queue: str, config: Config) -> list[str]:
    """Of all logs of a queue: its shards, and its dead letters."""
    shards = [Address(queue, False, shard) for shard in range(config.options.shards)]
    return [each.root(config) for each in (*shards, Address(queue, True))]


def address(queue: str) -> Address:
    """By the text of an address; a queue's name alone is its first shard."""
    queue, _, shard = queue.partition(_SHARD)
    dead = queue.endswith(DEAD)
    return Address(queue.removesuffix(DEAD) if dead else queue, dead, int(shard or 0))


def shard(queue: str, number: int) -> str:
    """The text of the address of one shard."""
    return f"{queue}{_SHARD}{number}" if number else queue


def decode(data: bytes, queue: str = "") -> Config:
    """The options of a queue; Damaged."""
    return damage.read(names.config_key(queue), _decoded, data, queue=queue)


def _decoded(data: bytes) -> Config:
    config = msgspec.json.decode(data, type=_Peek)
    if config.format > WITH_SCHEDULES:
        raise StoreError(
            f"this queue has format {config.format}, this version reads {WITH_SCHEDULES}: upgrade holdfast"
        )
    return msgspec.json.decode(data, type=Config)


class _Peek(msgspec.Struct):
    format: int


def read(view: Reading, queue: str) -> Config:
    """The options, as they are or (on a bucket) were some seconds ago."""
    return _open(view.survey([names.config_key(queue)], [])[0][0], queue)


def read_current(view: Reading, queue: str) -> Config:
    """The options as they are now, for whoever changes them."""
    found = view.get(names.config_key(queue))
    return _open(found.data if found is not None else None, queue)


def _open(data: bytes | None, queue: str) -> Config:
    config = decode(data, queue) if data is not None else None
    if config is None or config.closing is not None:
        raise QueueNotFound(f"there is no queue {queue!r}")
    return config


def info(queue: str, config: Config) -> QueueInfo:
    return QueueInfo(queue, config.options, config.paused, config.created_at)


def create(tx: Transaction, queue: str, options: QueueOptions, *, store_id: str, heads: bool) -> Config:
    """`heads`: with the heads of its logs, where one step can write them too; else `give_heads` follows."""
    config = Config(
        incarnation=secrets.token_hex(4),
        created_at=tx.calendar.wall(tx.now),
        options=options,
        store=store_id,
        has_heads=heads,
    )
    restore(tx, queue, config)
    if heads:
        _begin_heads(tx, queue, config)
    return config


def give_heads(tx: Transaction, queue: str, store_id: str) -> None:
    """The same afterwards, and for queues of earlier versions. Damaged: one that it had is gone."""
    config = read_current(tx, queue)
    if config.has_heads and config.store:
        return
    if not config.has_heads:
        for root in log_roots(queue, config):
            if is_used(tx, root, config) and tx.get(root + "head") is None:
                raise lost_head(root)
        _begin_heads(tx, queue, config)
    store(tx, queue, msgspec.structs.replace(config, has_heads=True, store=config.store or store_id))


def _begin_heads(tx: Transaction, queue: str, config: Config) -> None:
    for root in log_roots(queue, config):
        tx.create(root + "head", _EMPTY_HEAD)


def is_used(view: Reading, root: str, config: Config) -> bool:
    """Whether a log must have had a head: what has ended went through it."""
    if config.has_heads:
        return True
    if config.options.shards > 1 or root.endswith("/dead/"):
        return False  # nobody knows through which one
    return any(view.list(root + kind, limit=1) for kind in ("archive/", "dead/"))


def lost_head(root: str) -> Damaged:
    """What is delivered without it may have ended long ago."""
    return damage.damaged(root + "head", "it is gone; who holds what, and what has ended, is not known without it")


def refuse_strays(tx: Transaction, queue: str) -> None:
    """Damaged: there are objects of a queue whose options are gone, and it is no new one. Not those of a restore."""
    if tx.get(names.config_key(queue)) is not None:
        return
    keys = tx.list(f"{queue}@")
    unfinished = {key.partition("/")[0] for key in keys if key.endswith(f"/{names.RESTORING}")}
    left = [key for key in keys if key.partition("/")[0] not in unfinished and names.is_ours(key)]
    if left:
        why = f"it is gone, but objects of the queue are there, such as {left[0]}"
        raise damage.damaged(names.config_key(queue), why, queue=queue)


def restore(tx: Transaction, queue: str, config: Config) -> None:
    """Make a queue whose incarnation may have messages already."""
    found = tx.get(names.config_key(queue))
    if found is not None:
        closing = decode(found.data, queue).closing
        if closing is None:
            raise QueueExists(f"queue {queue!r} is already there")
        if tx.now < closing + CLOSING:
            raise Closing(closing + CLOSING - tx.now)
    store(tx, queue, config, proof=partial(_is_of, incarnation=config.incarnation))


def _is_of(data: bytes | None, incarnation: str) -> bool:
    return data is not None and decode(data).incarnation == incarnation


def change(tx: Transaction, queue: str, *, options: QueueOptions | None = None, paused: bool | None = None) -> Config:
    config = read_current(tx, queue)
    if options is not None:
        if options.shards != config.options.shards:
            raise ConfigError(f"queue {queue!r}: shards is fixed at creation ({config.options.shards})")
        config = msgspec.structs.replace(config, options=options)
    if paused is not None:
        config = msgspec.structs.replace(config, paused=paused)
    store(tx, queue, config)
    return config


def store(tx: Transaction, queue: str, config: Config, *, proof: Callable[[bytes | None], bool] | None = None) -> None:
    """Write what is kept of a queue; schedules only where it has some, and then in the format that says so."""
    wire = msgspec.to_builtins(msgspec.structs.replace(config, format=WITH_SCHEDULES if config.schedules else FORMAT))
    if not config.schedules:
        del wire["schedules"]
    tx.put(names.config_key(queue), msgspec.json.encode(wire), proof=proof)


def unregister(tx: Transaction, queue: str) -> str:
    """Forget a queue; what lies under the root it answers belongs to nobody any more."""
    root = address(queue).archive_root(read_current(tx, queue))
    tx.delete(names.config_key(queue))
    return root


def close(tx: Transaction, queue: str) -> str:
    """The same where others may believe in the queue for some seconds: it can be made anew when they know."""
    config = read_current(tx, queue)
    store(tx, queue, msgspec.structs.replace(config, closing=tx.now))
    return address(queue).archive_root(config)


def all_of(view: Reading) -> list[Named]:
    """Every queue, by name."""
    queues: list[Named] = []
    after = ""
    while page := view.list(names.CONFIGS, after=after, limit=_PAGE):
        after = page[-1]
        for key in page:
            name = key.removeprefix(names.CONFIGS)
            found = view.get(key)
            config = decode(found.data, name) if found is not None else None
            if config is not None and config.closing is None:
                queues.append((name, config))
    return queues


def page_of(view: Reading, after: str, limit: int) -> tuple[list[Named], str]:
    """The queues whose keys come behind `after`, and the key to go on from; empty: there are no more. Atomic spaces."""
    keys = view.list(names.CONFIGS, after=after, limit=limit)
    found = named(view, [key.removeprefix(names.CONFIGS) for key in keys])
    return found, keys[-1] if len(keys) >= limit else ""


def named(view: Reading, queues: Sequence[str]) -> list[Named]:
    """Those of these queues that are there."""
    found: list[Named] = []
    for start in range(0, len(queues), _AT_ONCE):
        some = queues[start : start + _AT_ONCE]
        for name, data in zip(some, view.survey([*map(names.config_key, some)], [])[0], strict=True):
            config = decode(data, name) if data is not None else None
            if config is not None and config.closing is None:
                found.append((name, config))
    return found


def delete_some(tx: Transaction, prefix: str, spared: str) -> int:
    """Up to a page of keys, but for those with an end that is spared; call again until it answers 0."""
    keys = [key for key in tx.list(prefix, limit=_PAGE) if not key.endswith(spared)]
    for key in keys:
        tx.delete(key)
    return len(keys)
