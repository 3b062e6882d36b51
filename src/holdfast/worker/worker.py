"""What users hold: a worker of one queue, or of several. Nothing runs until it is started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import config
from ..errors import ConfigError
from ..holders import worker_name
from ..retry import RetryFunction, RetryPolicy, policy_from
from ..stores.worker_reports import WorkerReport
from . import signals
from .callbacks import OnComplete, OnError
from .choice import Choice
from .handler import Handler
from .in_flight import Job
from .run import Run

if TYPE_CHECKING:
    from ..lifetime import Lifetime
    from ..queue import Queue

F = TypeVar("F")


class Worker:
    """Runs a handler for every message of a queue or of several, `concurrency` at a time."""

    def __init__(
        self,
        source: Queue[Any] | Choice,
        handler: Callable[..., Any],
        *,
        lease: float | None = None,
        retry: RetryPolicy | RetryFunction | None = None,
        on_error: OnError | None = None,
        on_complete: OnComplete | None = None,
        worker_id: str | None = None,
        maintenance_interval: float = 30.0,
        **options: Any,
    ) -> None:
        given = {key: value for key, value in options.items() if value is not None}
        self._source = source
        self._options = config.options(config.WorkerOptions, given, where="worker")
        self._handler = Handler(handler, batch=self._options.batch is not None)
        self._lease = None if lease is None else config.positive("lease", lease)
        self._retry = _checked_retry(retry)
        self._on_error = _checked_callback("on_error", on_error)
        self._on_complete = _checked_callback("on_complete", on_complete)
        self.worker_id = _checked_name(worker_id) or worker_name()
        self._maintenance_interval = config.positive("maintenance_interval", maintenance_interval)
        self._current: Run | None = None
        self._ended: asyncio.Future[None] | None = None  # of the last run
        self._watch: Callable[[Job], None] | None = None  # see Callbacks.watch

    @property
    def queue(self) -> Queue[Any]:
        """Its queue; ConfigError where it has several."""
        if isinstance(self._source, Choice):
            raise ConfigError(f"this worker has several queues: {self._source.name}")
        return self._source

    @property
    def queues(self) -> list[str]:
        """The names of its queues; while it runs those of its patterns too."""
        return list(self._source.queues) if isinstance(self._source, Choice) else [self._source.name]

    @property
    def _life(self) -> Lifetime:
        return self._source.life if isinstance(self._source, Choice) else self._source._opened.life

    @property
    def concurrency(self) -> int:
        return self._options.concurrency

    @property
    def busy(self) -> int:
        """Handlers that run now."""
        return 0 if self._current is None else self._current.busy

    @property
    def is_running(self) -> bool:
        return self._current is not None

    async def start(self) -> None:
        """Begin to claim and run, in the background; a second start is harmless."""
        if self._current is None and isinstance(self._source, Choice):
            await self._source.look()
        if self._current is None:  # still: another start may have been under way
            self._current = Run(
                self._source,
                self._handler,
                self._options,
                worker_id=self.worker_id,
                lease=self._lease,
                maintenance_interval=self._maintenance_interval,
                retry=self._retry,
                on_error=self._on_error,
                on_complete=self._on_complete,
                gone=self._forget,
            )
            self._ended = self._current.ended
            self._life.workers.add(self)  # who are stopped when their broker closes
            self._current.start(self._watch)
            self._tell()

    async def stop(self, grace: float | None = None) -> None:
        """No new claims; running handlers finish within the grace, the rest is released without costing an attempt.

        Everything is settled when it returns. A second stop is harmless and may shorten the grace. Called by the
        worker's own handler it only begins to stop: the handler is one of those that are waited for.
        """
        current = self._current
        if current is not None:
            stopping = current.stop(self._seconds(grace))
            if not current.is_slot(asyncio.current_task()):
                await asyncio.shield(stopping)

    def stop_soon(self, grace: float | None = None) -> None:
        """Begin to stop, as `stop` does, without waiting."""
        if self._current is not None:
            self._current.stop(self._seconds(grace))

    async def wait(self) -> None:
        """Until the run that was started last has ended; raises what ended it, if that was an error."""
        if self._ended is not None:
            await asyncio.shield(self._ended)

    async def run(self) -> None:
        """Start, and run until SIGTERM, SIGINT or `stop()`; a second signal stops at once."""
        with signals.caught(signals.stopping([self])):
            await self.start()
            try:
                await self.wait()
            except asyncio.CancelledError:
                await self.stop(0.0)
                raise
            finally:
                await self.stop()

    def _seconds(self, grace: float | None) -> float:
        return self._options.grace if grace is None else config.seconds("grace", grace)

    def _forget(self) -> None:
        self._current = None
        self._life.workers.discard(self)
        self._tell()

    def _tell(self) -> None:
        if self._life.reporter is not None:
            self._life.reporter.changed()

    def _report(self) -> WorkerReport | None:
        """What it does now; None: it does not run."""
        if self._current is None:
            return None
        return WorkerReport(
            id=self.worker_id,
            queues=self.queues,
            slots=self.concurrency,
            busy=self.busy,
            running=self._current.running(most=20),
        )

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"Worker({self._source.name!r}, {self._handler.name}, concurrency={self.concurrency})"


def _checked_callback(name: str, callback: F) -> F:
    if callback is not None and not callable(callback):
        raise ConfigError(f"{name}: a callback is a function, not {callback!r}")
    return callback


def _checked_name(worker_id: object) -> str | None:
    if worker_id is not None and not isinstance(worker_id, str):
        raise ConfigError(f"worker_id: text, not {worker_id!r}")
    return worker_id


def _checked_retry(retry: Any) -> RetryPolicy | RetryFunction | None:
    if retry is None or isinstance(retry, RetryPolicy):
        return retry
    if callable(retry):
        function: RetryFunction = retry
        return function
    return policy_from(retry)
