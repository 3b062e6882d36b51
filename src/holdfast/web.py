"""For web applications: FastAPI, Starlette and Litestar open an app's store when they start, and close it at the end.

    web = FastAPI(lifespan=holdfast.web.lifespan(app))
    web = Litestar(lifespan=[holdfast.web.lifespan(app)])

`Depends(app.broker)` gives a route the broker, `Depends(holdfast.web.queue(app, "emails"))` a queue; for Litestar write
`Provide(…)` instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from .app import App
from .queue import Queue

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(app: App, *, work: bool | Iterable[str] = False, inner: Lifespan | None = None) -> Lifespan:
    """A lifespan that opens the app's store; `work`: it also runs the app's handlers, or those of these queues.

    `inner` is another lifespan, which runs while the store is open. `web.state.holdfast` is the app meanwhile.
    """

    @asynccontextmanager
    async def run(web: Any) -> AsyncIterator[None]:
        await app.open()
        try:
            web.state.holdfast = app
            async with _working(app, work):
                if inner is None:
                    yield
                else:
                    async with inner(web):
                        yield
        finally:
            await app.close()

    return run


@asynccontextmanager
async def _working(app: App, work: bool | Iterable[str]) -> AsyncIterator[None]:
    workers = await app.workers(None if work is True else work) if work else []
    started: list[Any] = []
    try:
        for worker in workers:
            await worker.start()
            started.append(worker)
        yield
    finally:
        await asyncio.gather(*(worker.stop() for worker in started))


def queue(app: App, name: str, type: Any = None, **options: Any) -> Callable[[], Awaitable[Queue[Any]]]:
    """A dependency: the queue of this name, with `type` and the options of `App.queue`."""

    async def opened() -> Queue[Any]:
        return await app.queue(name, type, **options)

    return opened
