"""A fork of this process waits until no thread of its stores is inside SQLite.

A child has only the thread that forked. What another thread had locked inside SQLite then stays locked in the child for
ever: at its first call it would wait, with the folder's lock in its hand, and after it every process of the store.
Celery forks while its store works: when it replaces a child that was killed.
"""

from __future__ import annotations

import os
import threading
import time

from ..stores.log.folder import commit_thread

_mine = threading.local()  # lanes that this thread holds between the two halves of a fork


def _pause() -> None:
    """Every step of a folder's database, reads too, runs in the turn of a lane. Who waits too long forks anyway."""
    deadline = time.monotonic() + commit_thread._EXIT_PATIENCE_S
    lanes = list(commit_thread._alive)
    _mine.lanes = [each for each in lanes if each._turn.acquire(timeout=max(0.0, deadline - time.monotonic()))]


def _go_on() -> None:
    for lane in _mine.lanes:
        lane._turn.release()


os.register_at_fork(before=_pause, after_in_parent=_go_on)
