"""Group commit by a leader: who leads, who follows, and what happens to those who give up or are interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from holdfast.errors import ConfigError, Unavailable
from holdfast.stores.log.commit_queue import CommitQueue
from holdfast.stores.log.entries import Entry, Step, Work

LONG = 20.0


class Disk:
    """A space of one list. Its commits can be held up, its lock may be somebody else's."""

    def __init__(self, **options: Any) -> None:
        self.done: list[object] = []  # what is committed
        self.groups: list[int] = []
        self.leaders: list[int] = []
        self.pause: Callable[[], None] = lambda: None
        self.locked = threading.Lock()
        self.repaired = 0
        self.finished = threading.Event()
        self.fails: Exception | None = None
        self._holds = False
        self.queue = CommitQueue(
            "test-commit", self._run, finish=self.finished.set, is_free=self._is_free, repair=self._repair, **options
        )

    def _is_free(self) -> bool:
        self._holds = self.locked.acquire(blocking=False)
        return self._holds

    def _repair(self) -> None:
        self.repaired += 1
        self._holds = False  # perhaps it was not even noted that it does
        with contextlib.suppress(RuntimeError):
            self.locked.release()

    def _run(self, works: list[Work]) -> None:
        if not self._holds:
            self.locked.acquire()
            self._holds = True
        self.leaders.append(threading.get_ident())
        written: list[object] = []
        for work in [each for each in works if each.begin()]:
            try:
                work.step(written)
            except Exception as error:  # noqa: BLE001
                work.fail(error)
        self.pause()
        if self.fails is not None:
            for work in works:
                work.fail(self.fails)
        else:
            self.groups.append(sum(len(work.entries) for work in works))
            self.done += written
        self._holds = False
        self.locked.release()


class Note(Entry[object]):
    def __init__(self, owner: Notes, value: object) -> None:
        super().__init__(owner)
        self.value = value


class Notes:
    """An owner: one step for all its notes."""

    def __init__(self) -> None:
        self.steps: list[list[object]] = []
        self.told: list[object] = []
        self.lost: list[object] = []

    def step(self, tx: list[object], entries: Sequence[Note]) -> None:
        self.steps.append([each.value for each in entries])
        for each in entries:
            tx.append(each.value)
            each.result = each.value

    def committed(self, entries: Sequence[Note]) -> None:
        self.told += [each.value for each in entries]

    def abandoned(self, entry: Note) -> None:
        self.lost.append(entry.value)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.pause = lambda: None
    disk.queue.stop(LONG)


def blocking(disk: Disk, value: object, within: float = LONG) -> object:
    """In this thread."""

    def step(tx: list[object]) -> object:
        tx.append(value)
        return value

    return disk.queue._call(timed(Step(step), within))


def timed(entry: Entry[Any], within: float) -> Entry[Any]:
    entry.within, entry.until = within, time.monotonic() + within
    return entry


class Caller(threading.Thread):
    """A blocking caller, and what it got."""

    def __init__(self, disk: Disk, value: object, within: float = LONG) -> None:
        super().__init__(daemon=True)
        self._call = lambda: blocking(disk, value, within)
        self.answer: object = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._call()
        except BaseException as error:  # noqa: BLE001
            self.answer = error

    def end(self) -> object:
        self.join(LONG)
        assert not self.is_alive()
        return self.answer


class Held:
    """While this lasts, the first commit does not end."""

    def __init__(self, disk: Disk) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self._disk = disk
        disk.pause = self._pause

    def _pause(self) -> None:
        self._disk.pause = lambda: None
        self.entered.set()
        assert self.leave.wait(LONG)


def waiting(disk: Disk, count: int) -> None:
    end = time.monotonic() + LONG
    while len(disk.queue._waiting) != count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_lone_caller_commits_in_its_own_thread(disk: Disk):
    assert [blocking(disk, number) for number in range(3)] == [0, 1, 2]
    assert disk.done == [0, 1, 2]
    assert set(disk.leaders) == {threading.get_ident()}


