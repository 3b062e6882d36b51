"""The store of this process: opened once for a URL, and used from Spark's own threads, which block."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from pyspark import TaskContext

from .. import config
from ..broker import Broker, connect
from ..errors import ConfigError
from ..loop_thread import portal
from ..stores.base import Store
from ..stores.batches import NOT_SERVED, Batches, Sink, batches_of
from ..stores.opening import Scheme, locate, sink_of

T = TypeVar("T")
_END: Any = object()

# Spark keeps its Python workers and gives them task after task: opening for each would cost more than many a task.
_links: dict[tuple[int, str | None], Link] = {}


class Link:
    """An open broker, and the way into its event loop."""

    def __init__(self, broker: Broker, kind: Scheme) -> None:
        self.broker = broker
        self._kind = kind

    @property
    def store(self) -> Store:
        return self.broker.store

    @property
    def batches(self) -> Batches:
        return batches_of(self.store)

    @property
    def sink(self) -> Sink:
        return sink_of(self.store, self._kind)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return portal().run(work)

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items one by one; the next is made while the caller is busy with the last."""
        loop = portal().loop()
        coming = asyncio.run_coroutine_threadsafe(_next(items), loop)
        try:
            while (item := coming.result()) is not _END:
                coming = asyncio.run_coroutine_threadsafe(_next(items), loop)
                yield item
        finally:  # also when Spark has had enough: what the items hold open must not stay so
            asyncio.run_coroutine_threadsafe(_close(items, coming), loop).result()


async def _close(items: AsyncIterator[T], coming: Future[T]) -> None:
    coming.cancel()
    await asyncio.wait([asyncio.wrap_future(coming)])
    if isinstance(items, AsyncGenerator):
        await items.aclose()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items, _END)


def link(url: str | None) -> Link:
    """The link of this process to a store; without a URL to the one its environment names."""
    place = (os.getpid(), url)
    found = _links.get(place)
    if found is None:
        found = _links[place] = portal().run(_open(url))
        if TaskContext.get() is not None:
            _keep_for_good()
    return found


def _keep_for_good() -> None:
    """Spark has its worker collect garbage after every task, among all that the imports made: 30 ms each time.

    What is there now stays as long as the process, so the collector need not look at it again.
    """
    gc.collect()
    gc.freeze()


async def _open(url: str | None) -> Link:
    location = locate(url if url is not None else config.load().url or config.DEFAULT_URL)
    if not (location.kind.serves_spark or location.kind.sink):
        raise ConfigError(NOT_SERVED)
    return Link(await connect(url), location.kind)
