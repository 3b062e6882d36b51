"""A pipe that rings."""

from __future__ import annotations

import os
import time

from holdfast.kombu.bell import Bell


def test_a_ring_ends_a_wait_and_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    began = time.monotonic()
    bell.wait(30)
    assert time.monotonic() - began < 15
    began = time.monotonic()
    bell.wait(0.05)
    assert time.monotonic() - began >= 0.04
    bell.close()


def test_rings_that_nobody_hears_block_nobody() -> None:
    bell = Bell()
    for _ in range(100_000):
        bell.ring()
    bell.hush()
    bell.close()


def test_a_closed_bell_reaches_nobodys_file() -> None:
    bell = Bell()
    bell.close()
    out, into = os.pipe()  # with the numbers that the bell had
    os.set_blocking(out, False)
    bell.ring()
    bell.close()
    try:
        assert os.read(out, 1) == b""
    except BlockingIOError:
        pass
    finally:
        os.close(out)
        os.close(into)