async def test_an_event_loop_never_leads(disk: Disk):
    for number in range(3):
        await disk.queue.put(Step(lambda tx, number=number: tx.append(number)), LONG)
    assert disk.done == [0, 1, 2]
    assert threading.get_ident() not in disk.leaders


def test_who_comes_while_somebody_commits_shares_the_next_and_one_of_them_leads(disk: Disk):
    held = Held(disk)
    first = Caller(disk, "first")
    assert held.entered.wait(LONG)
    others = [Caller(disk, number) for number in range(10)]
    waiting(disk, 10)
    held.leave.set()
    assert first.end() == "first"
    assert sorted(each.end() for each in others) == list(range(10))
    assert disk.groups == [1, 10]
    assert disk.leaders[1] in {each.ident for each in others}, "promoted"


async def test_callers_of_both_kinds_share_groups(disk: Disk):
    held = Held(disk)
    first = Caller(disk, "first")
    assert await asyncio.to_thread(held.entered.wait, LONG)
    futures = [disk.queue.put(Step(lambda tx, n=n: tx.append(n)), LONG) for n in range(5)]
    second = Caller(disk, "second")
    await asyncio.to_thread(waiting, disk, 6)
    held.leave.set()
    await asyncio.gather(*futures)
    assert await asyncio.to_thread(second.end) == "second"
    assert disk.groups == [1, 6]
    assert await asyncio.to_thread(first.end) == "first"


async def test_entries_of_one_owner_are_one_step(disk: Disk):
    notes = Notes()
    held = Held(disk)
    first = disk.queue.put(Note(notes, 0), LONG)
    assert await asyncio.to_thread(held.entered.wait, LONG)
    rest = [disk.queue.put(Note(notes, number), LONG) for number in range(1, 5)]
    held.leave.set()
    assert await asyncio.gather(first, *rest) == [0, 1, 2, 3, 4]
    assert notes.steps == [[0], [1, 2, 3, 4]]
    assert notes.told == [0, 1, 2, 3, 4]
    assert notes.lost == []


def test_an_error_is_of_the_step_alone(disk: Disk):
    def bad(tx: list[object]) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        disk.queue._call(timed(Step(bad), LONG))
    assert blocking(disk, 1) == 1
    disk.fails = Unavailable("full")
    with pytest.raises(Unavailable, match="full"):
        blocking(disk, 2)
    assert disk.done == [1]


# Deadlines.


@pytest.mark.parametrize("here", [True, False], ids=["blocking", "async"])
async def test_a_deadline_while_waiting_takes_it_back(disk: Disk, here: bool):
    held = Held(disk)
    first = Caller(disk, "first")
    assert await asyncio.to_thread(held.entered.wait, LONG)
    late = Step(lambda tx: tx.append("late"))
    call = asyncio.to_thread(disk.queue.put, late, 0.05) if here else disk.queue.put(late, 0.05)
    with pytest.raises(Unavailable, match="nothing was done"):
        await call
    held.leave.set()
    await asyncio.to_thread(first.end)
    await asyncio.to_thread(blocking, disk, "next")
    assert disk.done == ["first", "next"]


async def test_a_deadline_while_it_runs_is_unknown_and_what_it_took_is_given_back(disk: Disk):
    notes, held = Notes(), Held(disk)
    with pytest.raises(Unavailable, match="unknown"):
        await disk.queue.put(Note(notes, "slow"), 2.0)
    assert notes.lost == []
    held.leave.set()
    await disk.queue.put(Note(notes, "next"), LONG)
    assert (disk.done, notes.lost) == (["slow", "next"], ["slow"])


def test_the_same_for_a_follower_that_blocks(disk: Disk):
    notes, held = Notes(), Held(disk)
    disk.queue.post(Note(notes, "other"))  # its leader is the thread
    assert held.entered.wait(LONG)
    entry = timed(Note(notes, "slow"), 0.3)
    late: list[BaseException] = []

    def call() -> None:
        try:
            disk.queue._call(entry)
        except Unavailable as error:
            late.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    waiting(disk, 1)
    again = Held(disk)
    held.leave.set()
    assert again.entered.wait(LONG)  # a leader has begun with it: this caller, or the thread
    time.sleep(0.4)
    again.leave.set()
    caller.join(LONG)
    blocking(disk, "next")
    if late:
        assert "unknown" in str(late[0])
        assert notes.lost == ["slow"]
    assert disk.done == ["other", "slow", "next"]


