"""Calls that wait together travel together: at once while few are on their way, else with the others that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..base import PAGE_ROWS
from ..records import Envelope
from . import rows

_FLIGHTS = 3  # on their way at once; calls that come meanwhile gather


class Batch(Protocol):
    """Something that has messages."""

    @property
    def messages(self) -> Sequence[Envelope]: ...


B = TypeVar("B", bound=Batch)
R = TypeVar("R")


class _Waiting(NamedTuple, Generic[B, R]):
    batch: B
    landed: asyncio.Future[R]


class Flights(Generic[B, R]):
    """One kind of call of one queue, in one process. `send` answers each of a flight, or says what became of it."""

    def __init__(self, send: Callable[[list[B]], Awaitable[Sequence[R | Exception]]]) -> None:
        self._send = send
        self._flying = 0
        self._waiting: list[_Waiting[B, R]] = []

    async def board(self, batch: B) -> R:
        """The answer to this one."""
        if self._flying >= _FLIGHTS:
            waiting: _Waiting[B, R] = _Waiting(batch, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            return await waiting.landed
        self._flying += 1
        try:
            [answer] = await self._send([batch])
        finally:
            self._landed()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _landed(self) -> None:
        self._flying -= 1
        while self._waiting and self._flying < _FLIGHTS:
            flight: list[_Waiting[B, R]] = []
            size = 0
            while self._waiting and len(flight) < PAGE_ROWS and size < rows.TRIP_BYTES:
                flight.append(self._waiting.pop(0))
                size += sum(len(message.payload) for message in flight[-1].batch.messages)
            self._flying += 1
            asyncio.create_task(self._fly_for(flight))  # noqa: RUF006 - the futures of the flight keep it alive

    async def _fly_for(self, flight: list[_Waiting[B, R]]) -> None:
        try:
            answers = await self._send([waiting.batch for waiting in flight])
        except BaseException as error:  # noqa: BLE001 - each of those who wait hears it
            for waiting in flight:
                _fail(waiting.landed, error)
        else:
            for waiting, answer in zip(flight, answers, strict=True):
                if isinstance(answer, Exception):
                    _fail(waiting.landed, answer)
                elif not waiting.landed.done():
                    waiting.landed.set_result(answer)
        finally:
            self._landed()


def _fail(landed: asyncio.Future[R], error: BaseException) -> None:
    if not landed.done():
        landed.set_exception(error)
