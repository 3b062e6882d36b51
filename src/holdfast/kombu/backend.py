"""Results of Celery in the store: a value each, which expires."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import TimeoutError as NotInTime
from celery.result import GroupResult
from kombu.utils.encoding import bytes_to_str, ensure_bytes
from kombu.utils.functional import LRUCache
from kombu.utils.url import maybe_sanitize_url

from ..errors import StoreError, Unavailable
from .chords import LEAF_PARTS, Chord, joined
from .link import Link, link_to

_UNCOUNTED = b"uncounted "  # before the result of a chord's part: who joins the chord sees it, nobody else yet
_SIZES = 1000  # chords whose size a process remembers
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
        self._sizes = LRUCache(limit=_SIZES)  # of chords, by group
        self._calling = threading.local()  # the size of the chord whose body this thread calls

    def as_uri(self, include_password: bool = False) -> str:
        return f"holdfast+{self.url if include_password else maybe_sanitize_url(self.url)}"

    @property
    def _link(self) -> Link:
        return link_to(self.url)

    def exception_safe_to_retry(self, exc: Exception) -> bool:
        return isinstance(exc, Unavailable)

    # Values.

    def get(self, key: str | bytes) -> bytes | None:
        data = self._read([key])[0]
        if data is None or not data.startswith(_UNCOUNTED):
            return data
        return data.removeprefix(_UNCOUNTED) if self._is_joining else None

    @property
    def _is_joining(self) -> bool:
        """Whether this thread puts a chord's parts together; those of groups within it are asked for one by one."""
        return hasattr(self._calling, "size")

    def mget(self, keys: Sequence[str | bytes]) -> list[bytes | None]:
        return [None if data is None else data.removeprefix(_UNCOUNTED) for data in self._read(keys)]

    def _read(self, keys: Sequence[str | bytes]) -> list[bytes | None]:
        link = self._link
        found = link.run(link.values.get([bytes_to_str(key) for key in keys]))
        return [None if value is None else value.data for value in found]

    def set(self, key: str | bytes, value: str | bytes) -> None:
        link = self._link
        link.run(link.values.put(bytes_to_str(key), ensure_bytes(value), expires_in=self.expires or None))

    def delete(self, key: str | bytes) -> None:
        link = self._link
        if ensure_bytes(key).startswith(ensure_bytes(self.chord_keyprefix)):
            # A part that runs again must not join it again.
            link.run(joined(link, bytes_to_str(key), expires_in=self.chord_expires or None))
        else:
            link.run(link.values.delete([bytes_to_str(key)]))

    def cleanup(self) -> None:
        """What Celery's `backend_cleanup` calls once a day; the transport's processes do it too."""
        link = self._link
        link.run(link.values.sweep())

    # Chords: the parts are counted in chords.py; the rest, when all are there, is Celery's own.

    def _apply_chord_incr(self, header_result_args: Any, body: Any, **options: Any) -> None:
        group, results = header_result_args[0], list(header_result_args[1])
        super()._apply_chord_incr((group, results), body, **options)
        if len(results) > LEAF_PARTS and not any(isinstance(each, GroupResult) for each in results):
            self._link.run(self._chord(group, len(results)).plan([str(each.id) for each in results]))

    def mark_as_done(
        self, task_id: str, result: Any, request: Any = None, store_result: bool = True, state: str = states.SUCCESS
    ) -> None:
        """A part of a chord is not seen to be done before it is counted.

        Celery acknowledges a task whose process was killed when its result is there: its chord would wait for ever.
        """
        if not (store_result and request and request.chord and request.group) or request.ignore_result:
            super().mark_as_done(task_id, result, request, store_result, state)
            return
        if self._get_task_meta_for(task_id)["status"] != states.SUCCESS:
            value = self.encode_result(result, state)
            meta = self._get_result_meta(result=value, state=state, traceback=None, request=request)
            encoded = ensure_bytes(self.encode({**meta, "task_id": task_id}))
            self.set(self.get_key_for_task(task_id), _UNCOUNTED + encoded)
        try:
            self.on_chord_part_return(request, state, result)
        finally:
            self.store_result(task_id, result, state, request=request)

    def on_chord_part_return(self, request: Any, state: str, result: Any, **options: Any) -> None:
        if not request.group:
            return
        size = request.chord.get("chord_size") or self._size(request.group)
        request.chord["chord_size"] = size or None
        chord = self._chord(request.group, size)
        if self._link.run(chord.returned(str(request.id))):
            self._calling.size = size
            try:
                super().on_chord_part_return(request, state, result, **options)
            finally:
                del self._calling.size

    def _size(self, group: str) -> int:
        """Of a chord, whose messages do not say it; not every part is to read the ids of all others."""
        size = self._sizes.get(group)
        if size is None and (restored := GroupResult.restore(group, backend=self)) is not None:
            size = self._sizes[group] = _parts(restored)
        return int(size or 0)  # of one that is gone, Celery says so

    def _chord(self, group: str, size: int) -> Chord:
        key = bytes_to_str(self.get_key_for_chord(group))
        return Chord(self._link, key, size, expires_in=self.chord_expires or None)

    def incr(self, key: str | bytes) -> int:
        """Celery asks it only for a part that calls the body: all have returned."""
        return int(self._calling.size)

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
            is_ready = meta["status"] in states.READY_STATES
            if is_ready and not (on_interval and meta["status"] in states.PROPAGATE_STATES):
                return meta
            if on_interval:
                on_interval()  # it raises what a task before has raised: the reason where a chord's body failed
            if is_ready:
                return meta
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


def _parts(result: Any) -> int:
    """Tasks that return to the chord: a group among its parts is all of its own."""
    return sum(map(_parts, result.results)) if isinstance(result, GroupResult) else 1


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
