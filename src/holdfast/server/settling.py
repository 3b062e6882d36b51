"""Settlements of a request: those that say the same go together, each has its answer."""

from __future__ import annotations

from collections.abc import Sequence
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
    for _, group in groupby(given, key=_says):
        results += await _settle_alike(queue, list(group))
    return results


def _says(one: Settle) -> tuple[object, ...]:
    """What settlements share that go together; results and errors may differ."""
    return one.outcome, one.keep, one.retry_in, one.delay, one.reason


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
    if first.outcome == "release":
        return _answers(await queue.release_many(receipts, first.delay))
    if first.outcome == "kill":
        return _answers(await queue.kill_many(receipts, first.reason))
    return [await _extended(queue, each) for each in group]


def _answers(done: Sequence[bool]) -> list[Settled]:
    return [Settled(True) if each else _LOST for each in done]


async def _extended(queue: Queue[Any], given: Settle) -> Settled:
    """One by one: each answer says when its lease ends."""
    try:
        return Settled(True, expires_at=await queue.extend(given.receipt, given.seconds))
    except MessageError as error:
        return Settled(False, type(error).__name__)
