"""The herald: tells events and callbacks what became durable. What they raise is logged, never felt."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from ..escaping import logger_named
from ..stores.records import Answer, Claims, Settlement
from .in_flight import Job
from .source import Source
from .threads import Threads

OnError: TypeAlias = Callable[[BaseException, Any], object | Awaitable[object]]
OnComplete: TypeAlias = Callable[[Any, Any], object | Awaitable[object]]

_LOG = logger_named("holdfast.worker")
_BACKLOG = 1000  # callbacks that may wait before the settler does
_TOGETHER = 100  # sync callbacks run in one visit to the thread


class Herald:
    """Callbacks run one after the other, where the handler runs: in the event loop, or in a thread when it is sync."""

    def __init__(
        self, source: Source, *, on_error: OnError | None, on_complete: OnComplete | None, threads: Threads | None
    ) -> None:
        self._source = source
        self._events = source.events
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

    def claimed(self, claims: Claims) -> None:
        """Leases that had expired are told, whether the message runs again or died of it."""
        emit, queue = self._events.emit, self._source.name
        for expired in claims.expired:
            emit(
                f"message.{expired.status}", queue=queue, id=expired.id, attempts=expired.attempts, error=expired.error
            )
        for message in claims.messages:
            if message.recovered:
                emit("message.recovered", queue=queue, id=message.id, attempts=message.attempt)

    def lost(self, job: Job) -> None:
        self._events.emit("lease.lost", queue=self._source.name, id=job.message.id)

    async def settled(self, jobs: Sequence[Job], answers: Sequence[Answer]) -> None:
        """The outcomes of these jobs are durable, or turned out not to be ours."""
        if answers.count("ok") < len(answers):
            self._tell_lost(jobs, answers)
            jobs = [job for job, answer in zip(jobs, answers, strict=True) if answer == "ok"]
        if self.watch is not None:
            for job in jobs:
                self.watch(job)
        if not self._hears_success():
            jobs = [job for job in jobs if job.error is not None]  # most often none
        for job in jobs:
            self._tell(job)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._call_back(), name="holdfast-callbacks")
        if len(self._waiting) > _BACKLOG and self._task is not None:
            await asyncio.wait({self._task})

    def _tell_lost(self, jobs: Sequence[Job], answers: Sequence[Answer]) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            if answer != "ok" and not job.lost:
                self.lost(job)

    async def close(self, deadline: float) -> None:
        """Let the callbacks end, for a while."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=deadline)
        if self._task is not None:
            self._task.cancel()

    # ------------------------------------------------------------------ events

    def _hears_success(self) -> bool:
        return self._on_complete is not None or self._events.wants("message.completed")

    def _tell(self, job: Job) -> None:
        settlement = job.settlement
        if settlement is None or settlement.action == "release":
            return
        name, more = self._event(job, settlement)
        if self._events.wants(name):
            message = job.message
            self._events.emit(name, queue=self._source.name, id=message.id, attempts=message.attempt, **more)
        if job.error is not None and self._on_error is not None:
            self._waiting.append(partial(self._on_error, job.error, self._source.delivery(job)))
        elif settlement.action == "complete" and self._on_complete is not None:
            self._waiting.append(partial(self._on_complete, self._source.delivery(job), job.result))

    def _event(self, job: Job, settlement: Settlement) -> tuple[str, dict[str, Any]]:
        if settlement.action == "complete":
            return "message.completed", {"duration": job.finished_at - job.started_at, "result": job.result}
        if settlement.action == "retry":
            due = datetime.now(UTC) + timedelta(seconds=settlement.delay)
            return "message.retry", {"error": settlement.error, "next_visible_at": due}
        kept = self._source.options.dead_letter is not False
        return "message.dead" if kept else "message.failed", {"error": settlement.error}

    # ------------------------------------------------------------------ callbacks

    async def _call_back(self) -> None:
        try:
            while self._waiting:
                if self._threads is None:
                    await _finish(_safely(self._waiting.popleft()))
                else:
                    calls = [self._waiting.popleft() for _ in range(min(_TOGETHER, len(self._waiting)))]
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
