"""Values in the log engine: an object each, outside of every queue. A key is any text, so its hash is the name."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import Damaged
from ..base import PAGE_ROWS
from ..values import ABSENT, Kept, Value, check_keys, checked_expiry, new_version, unpacked
from . import names
from .space import Reading, Space, Transaction


class LogValues:
    """See `stores/values.py` for the promises."""

    def __init__(self, space: Space, *, timeout: float) -> None:
        self._space = space
        self._timeout = timeout

    async def get(self, keys: Sequence[str]) -> list[Value | None]:
        check_keys(keys)
        return await self._space.read(lambda view: [_value(view, key) for key in keys], deadline=self._timeout)

    async def put(
        self, key: str, data: bytes, *, expected: str | None = None, expires_in: float | None = None
    ) -> str | None:
        check_keys([key])
        seconds = checked_expiry(expires_in)
        name, version = names.value_key(key), new_version()

        def step(tx: Transaction) -> str | None:
            found = _kept(tx, name)
            if found is not None and found.version == version:
                return version  # our own write, its answer was lost
            if expected is not None and _version(found, tx.now) != expected:
                return None
            tx.put(name, Kept(version, math.inf if seconds is None else tx.now + seconds, data).packed())
            return version

        return await self._space.transact(step, deadline=self._timeout, lane=name)

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        for key in keys:
            await self._delete(names.value_key(key))

    async def _delete(self, name: str) -> None:
        def step(tx: Transaction) -> None:
            if tx.get(name) is not None:  # on a bucket only what was read can be removed
                tx.delete(name)

        await self._space.transact(step, deadline=self._timeout, lane=name)

    async def sweep(self) -> int:
        swept, after = 0, ""
        while True:
            page, old = await self._space.read(lambda view, start=after: _old(view, start), deadline=self._timeout)  # type: ignore[misc] # mypy cannot see the default
            for name in old:
                swept += await self._space.transact(
                    lambda tx, name=name: _sweep(tx, name),  # type: ignore[misc] # the same
                    deadline=self._timeout,
                    lane=name,
                )
            if not page:
                return swept
            after = page


def _value(view: Reading, key: str) -> Value | None:
    found = _kept(view, names.value_key(key))
    return None if found is None else found.value(view.now)


def _kept(view: Reading, name: str) -> Kept | None:
    """None: nothing is there, or it is damaged; the next write replaces it."""
    try:
        found = view.get(name)
        return None if found is None else unpacked(found.data, name)
    except Damaged:
        return None


def _version(found: Kept | None, now: float) -> str:
    return found.version if found is not None and now < found.expires_at else ABSENT


def _old(view: Reading, after: str) -> tuple[str, list[str]]:
    """One page: its last name, and those of it that have expired."""
    page = view.list(names.VALUES, after=after, limit=PAGE_ROWS)
    found = [(name, _kept(view, name)) for name in page]
    old = [name for name, kept in found if kept is not None and kept.expires_at <= view.now]
    return (page[-1] if page else ""), old


def _sweep(tx: Transaction, name: str) -> int:
    kept = _kept(tx, name)
    return int(kept is not None and kept.expires_at <= tx.now and tx.delete(name))
