"""What the engine takes from the machine, replaced while a simulation runs: time, randomness, threads.

Every module of `holdfast` that holds one of the real things under some name holds the simulated one meanwhile, and so
does every default argument. A new module is covered as it is.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import inspect
import logging
import os
import queue
import random
import secrets
import sys
import threading
import time
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .baton import Bell, World

_world: World | None = None


def world() -> World:
    assert _world is not None, "no simulation runs"
    return _world


@contextlib.contextmanager
def in_world(one: World) -> Iterator[World]:
    global _world
    before, _world = _world, one
    try:
        yield one
    finally:
        _world = before


class _Time(types.ModuleType):
    """`time`."""

    def __init__(self) -> None:
        super().__init__("time")

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @staticmethod
    def monotonic() -> float:
        return world().monotonic()

    perf_counter = monotonic

    @staticmethod
    def time() -> float:
        return world().time()

    @staticmethod
    def time_ns() -> int:
        return int(world().time() * 1e9)

    @staticmethod
    def monotonic_ns() -> int:
        return int(world().monotonic() * 1e9)

    @staticmethod
    def clock_gettime(clock: int) -> float:
        return world().time() if clock == time.CLOCK_REALTIME else world().monotonic()

    @staticmethod
    def sleep(seconds: float) -> None:
        world().sleep(seconds)


class _Random(types.ModuleType):
    """`random`: the process's own."""

    def __init__(self) -> None:
        super().__init__("random")

    def __getattr__(self, name: str) -> Any:
        return getattr(random if name == "Random" else world().process.random, name)


class _Os(types.ModuleType):
    """`os`."""

    def __init__(self) -> None:
        super().__init__("os")

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def urandom(count: int) -> bytes:
        return world().process.random.randbytes(count)


class _Secrets(types.ModuleType):
    """`secrets`."""

    def __init__(self) -> None:
        super().__init__("secrets")

    def __getattr__(self, name: str) -> Any:
        return getattr(secrets, name)

    @staticmethod
    def randbits(count: int) -> int:
        return world().process.random.getrandbits(count)

    @staticmethod
    def token_hex(count: int = 32) -> str:
        return world().process.random.randbytes(count).hex()


def _uuid4() -> uuid.UUID:
    return uuid.UUID(bytes=world().process.random.randbytes(16), version=4)


class Lock:
    """`threading.Lock`."""

    __slots__ = ("_bell", "_held")

    def __init__(self) -> None:
        self._held = False
        self._bell: Bell | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._held:
            self._held = True
            return True
        if not blocking:
            return False
        bell = self._bell = self._bell or Bell(world())
        until = float("inf") if timeout < 0 else world().now + timeout
        while self.locked():
            left = until - world().now
            if left <= 0:
                return False
            bell.wait(None if timeout < 0 else left)
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if self._bell is not None:
            self._bell.ring()

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class RLock(Lock):
    """`threading.RLock`."""

    __slots__ = ("_depth", "_owner")

    def __init__(self) -> None:
        super().__init__()
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = world().current
        if self._owner is not me:
            if not super().acquire(blocking, timeout):
                return False
            self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._bell = Bell(world())

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._bell.ring()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._is_set or self._bell.wait(timeout) or self._is_set


class Condition:
    """`threading.Condition`."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = lock or RLock()
        self._waiting: deque[Lock] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(*error)

    def wait(self, timeout: float | None = None) -> bool:
        gate = Lock()
        gate.acquire()
        self._waiting.append(gate)
        self._lock.release()
        try:
            rung = gate.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            self._lock.acquire()
        if not rung and gate in self._waiting:
            self._waiting.remove(gate)
        return rung

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else world().now + timeout
        while not (result := predicate()):
            left = None if until is None else until - world().now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        while self._waiting and n > 0:
            self._waiting.popleft().release()
            n -= 1

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Thread:
    """`threading.Thread`, in the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = daemon
        self._call = functools.partial(target, *args, **(kwargs or {})) if target else lambda: None
        self._ended = Event()

    def start(self) -> None:
        world().spawn(world().process, self._run)

    def _run(self) -> None:
        try:
            self._call()
        finally:
            self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return not self._ended.is_set()


class _Threading(types.ModuleType):
    """`threading`."""

    Lock, RLock, Event, Condition, Thread = Lock, RLock, Event, Condition, Thread

    def __init__(self) -> None:
        super().__init__("threading")

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class SimpleQueue:
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._bell = Bell(world())

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        self._bell.ring()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        until = None if timeout is None else world().now + timeout
        while not self._items:
            left = None if until is None else until - world().now
            if not block or (left is not None and left <= 0):
                raise queue.Empty
            self._bell.wait(left)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items


