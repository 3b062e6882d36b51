"""Threads under a baton: exactly one runs, and a seeded calendar of events decides which, and when, in virtual time.

A thread gives the baton away only where it waits: for time, for a bell, for a reply of the space. Whoever gives it away
works through the calendar until an event wakes somebody. Replies and late writes are events too, so they happen
whether their sender lives or not.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, ClassVar

EPOCH = 1_800_000_000.0  # seconds since 1970 at which every simulation begins
_PATIENCE_S = 30.0  # real seconds after which a thread that should end counts as stuck
_MOST_EVENTS = 400_000  # of one seed: more is a hang


class Killed(BaseException):
    """The process of this thread is dead, or the simulation is over."""


class Hang(Exception):
    """Somebody waits for what can never happen, or it goes on for ever."""


class Process:
    """A simulated process: its clocks, its randomness, whether it lives."""

    def __init__(self, name: str, seed: object, *, ticks: float = 0.0, wall: float = 0.0) -> None:
        self.name = name
        self.ticks = ticks  # of its monotonic clock when the simulation begins
        self.wall = wall  # seconds its wall clock is wrong
        self.random = random.Random(f"{seed}/{name}")
        self.is_alive = True
        self.frozen_until = 0.0


class Thread:
    """One simulated thread, carried by a real one."""

    __slots__ = ("carrier", "is_dying", "is_over", "process", "rung", "target", "ticket")

    def __init__(self, process: Process, target: Callable[[], Any], carrier: _Carrier) -> None:
        self.process = process
        self.target = target
        self.carrier = carrier
        self.ticket = 0  # of the wake-up that counts
        self.rung = False
        self.is_over = False
        self.is_dying = False


class Bell:
    """Threads that wait for something; ringing wakes them all."""

    __slots__ = ("waiting", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[Thread] = []

    def wait(self, timeout: float | None = None) -> bool:
        """True when it rang, False after `timeout` seconds."""
        world = self.world
        me = world.current
        self.waiting.append(me)
        me.rung = False
        me.ticket += 1
        if timeout is not None:
            world.wake(me, timeout)
        try:
            world.give_away(me)
        finally:
            if not me.rung and me in self.waiting:
                self.waiting.remove(me)
        return me.rung

    def ring(self) -> None:
        waiting, self.waiting = self.waiting, []
        for thread in waiting:
            thread.rung = True
            thread.ticket += 1
            self.world.wake(thread, self.world.jitter())


class World:
    """The calendar of one seed."""

    def __init__(self, seed: object) -> None:
        self.now = 0.0
        self.random = random.Random(f"{seed}/world")
        self.events = 0
        self.switches = 0
        self._calendar: list[tuple[float, int, Any, int]] = []
        self._count = 0
        self._threads: list[Thread] = []
        self.is_over = False
        self.stuck = 0  # threads that did not end when they were told to
        self.laziness = 0.0  # how often a thread that could run is held up, up to a second
        self.hang = ""
        self.failure: BaseException | None = None  # what ended a thread that should not have ended so
        self.outside = Thread(Process("outside", seed), _nothing, _Carrier.of_this_thread())  # runs the simulation
        self.current = self.outside

    # Time.

    @property
    def process(self) -> Process:
        return self.current.process

    def monotonic(self) -> float:
        return self.now + self.current.process.ticks

    def time(self) -> float:
        return EPOCH + self.now + self.current.process.wall

    def jitter(self) -> float:
        """How long it takes until a thread that can run does."""
        dice = self.random.random()
        if dice < self.laziness:
            return self.random.random()
        return dice * 0.0002

    # Events.

    def at(self, delay: float, call: Callable[[], Any]) -> None:
        self._count += 1
        heappush(self._calendar, (self.now + max(0.0, delay), self._count, call, -1))

    def wake(self, thread: Thread, delay: float) -> None:
        self._count += 1
        heappush(self._calendar, (self.now + max(0.0, delay), self._count, thread, thread.ticket))

    def sleep(self, seconds: float) -> None:
        me = self.current
        me.ticket += 1
        self.wake(me, seconds)
        self.give_away(me)

    def spawn(self, process: Process, target: Callable[[], Any]) -> Thread:
        thread = Thread(process, target, _Carrier.free())
        self._threads.append(thread)
        thread.carrier.carry(self, thread)
        thread.ticket += 1
        self.wake(thread, self.jitter())
        return thread

    def give_away(self, me: Thread) -> None:
        """Until this thread is woken."""
        if me.is_dying or self.is_over:
            raise Killed
        other = self._next()
        if other is not me:
            self.switches += 1
            self.current = other
            other.carrier.gate.release()
            me.carrier.gate.acquire()
        if me.is_dying:
            raise Killed
        if self.hang:
            raise Hang(self.hang)

    def _next(self) -> Thread:
        """Work through the calendar until somebody is woken."""
        calendar = self._calendar
        while calendar:
            at, _, what, ticket = heappop(calendar)
            if at > self.now:
                self.now = at
            self.events += 1
            if self.events > _MOST_EVENTS:
                break
            if ticket < 0:
                what()
            elif what.ticket == ticket and what.process.is_alive:
                if what.process.frozen_until > self.now:
                    self.wake(what, what.process.frozen_until - self.now)
                else:
                    return what  # type: ignore[no-any-return]
        self.is_over = True
        self.hang = "it never ends" if calendar else "everybody waits for ever"
        return self.outside

    def leave(self, me: Thread) -> None:
        """A thread has ended: the next one has the baton."""
        me.is_over = True
        if me.is_dying:
            return
        self.current = self._next()
        self.current.carrier.gate.release()

    # The end.

    def end(self) -> None:
        """Every thread that is left ends, one by one."""
        self.is_over = True
        for thread in self._threads:
            if not thread.is_over:
                thread.is_dying = True
                self.current = thread
                thread.carrier.gate.release()
                if not thread.carrier.done.acquire(timeout=_PATIENCE_S):
                    self.stuck += 1
        self.current = self.outside


class _Carrier:
    """A real thread that carries one simulated thread after the other."""

    _mine = threading.local()
    _free: ClassVar[list[_Carrier]] = []

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.done = threading.Lock()
        self.done.acquire()
        self._load: tuple[World, Thread] | None = None

    @classmethod
    def of_this_thread(cls) -> _Carrier:
        if not hasattr(cls._mine, "carrier"):
            cls._mine.carrier = cls()
        carrier: _Carrier = cls._mine.carrier
        return carrier

    @classmethod
    def free(cls) -> _Carrier:
        if cls._free:
            return cls._free.pop()
        carrier = cls()
        threading.Thread(target=carrier._loop, name="simulated", daemon=True).start()
        return carrier

    def carry(self, world: World, thread: Thread) -> None:
        self._load = (world, thread)

    def _loop(self) -> None:
        while True:
            self.gate.acquire()
            assert self._load is not None
            world, thread = self._load
            try:
                if not thread.is_dying:
                    thread.target()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  the seed fails, the machinery lives
                world.failure = error
            thread.target = _nothing
            self._load = None
            world.leave(thread)
            if thread.is_dying:
                self.done.release()
            _Carrier._free.append(self)


def _nothing() -> None:
    pass
