"""Results of Celery in the store: a value each, which expires."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import TimeoutError as NotInTime
from kombu.utils.encoding import bytes_to_str, ensure_bytes
from kombu.utils.url import maybe_sanitize_url

from ..errors import StoreError, Unavailable
from .link import Link, link_to
from .routing import changed

_PART_BYTES = 8  # of a chord's part: enough to tell a million of them apart
_JOINED = b"joined"  # in place of the parts: its body was called
_FIRST_LOOK_S = 0.01  # after which a result is looked for again; then less and less often


class Backend(KeyValueStoreBackend):
    """`holdfast+<url of a store>`."""

    supports_autoexpire = True
    supports_native_join = True
    implements_incr = True
    persistent = True

    def __init__(self, app: Any, url: str | None = None, **options: Any) -> None:
        super().__init__(app, url=url, **options)
        self.url = str(url or "").removeprefix("holdfast+")
        self.connection_errors = (Unavailable, StoreError)
        self._part = threading.local()  # the part of a chord that returns in this thread

    def as_uri(self, include_password: bool = False) -> str:
        return f"holdfast+{self.url if include_password else maybe_sanitize_url(self.url)}"

    @property
    def _link(self) -> Link:
        return link_to(self.url)

    def exception_safe_to_retry(self, exc: Exception) -> bool:
        return isinstance(exc, Unavailable)

    # Values.

    def get(self, key: str | bytes) -> bytes | None:
        return self.mget([key])[0]

    def mget(self, keys: Sequence[str | bytes]) -> list[bytes | None]:
        link = self._link
        found = link.run(link.values.get([bytes_to_str(key) for key in keys]))
        return [None if value is None else value.data for value in found]

    def set(self, key: str | bytes, value: str | bytes) -> None:
        link = self._link
        link.run(link.values.put(bytes_to_str(key), ensure_bytes(value), expires_in=self.expires or None))

    def delete(self, key: str | bytes) -> None:
        if ensure_bytes(key).startswith(ensure_bytes(self.chord_keyprefix)):
            return self.set(key, _JOINED)  # a part that runs again must not join it again
        link = self._link
        link.run(link.values.delete([bytes_to_str(key)]))
        return None

    def cleanup(self) -> None:
        """What Celery's `backend_cleanup` calls once a day; the transport's processes do it too."""
        link = self._link
        link.run(link.values.sweep())

    # Chords: the parts that have returned are a set, so that one that runs twice counts once.

    def on_chord_part_return(self, request: Any, state: str, result: Any, **options: Any) -> None:
        if not request.group or self.get(self.get_key_for_chord(request.group)) == _JOINED:
            return
        self._part.id = str(request.id)
        super().on_chord_part_return(request, state, result, **options)

    def incr(self, key: str | bytes) -> int:
        part = blake2b(self._part.id.encode(), digest_size=_PART_BYTES).digest()
        count = 0

        def add(data: bytes | None) -> bytes | None:
            nonlocal count
            parts = [] if data is None else [data[at : at + _PART_BYTES] for at in range(0, len(data), _PART_BYTES)]
            is_new = part not in parts
            count = len(parts) + is_new
            return b"".join([*parts, part]) if is_new else None

        link = self._link
        link.run(changed(link, bytes_to_str(key), add, expires_in=self.chord_expires or None))
        return count

    # Waiting: soon at first, then less and less often.

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float | None = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        self._ensure_not_eager()
        pauses = _Pauses(timeout, interval)
        while True:
            meta: dict[str, Any] = self.get_task_meta(task_id)
            if meta["status"] in states.READY_STATES:
                return meta
            if on_interval:
                on_interval()
            pauses.next()

    def get_many(
        self, task_ids: Any, timeout: float | None = None, interval: float | None = 0.5, **options: Any
    ) -> Any:
        """Rounds of Celery's own, each without a pause."""
        left, pauses = set(task_ids), _Pauses(timeout, interval)
        on_interval = options.pop("on_interval", None)
        while left:
            for task_id, meta in super().get_many(set(left), interval=0, max_iterations=1, **options):
                left.discard(task_id)
                yield task_id, meta
            if left:
                if on_interval:
                    on_interval()
                pauses.next()

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})


class _Pauses:
    def __init__(self, timeout: float | None, longest: float | None) -> None:
        self._until = None if timeout is None else time.monotonic() + timeout
        self._longest = 0.5 if longest is None else longest
        self._pause = _FIRST_LOOK_S

    def next(self) -> None:
        """Sleep; celery's TimeoutError when the time is over."""
        pause = min(self._pause, self._longest)
        if self._until is not None:
            left = self._until - time.monotonic()
            if left <= 0:
                raise NotInTime("The operation timed out.")
            pause = min(pause, left)
        time.sleep(pause)
        self._pause *= 1.5
