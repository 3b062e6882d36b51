"""The queue's own object: options, pause, incarnation. Steps that run inside a transaction or a snapshot."""

from __future__ import annotations

import secrets

import msgspec

from ...config import QueueOptions
from ...errors import ConfigError, QueueExists, QueueNotFound, StoreError
from ...retry import NoRetry
from ..base import DEAD, QueueInfo
from . import names
from .space import Reading, Transaction
from .state import Rules

FORMAT = 1
ENDLESS = 1 << 30
_PAGE = 10_000


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a queue. Keys carry the incarnation, so that a queue created anew inherits nothing."""

    format: int = FORMAT
    incarnation: str
    created_at: float
    options: QueueOptions
    paused: bool = False


class Address(msgspec.Struct, frozen=True):
    """A log: a queue's messages, or its dead letters."""

    queue: str
    dead: bool

    @property
    def text(self) -> str:
        return self.queue + DEAD if self.dead else self.queue

    def root(self, config: Config) -> str:
        root = f"{self.queue}@{config.incarnation}/"
        return root + "dead/" if self.dead else root

    def archive_root(self, config: Config) -> str:
        return f"{self.queue}@{config.incarnation}/"

    def rules(self, config: Config) -> Rules:
        """What the options mean to the head of this log; dead letters never run out of attempts."""
        options = config.options
        if self.dead:
            return Rules(max_attempts=ENDLESS, archive=options.archive)
        return Rules(
            max_attempts=options.max_attempts,
            retry_expired=not isinstance(options.retry, NoRetry),
            archive=options.archive,
            dead="dead" if options.dead_letter is True else "moved" if options.dead_letter else "failed",
            paused=config.paused,
        )


def address(queue: str) -> Address:
    dead = queue.endswith(DEAD)
    return Address(queue.removesuffix(DEAD) if dead else queue, dead)


def decode(data: bytes) -> Config:
    config = msgspec.json.decode(data, type=_Peek)
    if config.format > FORMAT:
        raise StoreError(f"this queue has format {config.format}, this version reads {FORMAT}: upgrade holdfast")
    return msgspec.json.decode(data, type=Config)


class _Peek(msgspec.Struct):
    format: int


def read(view: Reading, queue: str) -> Config:
    found = view.get(names.config_key(queue))
    if found is None:
        raise QueueNotFound(f"there is no queue {queue!r}")
    return decode(found.data)


def info(queue: str, config: Config) -> QueueInfo:
    return QueueInfo(queue, config.options, config.paused, config.created_at)


def create(tx: Transaction, queue: str, options: QueueOptions) -> Config:
    config = Config(incarnation=secrets.token_hex(4), created_at=tx.now, options=options)
    if not tx.create(names.config_key(queue), msgspec.json.encode(config)):
        raise QueueExists(f"queue {queue!r} is already there")
    return config


def change(tx: Transaction, queue: str, *, options: QueueOptions | None = None, paused: bool | None = None) -> Config:
    config = read(tx, queue)
    if options is not None:
        if options.shards != config.options.shards:
            raise ConfigError(f"queue {queue!r}: shards is fixed at creation ({config.options.shards})")
        config = msgspec.structs.replace(config, options=options)
    if paused is not None:
        config = msgspec.structs.replace(config, paused=paused)
    tx.put(names.config_key(queue), msgspec.json.encode(config))
    return config


def unregister(tx: Transaction, queue: str) -> str:
    """Forget a queue; what lies under the root it answers belongs to nobody any more."""
    root = address(queue).root(read(tx, queue))
    tx.delete(names.config_key(queue))
    return root


def all_of(view: Reading) -> list[tuple[str, Config]]:
    queues: list[tuple[str, Config]] = []
    after = ""
    while page := view.list(names.CONFIGS, after=after, limit=_PAGE):
        after = page[-1]
        for key in page:
            name = key.removeprefix(names.CONFIGS)
            queues.append((name, read(view, name)))
    return queues


def delete_some(tx: Transaction, prefix: str) -> int:
    """Up to a page of keys; call again until it answers 0."""
    keys = tx.list(prefix, limit=_PAGE)
    for key in keys:
        tx.delete(key)
    return len(keys)