async def test_deadlines_of_different_lengths_each_hold(disk: Disk):
    held = Held(disk)
    first = Caller(disk, "first")
    assert await asyncio.to_thread(held.entered.wait, LONG)
    begun = time.monotonic()
    ends: dict[float, float] = {}

    async def wait(within: float) -> None:
        with pytest.raises(Unavailable):
            await disk.queue.put(Step(lambda tx: None), within)
        ends[within] = time.monotonic() - begun

    await asyncio.gather(*(wait(within) for within in (0.6, 0.1, 0.3)))
    assert list(ends) == [0.1, 0.3, 0.6]
    assert all(end >= within for within, end in ends.items())
    held.leave.set()
    await asyncio.to_thread(first.end)


# Giving up.


async def test_cancelled_while_waiting_it_does_not_run(disk: Disk):
    held = Held(disk)
    first = Caller(disk, "first")
    assert await asyncio.to_thread(held.entered.wait, LONG)
    future = asyncio.ensure_future(disk.queue.put(Step(lambda tx: tx.append("gone")), LONG))
    await asyncio.sleep(0)
    future.cancel()
    held.leave.set()
    await disk.queue.put(Step(lambda tx: tx.append("next")), LONG)
    assert disk.done == ["first", "next"]
    await asyncio.to_thread(first.end)


async def test_cancelled_while_it_runs_what_it_took_is_given_back(disk: Disk):
    notes, held = Notes(), Held(disk)
    future = asyncio.ensure_future(disk.queue.put(Note(notes, "gone"), LONG))
    assert await asyncio.to_thread(held.entered.wait, LONG)
    future.cancel()
    held.leave.set()
    await disk.queue.put(Note(notes, "next"), LONG)
    assert (disk.done, notes.lost) == (["gone", "next"], ["gone"])


async def test_a_loop_that_ends_harms_nobody(disk: Disk):
    held = Held(disk)

    async def begin() -> None:
        disk.queue.put(Step(lambda tx: tx.append("left")), LONG)
        await asyncio.to_thread(held.entered.wait, LONG)

    await asyncio.to_thread(lambda: asyncio.run(begin()))
    held.leave.set()
    await disk.queue.put(Step(lambda tx: tx.append("next")), LONG)
    assert disk.done == ["left", "next"]


# A lock that somebody else has.


async def test_a_lock_that_is_not_free_is_the_threads_to_wait_for(disk: Disk):
    disk.locked.acquire()
    caller = Caller(disk, "mine")
    with pytest.raises(Unavailable, match="nothing was done"):
        await asyncio.to_thread(blocking, disk, "late", 0.1)
    assert caller.is_alive()
    disk.locked.release()
    assert await asyncio.to_thread(caller.end) == "mine"
    assert disk.done == ["mine"]
    assert disk.leaders == [disk.queue._thread.ident]
    await asyncio.to_thread(blocking, disk, "next")
    assert disk.leaders[-1] != disk.queue._thread.ident, "free again"


def test_what_was_put_back_keeps_its_place(disk: Disk):
    disk.locked.acquire()
    callers = []
    for number in range(5):
        callers.append(Caller(disk, number))
        end = time.monotonic() + LONG
        while sum(len(work.entries) for work in disk.queue._running or ()) + len(disk.queue._waiting) <= number:
            assert time.monotonic() < end
            time.sleep(0.001)
    disk.locked.release()
    assert [each.end() for each in callers] == list(range(5))
    assert disk.done == list(range(5))


# What comes before a step.


