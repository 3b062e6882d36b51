"""How a handler is called: in the slot or in a thread, with or without context, with or without a time limit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ..codecs import Codec
from ..events import Tracer
from .context import Context, Site
from .handler import Handler
from .in_flight import Job
from .threads import Threads

Run = Callable[[Any, Job], Awaitable[Any]]


class Call:
    """`run(value, job)` is the handler's result; `late` holds threads that outlived their time limit, by job."""

    def __init__(
        self,
        handler: Handler,
        site: Site,
        *,
        codec: Codec[Any],
        timeout: float | None,
        threads: Threads,
        tracer: Tracer | None = None,
    ) -> None:
        self.decode = codec.decode
        self.is_async = handler.is_async
        self.late: dict[Job, asyncio.Future[Any]] = {}
        self._timeout = timeout
        self._threads = threads
        self._plain = _plain(handler, site)
        self.run: Run = self._in_thread
        if handler.is_async:
            self.run = self._plain if timeout is None else self._limited
        if tracer is not None:
            self.run = _traced(self.run, tracer)

    async def _limited(self, value: Any, job: Job) -> Any:
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await self._plain(value, job)
        except TimeoutError as error:
            if limit.expired():
                raise self._too_long() from error
            raise

    async def _in_thread(self, value: Any, job: Job) -> Any:
        thread = self._threads.submit(self._plain, value, job)
        if self._timeout is not None:
            await asyncio.wait({thread}, timeout=self._timeout)
            if not thread.done():
                job.stale = True
                self.late[job] = thread
                raise self._too_long()
        result = await thread
        return await result if inspect.isawaitable(result) else result

    def _too_long(self) -> TimeoutError:
        return TimeoutError(f"the handler ran longer than {self._timeout:g} s")


def _traced(run: Run, tracer: Tracer) -> Run:
    async def traced(value: Any, job: Job) -> Any:
        jobs = (job,) if job.slot is None else job.slot.jobs  # a batch runs in one call
        return await tracer.process(job.queue.name, [each.message for each in jobs], lambda: run(value, job))

    return traced


def _plain(handler: Handler, site: Site) -> Callable[[Any, Job], Any]:
    function = handler.function
    if handler.takes_context:
        return lambda value, job: function(value, Context(site, job))
    return lambda value, job: function(value)
