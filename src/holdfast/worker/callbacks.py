"""The user's callbacks, once an outcome is durable. What they raise is logged, never felt."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ..deliveries import Delivery
from ..escaping import logger_named
from ..stores.base import PAGE_ROWS
from ..stores.records import Answer
from .in_flight import Job
from .threads import Threads

OnError: TypeAlias = Callable[[BaseException, Any], object | Awaitable[object]]
OnComplete: TypeAlias = Callable[[Any, Any], object | Awaitable[object]]

_LOG = logger_named("holdfast.worker")


class Callbacks:
    """They run one after the other, where the handler runs: in the event loop, or in a thread when it is sync."""

    def __init__(self, *, on_error: OnError | None, on_complete: OnComplete | None, threads: Threads | None) -> None:
        self._on_error = on_error
        self._on_complete = on_complete
        self._threads = threads
        self.watch: Callable[[Job], None] | None = None  # told of every durable outcome; for `holdfast.testing`
        self._waiting: deque[Callable[[], Any]] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def keeps_values(self) -> bool:
        """Whether callbacks will want the decoded value."""
        return self._on_error is not None or self._on_complete is not None

    async def settled(self, jobs: Sequence[Job], answers: Sequence[Answer]) -> None:
        """The outcomes of these jobs are durable, or turned out not to be ours."""
        if answers.count("ok") < len(answers):
            jobs = [job for job, answer in zip(jobs, answers, strict=True) if answer == "ok"]
        if self.watch is not None:
            for job in jobs:
                self.watch(job)
        if self._on_complete is None:
            jobs = [job for job in jobs if job.error is not None]  # most often none
        for job in jobs:
            self._gather(job)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._call_back(), name="holdfast-callbacks")
        if len(self._waiting) > PAGE_ROWS and self._task is not None:
            await asyncio.wait({self._task})

    def _gather(self, job: Job) -> None:
        action = None if job.settlement is None else job.settlement.action
        if action is None or action == "release":
            return
        if job.error is not None and self._on_error is not None:
            self._waiting.append(partial(self._on_error, job.error, self._delivery(job)))
        elif action == "complete" and self._on_complete is not None:
            self._waiting.append(partial(self._on_complete, self._delivery(job), job.result))

    def _delivery(self, job: Job) -> Delivery[Any]:
        """What callbacks get; the value of a payload that could not be decoded says why when asked for."""
        delivery: Delivery[Any] = Delivery(job.message, job.queue, job.since)  # `Delivery[Any](…)` takes a µs longer
        if job.value is not None:
            delivery._value = job.value
        return delivery

    async def close(self, deadline: float) -> None:
        """Let the callbacks end, for a while."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=deadline)
        if self._task is not None:
            self._task.cancel()

    async def _call_back(self) -> None:
        try:
            while self._waiting:
                if self._threads is None:
                    await _finish(_safely(self._waiting.popleft()))
                else:
                    calls = [self._waiting.popleft() for _ in range(len(self._waiting))]
                    for answer in await self._threads.submit(_all, calls):
                        await _finish(answer)
        finally:
            self._task = None


def _all(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [_safely(call) for call in calls]


def _safely(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception:  # noqa: BLE001 - the user's callback
        _LOG.exception("a callback failed")
        return None


async def _finish(answer: Any) -> None:
    """Async callbacks are awaited, wherever they were called."""
    if answer is None or not inspect.isawaitable(answer):
        return
    try:
        await answer
    except Exception:  # noqa: BLE001 - the user's callback
        _LOG.exception("a callback failed")