def test_what_comes_before_a_step_is_done_by_its_leader_and_its_group_is_its_own(disk: Disk):
    held = Held(disk)
    first = Caller(disk, "first")
    assert held.entered.wait(LONG)
    prepared: list[tuple[int, bool]] = []

    def before() -> None:
        prepared.append((threading.get_ident(), disk.locked.locked()))

    results: list[object] = []
    large = timed(Step(lambda tx: tx.append("large"), before=before), LONG)
    small = Caller(disk, "small")
    waiting(disk, 1)
    thread = threading.Thread(target=lambda: results.append(disk.queue._call(large)))
    thread.start()
    waiting(disk, 2)
    last = Caller(disk, "last")
    waiting(disk, 3)
    held.leave.set()
    for each in (first, small, last):
        each.end()
    thread.join(LONG)
    assert disk.done == ["first", "small", "large", "last"]
    assert disk.groups == [1, 1, 1, 1]
    assert prepared == [(disk.leaders[2], False)], "before the lock"


def test_an_error_before_a_step_is_its_callers(disk: Disk):
    def before() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        disk.queue._call(timed(Step(lambda tx: tx.append("large"), before=before), LONG))
    assert blocking(disk, 1) == 1
    assert disk.done == [1]


# Interrupts.


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_main() -> None:
    signal.pthread_kill(cast(int, threading.main_thread().ident), signal.SIGINT)


def test_an_interrupted_leader_leaves_its_followers_an_answer(disk: Disk):
    held = Held(disk)
    results: list[object] = []

    def interrupt() -> None:
        assert held.entered.wait(LONG)
        results.append(Caller(disk, "follower"))
        waiting(disk, 1)
        interrupt_main()

    helper = threading.Thread(target=interrupt)
    with interrupts():
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            blocking(disk, "mine")
    helper.join(LONG)
    (follower,) = results
    assert isinstance(follower, Caller)
    assert follower.end() == "follower"
    assert disk.repaired == 1
    assert disk.done == ["follower"]
    assert blocking(disk, "next") == "next"


def test_whoever_shared_the_group_of_an_interrupted_leader_is_told_that_it_is_unknown(disk: Disk):
    """The main thread is promoted, and interrupted while it commits for others."""
    held = Held(disk)
    callers: list[Caller] = [Caller(disk, "first")]
    assert held.entered.wait(LONG)

    def company() -> None:
        waiting(disk, 1)
        callers.extend(Caller(disk, number) for number in range(3))
        waiting(disk, 4)
        again = Held(disk)
        held.leave.set()
        assert again.entered.wait(LONG)
        interrupt_main()

    helper = threading.Thread(target=company)
    with interrupts():
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            blocking(disk, "mine")
    helper.join(LONG)
    assert callers[0].end() == "first"
    for each in callers[1:]:
        answer = each.end()
        assert isinstance(answer, Unavailable)
        assert "unknown" in str(answer)
    assert disk.done == ["first"]
    assert blocking(disk, "next") == "next"


class Company:
    """Callers of both kinds beside the main thread, until it stops them."""

    def __init__(self, disk: Disk) -> None:
        self.stop = threading.Event()
        self.answered: list[object] = []
        self.failed: list[BaseException] = []
        self._disk = disk
        self.threads = [threading.Thread(target=self._follow, args=(number,)) for number in range(3)]
        self.threads += [
            threading.Thread(target=lambda: asyncio.run(self._ask())),
            threading.Thread(target=self._shoot),
        ]

    def _follow(self, number: int) -> None:
        count = 0
        while not self.stop.is_set():
            count += 1
            try:
                self.answered.append(blocking(self._disk, (number, count)))
            except Unavailable as error:
                self.failed.append(error)

    async def _ask(self) -> None:
        count = 0
        while not self.stop.is_set():
            count += 1
            try:
                await self._disk.queue.put(Step(lambda tx, count=count: tx.append(("loop", count))), LONG)
            except Unavailable as error:
                self.failed.append(error)
            else:
                self.answered.append(("loop", count))

    def _shoot(self) -> None:
        for _ in range(200):
            time.sleep(0.002)
            interrupt_main()
        self.stop.set()

    def end(self) -> None:
        for thread in self.threads:
            thread.join(LONG)


