"""Signals as a call in the event loop: heard whichever thread is given them, and as before afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.worker.signals import SIGNALS, caught


@pytest.fixture
def other_thread() -> Iterator[None]:
    """Another thread takes the signals, while the main thread does not."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        over.set()
        thread.join()


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_signal_that_another_thread_is_given_wakes_the_loop(other_thread: None, number: int) -> None:
    heard = asyncio.Event()
    with caught(heard.set):
        for _ in range(2):
            killer = threading.Timer(0.3, os.kill, (os.getpid(), number))  # when the loop waits
            killer.start()
            begun = time.monotonic()
            await asyncio.wait_for(heard.wait(), 20)
            assert time.monotonic() - begun < 10  # not by the end of the wait
            killer.join()
            heard.clear()


async def test_what_was_there_is_there_again() -> None:
    handlers = [signal.getsignal(number) for number in SIGNALS]
    with caught(lambda: None), caught(lambda: None):
        pass
    assert [signal.getsignal(number) for number in SIGNALS] == handlers
    assert signal.set_wakeup_fd(-1) == -1


async def test_a_wakeup_of_somebody_else_stays() -> None:
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, heard.set)  # asyncio has its own wakeup now
    try:
        with caught(lambda: None):
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(heard.wait(), 10)
        heard.clear()
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), 10)
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
