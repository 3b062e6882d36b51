"""Settlements of a request: those that say the same go together, each has its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from itertools import groupby
from typing import Any

from .. import config, limits
from ..codecs import encode_result
from ..errors import HoldfastError, LeaseLost, MessageError
from ..queue import Queue
from .bodies import Settle, Settled

_LOST = Settled(False, LeaseLost.__name__)


async def settle(queue: Queue[Any], given: Sequence[Settle]) -> list[Settled]:
    """In input order. What is bad input is found before anything is settled."""
    for index, each in enumerate(given):
        try:
            _check(queue, each)
        except HoldfastError as error:
            error.args = (f"settlement {index}: {error}",)
            raise
    results: list[Settled] = []
    for _, group in groupby(given, key=lambda each: (each.outcome, each.keep, each.retry_in)):
        results += await _settle_alike(queue, list(group))
    return results


def _check(queue: Queue[Any], one: Settle) -> None:
    if one.outcome == "complete" and (result := encode_result(one.result)) is not None:
        limits.check_result(result, queue.options.max_message_size)
    if one.outcome == "extend":
        config.positive("seconds", one.seconds)
    for name in ("delay", "retry_in"):
        config.seconds(name, getattr(one, name) or 0.0)


async def _settle_alike(queue: Queue[Any], group: list[Settle]) -> list[Settled]:
    first, receipts = group[0], [each.receipt for each in group]
    if first.outcome == "complete":
        results = [each.result for each in group]
        return _answers(await queue.complete_many(receipts, results, keep=first.keep))
    if first.outcome == "fail":
        errors = [each.error for each in group]
        return _answers(await queue.fail_many(receipts, errors, retry_in=first.retry_in))
    return [await _one(queue, each) for each in group]


def _answers(done: Sequence[bool]) -> list[Settled]:
    return [Settled(True) if each else _LOST for each in done]


async def _one(queue: Queue[Any], given: Settle) -> Settled:
    try:
        if given.outcome == "extend":
            return Settled(True, expires_at=await queue.extend(given.receipt, given.seconds))
        work: Awaitable[None] = (
            queue.release(given.receipt, given.delay)
            if given.outcome == "release"
            else queue.kill(given.receipt, given.reason)
        )
        await work
    except MessageError as error:
        return Settled(False, type(error).__name__)
    return Settled(True)