def calls_until(stop: threading.Event, disk: Disk) -> tuple[list[object], int]:
    """What the main thread was answered, and how often it was interrupted: only inside its calls."""
    answered: list[object] = []
    count = interrupted = 0
    calls = [False]

    def interrupt(*_: object) -> None:
        is_inside, calls[0] = calls[0], False
        if is_inside:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    while not stop.is_set():
        count += 1
        try:
            calls[0] = True
            answer = blocking(disk, ("main", count))
            calls[0] = False
            answered.append(answer)
        except KeyboardInterrupt:
            interrupted += 1
    return answered, interrupted


def test_interrupts_at_any_moment_lose_nobody(disk: Disk):
    """The main thread calls and is interrupted again and again, beside other callers."""
    company = Company(disk)
    with interrupts():
        for thread in company.threads:
            thread.start()
        mine, interrupted = calls_until(company.stop, disk)
        company.end()
    assert interrupted > 50
    assert all("unknown" in str(error) for error in company.failed)
    done = set(disk.done)
    assert len(done) == len(disk.done), "nothing twice"
    assert done >= {*company.answered, *mine}, "whatever was acknowledged is there"
    assert blocking(disk, "next") == "next"
    assert disk.queue._running is None
    assert disk.queue._waiting == []


# The end.


async def test_what_waits_when_it_is_closed_is_finished_and_nothing_comes_after(disk: Disk):
    held = Held(disk)
    first = Caller(disk, "first")
    assert await asyncio.to_thread(held.entered.wait, LONG)
    future = disk.queue.put(Step(lambda tx: tx.append("async")), LONG)
    await asyncio.to_thread(waiting, disk, 1)
    second = Caller(disk, "second")
    await asyncio.to_thread(waiting, disk, 2)
    disk.queue.end_soon()
    with pytest.raises(Unavailable, match="closed"):
        await disk.queue.put(Step(lambda tx: tx.append("late")), LONG)
    with pytest.raises(Unavailable, match="closed"):
        await asyncio.to_thread(blocking, disk, "late")
    assert not disk.finished.is_set()
    held.leave.set()
    await future
    assert (await asyncio.to_thread(first.end), await asyncio.to_thread(second.end)) == ("first", "second")
    assert await asyncio.to_thread(disk.finished.wait, LONG)
    assert disk.done == ["first", "async", "second"]


def test_closed_under_load_everybody_has_an_answer():
    disk = Disk()
    answers: list[object] = []

    def call(number: int) -> None:
        for count in range(10**9):
            try:
                answers.append(blocking(disk, (number, count)))
            except Unavailable:
                return

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    disk.queue.stop(LONG)
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    assert disk.finished.is_set()
    assert sorted(disk.done) == sorted(answers)


def test_after_a_fork_it_says_so(disk: Disk):
    blocking(disk, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            disk.queue.put(Step(lambda tx: tx.append("child")), LONG)
        except ConfigError as error:
            status = 0 if "fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert blocking(disk, 2) == 2


def test_where_callers_cannot_lead_the_thread_does():
    disk = Disk(leads_in_caller=False)
    assert [blocking(disk, number) for number in range(3)] == [0, 1, 2]
    assert set(disk.leaders) == {disk.queue._thread.ident}
    disk.queue.stop(LONG)


def test_many_callers_of_many_kinds(disk: Disk):
    def call(number: int) -> None:
        for count in range(100):
            assert blocking(disk, (number, count)) == (number, count)

    async def ask(number: int) -> None:
        async def one(count: int) -> None:
            await disk.queue.put(Step(lambda tx: tx.append((number, count))), LONG)

        await asyncio.gather(*(one(count) for count in range(100)))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    threads += [threading.Thread(target=lambda n=number: asyncio.run(ask(n))) for number in range(6, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert sorted(disk.done) == sorted((number, count) for number in range(9) for count in range(100))
    for number in range(6):
        assert [count for each, count in disk.done if each == number] == list(range(100)), "first in, first out"
