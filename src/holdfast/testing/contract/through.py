"""A store seen through a glass that can be darkened: for faults that a test decides on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ...stores.base import Store


class Through:
    """Every call goes to the store, unless `error` is set: then that is raised."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.error: Exception | None = None
        self.refused = 0  # calls that met the error
        self.loses_leases = False

    def as_store(self) -> Store:
        return cast(Store, self)

    def __getattr__(self, name: str) -> Any:
        if self.error is not None:
            self.refused += 1
            raise self.error
        return getattr(self._store, name)

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        """Every lease is lost, or as the store says."""
        if self.loses_leases:
            return [None for _ in leases]
        return await self._store.extend(queue, leases, seconds)

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        if self.loses_leases:
            return [None for _ in leases]
        return self._store.extend_from_thread(queue, leases, seconds)