class Future(concurrent.futures.Future[Any]):
    """A future whose waiters give the baton away."""

    def result(self, timeout: float | None = None) -> Any:
        self._await(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._await(timeout)
        return super().exception(0)

    def _await(self, timeout: float | None) -> None:
        if not self.done():
            bell = Bell(world())
            self.add_done_callback(lambda _: bell.ring())
            bell.wait(timeout)


def wait(fs: Iterable[Any], timeout: float | None = None, return_when: str = "ALL_COMPLETED") -> Any:
    """`concurrent.futures.wait`, for all of them."""
    futures, until = list(fs), None if timeout is None else world().now + timeout
    for each in futures:
        left = None if until is None else max(0.0, until - world().now)
        if not each.done() and (left is None or left > 0):
            each._await(left)
    done = {each for each in futures if each.done()}
    return concurrent.futures._base.DoneAndNotDoneFutures(done, set(futures) - done)


class Executor(concurrent.futures.Executor):
    """`ThreadPoolExecutor`: a thread for each call, but no more at once than it has workers."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "", **options: Any) -> None:
        self._most = max_workers or 32
        self._running = 0
        self._waiting: deque[tuple[Future, Callable[[], Any]]] = deque()
        self._is_shut = False
        self._idle: Bell | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = Future()
        self._waiting.append((future, lambda: fn(*args, **kwargs)))
        if self._running < self._most:
            self._running += 1
            world().spawn(world().process, self._work)
        return future

    def _work(self) -> None:
        while self._waiting:
            future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except Exception as error:  # noqa: BLE001  it is the caller's; a killed thread just ends
                future.set_exception(error)
            else:
                future.set_result(result)
        self._running -= 1
        if not self._running and self._idle is not None:
            self._idle.ring()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut = True
        while wait and self._running:
            self._idle = self._idle or Bell(world())
            self._idle.wait()


# What is replaced, by identity: modules, classes and functions of the machine.
_MODULES: dict[int, Any] = {
    id(time): _Time(),
    id(random): _Random(),
    id(os): _Os(),
    id(secrets): _Secrets(),
    id(threading): _Threading(),
}
_NAMES: dict[int, Any] = {
    id(concurrent.futures.ThreadPoolExecutor): Executor,
    id(concurrent.futures.Future): Future,
    id(concurrent.futures.wait): wait,
    id(queue.SimpleQueue): SimpleQueue,
    id(uuid.uuid4): _uuid4,
}
_CLOCKS: dict[int, Any] = {
    id(time.monotonic): _Time.monotonic,
    id(time.perf_counter): _Time.monotonic,
    id(time.time): _Time.time,
    id(time.sleep): _Time.sleep,
    id(os.urandom): _Os.urandom,
}
_REPLACED = {**_MODULES, **_NAMES, **_CLOCKS}
_Change = tuple[Any, str, Any, Any]


def _of_module(module: types.ModuleType) -> Iterator[_Change]:
    for name, value in list(vars(module).items()):
        if id(value) in _REPLACED:
            yield module, name, value, _REPLACED[id(value)]
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for inner in list(vars(value).values()):
                yield from _defaults(inner)
        elif inspect.isfunction(value) and value.__module__ == module.__name__:
            yield from _defaults(value)


def _defaults(function: Any) -> Iterator[_Change]:
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return
    plain = function.__defaults__
    if plain and any(id(each) in _CLOCKS for each in plain):
        yield function, "__defaults__", plain, tuple(_CLOCKS.get(id(each), each) for each in plain)
    named = function.__kwdefaults__
    if named and any(id(each) in _CLOCKS for each in named.values()):
        new = {name: _CLOCKS.get(id(each), each) for name, each in named.items()}
        yield function, "__kwdefaults__", named, new


@contextlib.contextmanager
def installed(prefix: str = "holdfast") -> Iterator[None]:
    """Until the end, the loaded modules of the package use simulated things."""
    modules = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] == prefix and each]
    changes = [change for module in modules for change in _of_module(module)]
    logger = logging.getLogger(prefix)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    for where, name, _, new in changes:
        setattr(where, name, new)
    try:
        yield
    finally:
        for where, name, old, _ in changes:
            setattr(where, name, old)
        logger.setLevel(level)
