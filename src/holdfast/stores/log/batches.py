"""The log engine under data pipelines: the methods of `stores/batches.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ...messages import View
from ..batches import WHOLE, Filter, Sizing, Slice
from . import scanning
from .finder import Finder
from .scanning import SliceReader
from .space import Space

if TYPE_CHECKING:
    import pyarrow as pa


class LogBatches:
    """See `stores/batches.py` for the promises."""

    def __init__(
        self,
        space: Space,
        finder: Callable[[str], Finder],
        fresh: Callable[[str], Awaitable[Finder]],
        *,
        timeout: float,
    ) -> None:
        self._space = space
        self._fresh = fresh
        self._reader = SliceReader(space, finder, timeout=timeout)
        self._timeout = timeout

    async def plan_scan(
        self, queue: str, view: View, *, filters: Sequence[Filter] = (), sizing: Sizing = WHOLE
    ) -> list[Slice]:
        finder = await self._fresh(queue)
        plan = await self._space.read(scanning.plan_of(finder, view, filters), deadline=self._timeout)
        return plan.slices(queue, view, sizing)

    def read_slice(
        self, part: Slice, *, filters: Sequence[Filter] = (), lenient: bool = False
    ) -> AsyncIterator[pa.RecordBatch]:
        return self._reader.read(part, filters, lenient=lenient)
