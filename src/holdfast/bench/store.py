"""`bench store`: the space underneath alone, without messages, leases or codecs."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from .. import config
from ..errors import ConfigError
from ..stores.base import PAGE_ROWS
from ..stores.log.space import Found, Reading, Space, Transaction
from ..stores.log.store import LogStore
from ..stores.opening import locate, open_store, store_options
from .measure import Latency, latency
from .payloads import bodies
from .show import Bar, milliseconds, rate

COLUMNS = (
    "operation",
    "objects",
    "seconds",
    "objects/s",
    "MB/s",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "max ms",
    "requests each",
)
_PREFIX = "bench/"


class Operation(msgspec.Struct, frozen=True):
    """One kind of call; latencies are of one call."""

    name: str
    objects: int
    seconds: float
    rate: float
    bytes_rate: float
    latency: Latency | None
    requests: float | None = None  # to a bucket, per object


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What `bench store` is asked to do."""

    count: int = 10_000
    value_size: int = 1024
    batch_size: int = 100
    test_get: int = 1000


async def open_log(url: str) -> LogStore:
    """The store behind a URL, whose space is to be measured."""
    location = locate(url)
    store = await open_store(location, store_options(config.load().store, location.options, {}))
    if not isinstance(store, LogStore):
        await store.close()
        raise ConfigError("bench store measures what the log engine stands on: folders, buckets, SlateDB and memory")
    return store


async def measure(store: LogStore, load: Load, bar: Bar) -> list[Operation]:
    """Put one by one, put in batches, get, a range and everything."""
    space = store.space
    singles, batch, size = min(load.count, 2000), load.batch_size, load.value_size
    parts: list[Callable[[], Awaitable[Operation]]] = [
        lambda: _put(space, "put", singles, 1, size, bar),
        lambda: _put(space, f"put × {batch}", load.count, batch, size, bar),
        lambda: _get(space, load, bar),
        lambda: _scan(space, "scan, ranges of 100", load, 100, bar),
        lambda: _scan(space, "scan, all", load, PAGE_ROWS, bar),
    ]
    try:
        return [await _counted(store, part) for part in parts]
    finally:
        await _clear(space)


async def _counted(store: LogStore, part: Callable[[], Awaitable[Operation]]) -> Operation:
    """With the requests that a bucket has seen meanwhile."""
    before = _requests(store)
    operation = await part()
    after = _requests(store)
    if before is None or after is None:
        return operation
    return msgspec.structs.replace(operation, requests=(after - before) / operation.objects)


def _requests(store: LogStore) -> int | None:
    counted = store.requests()
    return None if counted is None else sum(n for kind, n in counted.items() if not kind.startswith("bytes"))


async def _clear(space: Space) -> None:
    """Leave nothing of the benchmark in the user's store."""
    while keys := await space.read(lambda reading: reading.list(_PREFIX, limit=PAGE_ROWS)):
        await space.remove(keys)


async def _put(space: Space, name: str, count: int, batch: int, size: int, bar: Bar) -> Operation:
    bar.note(name)
    pool, prefix, calls = bodies(size), f"{_PREFIX}{batch}/", []
    start = time.perf_counter()
    for first in range(0, count, batch):
        begun = time.perf_counter()
        await space.transact(_writer(prefix, first, min(batch, count - first), pool))
        calls.append(time.perf_counter() - begun)
        bar.add(batch)
    return _operation(name, count, time.perf_counter() - start, size, calls)


def _writer(prefix: str, first: int, count: int, pool: list[bytes]) -> Callable[[Transaction], None]:
    def step(transaction: Transaction) -> None:
        for number in range(first, first + count):
            transaction.create(f"{prefix}{number:09}", pool[number % len(pool)])

    return step


async def _get(space: Space, load: Load, bar: Bar) -> Operation:
    bar.note("get")
    maker, calls = random.Random(0), []
    start = time.perf_counter()
    for _ in range(load.test_get):
        key = f"{_PREFIX}{load.batch_size}/{maker.randrange(load.count):09}"
        begun = time.perf_counter()
        if await space.read(_getter(key)) is None:
            raise RuntimeError(f"{key} was put and is not there")
        calls.append(time.perf_counter() - begun)
    return _operation("get", load.test_get, time.perf_counter() - start, load.value_size, calls)


def _getter(key: str) -> Callable[[Reading], Found | None]:
    return lambda reading: reading.get(key)


async def _scan(space: Space, name: str, load: Load, page: int, bar: Bar) -> Operation:
    """Keys and values, a page per call; ranges start anywhere, `all` goes on where the last page ended."""
    bar.note(name)
    prefix, calls, seen = f"{_PREFIX}{load.batch_size}/", [], 0
    start = time.perf_counter()
    for after in _starts(prefix, load, page):
        begun = time.perf_counter()
        seen += await space.read(_reader(prefix, after, page))
        calls.append(time.perf_counter() - begun)
    return _operation(name, seen, time.perf_counter() - start, load.value_size, calls)


def _starts(prefix: str, load: Load, page: int) -> Iterator[str]:
    if page == PAGE_ROWS:
        yield from ("" if first == 0 else f"{prefix}{first - 1:09}" for first in range(0, load.count, page))
    else:
        maker = random.Random(1)
        yield from (f"{prefix}{maker.randrange(load.count):09}" for _ in range(min(100, load.test_get)))


def _reader(prefix: str, after: str, page: int) -> Callable[[Reading], int]:
    def step(reading: Reading) -> int:
        return sum(reading.get(key) is not None for key in reading.list(prefix, after=after, limit=page))

    return step


def _operation(name: str, objects: int, seconds: float, size: int, calls: list[float]) -> Operation:
    per_second = objects / max(seconds, 1e-9)
    return Operation(name, objects, seconds, per_second, per_second * size, latency(calls))


def rows(operations: list[Operation]) -> list[list[str]]:
    """For the table."""
    return [
        [
            operation.name,
            f"{operation.objects:,}",
            f"{operation.seconds:.3f}",
            rate(operation.rate),
            f"{operation.bytes_rate / 1e6:,.1f}",
            *(milliseconds(t) for t in _percentiles(operation.latency)),
            "" if operation.requests is None else f"{operation.requests:.4g}",
        ]
        for operation in operations
    ]


def _percentiles(times: Latency | None) -> tuple[float, ...]:
    return (times.p50, times.p95, times.p99, times.max) if times else ()
