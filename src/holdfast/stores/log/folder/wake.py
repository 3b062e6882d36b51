"""Telling other processes: a tiny file per topic that is written to, and a kernel that says so."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import resource
import secrets
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from ..topics import Topics, deliver

SUFFIX = ".wake"
# A topic, or the hash of a long one; see `_path`.
WAKE_FILE = re.compile(rf"(.+%2F[a-z]+|[0-9a-f]{{64}}){re.escape(SUFFIX)}")
WRITER_SIZE = 16
_OPEN_FILES = 128  # wake files at most, and of what this process may have open this part
_OPEN_PART = 16
_CLOSE_PATIENCE = 1.0
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Observer(Protocol):
    """The kernel's way of watching files; its descriptor becomes readable when one was written to."""

    name: str
    fd: int

    def add(self, path: str) -> int:
        """Watch a file; an identity for `changed`. Raises OSError."""

    def changed(self) -> tuple[set[int], bool]:
        """Which were written to since, without blocking; True: some got lost, suspect them all."""

    def forget(self, identity: int) -> None:
        """Stop watching."""

    def close(self) -> None:
        """Give the descriptor back."""


def observer() -> Observer | None:
    """The platform's, or None."""
    try:
        if sys.platform == "linux":
            from .inotify import Inotify

            return Inotify()
        elif sys.platform == "darwin":
            from .kqueue import Kqueue

            return Kqueue()
    except OSError:  # too many of them for this user: polling still works
        pass
    return None


class Wake:
    """Signals of this process and of all others that have the folder open."""

    def __init__(self, folder: Path, *, enabled: bool, poll_interval: float) -> None:
        self._folder = str(folder / "wake")
        self._poll_interval = poll_interval
        self._enabled = enabled
        self._observer: Observer | None = None  # from the first wait on: a user has 128 of them, and many never wait
        self._topics = Topics()
        self._me = secrets.token_bytes(WRITER_SIZE)
        self._identities: dict[str, int] = {}
        self._observed: dict[int, str] = {}
        self._listening: Counter[asyncio.AbstractEventLoop] = Counter()
        self._files: OrderedDict[str, int] = OrderedDict()
        self._most_files = max(1, min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _OPEN_PART))
        self._holding = threading.Lock()  # of `_files`: a descriptor must not be closed while it is written to

    @property
    def mechanism(self) -> str:
        found = self._watching()
        return "polling" if found is None else found.name

    def _watching(self) -> Observer | None:
        """The observer. None: this user has none left; whoever waits next tries again."""
        if self._observer is None and self._enabled:
            with self._holding:
                if self._observer is None and self._enabled:
                    self._observer = observer()
        return self._observer

    def announce(self, topics: Iterable[str]) -> None:
        """Tell everybody. Only whoever commits calls this."""
        for topic in (topics := dict.fromkeys(topics)):
            # Before our own count, see `_notice`. A lost wake-up, say on a full disk, costs a poll interval, no more.
            try:
                with self._holding:
                    os.pwrite(self._file(topic), self._me, 0)
            except OSError:
                continue
        if topics:
            deliver(self._topics.signal(topics))

    def ticket(self, topic: str) -> int:
        """Observe the topic from now on; how many signals it has seen."""
        return self.tickets((topic,))[0]

    def tickets(self, topics: Sequence[str]) -> list[int]:
        """The same for several."""
        if self._watching() is not None:
            for topic in topics:
                if topic not in self._identities:
                    self._observe(topic)
            self._notice()
        return [self._topics.ticket(topic) for topic in topics]

    async def wait(self, topic: str, timeout: float, *, since: int) -> bool:
        """As `Space.watch`."""
        return await self.wait_any({topic: since}, timeout)

    async def wait_any(self, tickets: Mapping[str, int], timeout: float) -> bool:
        """The same for the first of several. One that the kernel does not watch is looked at every poll interval."""
        observer, whole = self._observer, timeout
        if observer is None or not all(topic in self._identities for topic in tickets):
            timeout = min(timeout, self._poll_interval)
        if observer is None:
            return await self._topics.wait_any(tickets, timeout) or timeout < whole
        loop = asyncio.get_running_loop()
        self._listening[loop] += 1
        if self._listening[loop] == 1:
            loop.add_reader(observer.fd, self._notice)
        try:
            return await self._topics.wait_any(tickets, timeout) or timeout < whole
        finally:
            self._listening[loop] -= 1
            if not self._listening[loop]:
                loop.remove_reader(observer.fd)
                del self._listening[loop]

    def wake(self, topics: Iterable[str]) -> None:
        """Waiters of this process for these topics look again."""
        deliver(self._topics.signal(topics))

    def wake_all(self) -> None:
        """Every waiter of this process looks again."""
        deliver(self._topics.signal_all())

    def close(self) -> None:
        """Wake everybody for the last time; the committing thread's last act."""
        with self._holding:
            self._enabled = False
        deliver(self._topics.signal_all())
        end = time.monotonic() + _CLOSE_PATIENCE
        while self._listening and time.monotonic() < end:
            time.sleep(0.001)  # until every loop has let go of the descriptor: its number may soon be another file's
        if self._observer is not None and not self._listening:
            self._observer.close()
        self._observer = None
        self.give_back()

    def give_back(self) -> bool:
        """Close what only saves opening it again, from any thread; False: there was nothing."""
        with self._holding:
            files, self._files = self._files, OrderedDict()
            for fd in files.values():
                os.close(fd)
        return bool(files)

    def _observe(self, topic: str) -> None:
        if self._observer is None:
            return
        path = self._path(topic)
        try:
            os.close(os.open(path, _WRITE, 0o666))
            identity = self._observer.add(path)
        except OSError:  # no watch left for this user, no space: this topic is polled, the next ticket tries again
            return
        self._observed[identity] = topic
        self._identities[topic] = identity

    def _notice(self) -> None:
        """Take what the kernel has seen; any thread may, and each change is seen by one of them."""
        observer = self._observer
        if observer is None:
            return
        changed, overflow = observer.changed()
        if overflow:
            deliver(self._topics.signal_all())
        topics = [self._observed[identity] for identity in changed if identity in self._observed]
        foreign = [topic for topic in topics if not self._is_own(topic)]
        if foreign:
            deliver(self._topics.signal(foreign))

    def _is_own(self, topic: str) -> bool:
        # The last writer was us: our count follows our write, so it also covers whoever wrote before us.
        try:
            fd = os.open(self._path(topic), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                return os.read(fd, WRITER_SIZE) == self._me
            finally:
                os.close(fd)
        except OSError:  # removed: observe anew with the next ticket
            identity = self._identities.pop(topic, None)
            if identity is not None and self._observer is not None:
                self._observed.pop(identity, None)
                self._observer.forget(identity)
            return False

    def _file(self, topic: str) -> int:
        fd = self._files.get(topic)
        if fd is None:
            if len(self._files) >= self._most_files:
                os.close(self._files.popitem(last=False)[1])
            fd = os.open(self._path(topic), _WRITE, 0o666)
            self._files[topic] = fd
        return fd

    def _path(self, topic: str) -> str:
        name = quote(topic, safe="")
        if len(name) > 200:  # names of files end at 255 bytes
            name = hashlib.sha256(topic.encode()).hexdigest()
        return f"{self._folder}/{name}{SUFFIX}"
