"""The way into the event-loop thread: results, errors, interrupts, the thread itself."""

import asyncio
import contextvars
import os
import signal
import threading

import pytest

from holdfast.errors import ConfigError
from holdfast.loop_thread import Portal, Visit, portal


@pytest.fixture
def place():
    return portal()


async def answer(value):
    await asyncio.sleep(0)
    return value


def test_results_and_errors_come_back(place):
    async def bad():
        raise KeyError("x")

    assert place.run(answer(5)) == 5
    with pytest.raises(KeyError):
        place.run(bad())


async def stays(place):
    return place.keeps(asyncio.get_running_loop())


async def where():
    return asyncio.get_running_loop(), threading.current_thread()


def test_the_thread_is_there_while_it_is_needed():
    fresh = Portal()
    assert fresh._thread is None
    loop, thread = fresh.run(where())
    assert thread.daemon
    assert not thread.is_alive()
    assert loop.is_closed()


def test_what_stays_keeps_the_loop():
    fresh = Portal()

    async def stay():
        assert fresh.keeps(asyncio.get_running_loop())
        return await where()

    loop, thread = fresh.run(stay())
    assert fresh.run(where()) == (loop, thread)
    fresh.leave()
    assert not thread.is_alive()
    assert loop.is_closed()


def test_the_loop_of_somebody_else_is_not_kept():
    loop = asyncio.new_event_loop()
    assert not Portal().keeps(loop)
    loop.close()


def test_a_task_that_is_left_behind_ends_with_the_loop():
    ended = threading.Event()

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def leave_one():
        left.append(asyncio.create_task(endless()))
        await asyncio.sleep(0)

    left = []
    Portal().run(leave_one())
    assert ended.is_set()


def test_one_per_process(place):
    found = []
    threads = [threading.Thread(target=lambda: found.append(portal())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {place}


def test_many_threads_at_once(place):
    results = []

    def work(number):
        results.extend(place.run(answer((number, i))) for i in range(50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(number, i) for number in range(8) for i in range(50)]


def test_context_variables_come_along(place):
    variable = contextvars.ContextVar("variable")

    async def look():
        return variable.get()

    variable.set("here")
    assert place.run(look()) == "here"


def test_an_interrupt_cancels_the_work(place):
    ended = threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

    async def endless():
        try:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ended.set()

    try:
        with pytest.raises(KeyboardInterrupt):
            place.run(endless())
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.wait(5)
    assert place.run(answer(1)) == 1


@pytest.mark.timeout(20)
def test_a_signal_that_another_thread_is_given_interrupts_as_well(place):
    place.run(stays(place))  # its thread is there, and takes the signals that the main thread does not
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    async def endless():
        await asyncio.sleep(0.3)  # until the main thread waits
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    try:
        with pytest.raises(KeyboardInterrupt):
            place.run(endless())
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
        place.leave()


def test_a_blocking_call_inside_the_loop_is_refused(place):
    async def inside():
        return place.run(answer(1))

    with pytest.raises(ConfigError, match="async API"):
        place.run(inside())


def test_after_a_fork_it_says_so(place):
    place.run(answer(1))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            place.run(answer(1))
        except ConfigError as error:
            code = 0 if "fork" in str(error) and portal().run(answer(2)) == 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert place.run(answer(1)) == 1


async def test_visiting_a_loop_of_somebody_else():
    visit = Visit(asyncio.get_running_loop())
    assert await asyncio.to_thread(lambda: visit.run(answer(3))) == 3
    assert visit.loop() is asyncio.get_running_loop()
