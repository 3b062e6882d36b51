"""Settlements: what a worker sends to the store after a handler ended."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..limits import check_result, in_ascii, kept_text
from ..outcome import Decision, decide, describe
from ..retry import Exponential, RetryFunction, RetryPolicy
from ..stores.base import DEAD
from ..stores.records import Settlement
from .in_flight import Job

_SHOWN_AGAIN_S = Exponential().cap  # the longest usual backoff: for dead letters, and for refused outcomes


class Settlements:
    """Makes the settlement of a job. Dead letters never die again: they are shown again later."""

    def __init__(self, worker_id: str, *, retry: RetryPolicy | RetryFunction | None) -> None:
        self._worker_id = worker_id
        self._retry = retry  # the worker's own; None: the queue's

    def completed(self, job: Job, result: bytes | None) -> Settlement:
        """MessageTooLarge: the result is beyond its limit, and the attempt has failed."""
        if result is not None:
            check_result(result, job.queue.options.max_message_size)
        message = job.message
        return Settlement(message.id, message.token, "complete", 0.0, result, None, None, self._worker_id)

    def failed(self, job: Job, error: BaseException) -> Settlement:
        message, stored = job.message, job.queue.options.retry
        policy = stored if self._retry is None else self._retry
        # a dead letter has no last attempt
        most = message.attempt + 1 if _is_letter(job) else message.max_attempts
        decision = decide(error, attempt=message.attempt, max_attempts=most, policy=policy, fallback=stored)
        return self._settlement(job, decision)

    def unreadable(self, job: Job, error: BaseException) -> Settlement:
        return self._settlement(job, Decision("dead", 0.0, kept_text(f"undecodable payload: {describe(error)}")))

    def instead(self, job: Job, error: Exception) -> Iterator[Settlement]:
        """What else may be told of an outcome that the store refuses, the nearest to it first, in plain letters."""
        was = job.settlement
        if was is not None and _plain(was) != was:
            yield _plain(was)
        if was is not None and was.action == "complete":
            yield _plain(self.failed(job, error))
        reason = f"its outcome could not be stored: {describe(error)}"
        yield _plain(self._settlement(job, Decision("dead", 0.0, reason)))
        yield msgspec.structs.replace(self.released(job), delay=_SHOWN_AGAIN_S, worker=None)

    def released(self, job: Job) -> Settlement:
        message = job.message
        return Settlement(message.id, message.token, "release", worker=self._worker_id)

    def _settlement(self, job: Job, decision: Decision) -> Settlement:
        message, action, delay = job.message, decision.action, decision.delay
        if action == "dead" and _is_letter(job):
            action, delay = "retry", _backoff(job)
        return Settlement(message.id, message.token, action, delay=delay, error=decision.error, worker=self._worker_id)


def _is_letter(job: Job) -> bool:
    return job.queue.name.endswith(DEAD)


def _backoff(job: Job) -> float:
    delay = job.queue.options.retry.after(job.message.attempt)
    return _SHOWN_AGAIN_S if delay is None else delay


def _plain(settlement: Settlement) -> Settlement:
    """The same with text that every store has letters for."""
    return msgspec.structs.replace(settlement, error=in_ascii(settlement.error), worker=in_ascii(settlement.worker))
