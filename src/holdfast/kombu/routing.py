"""Bindings of exchanges, and which queues are temporary: values of the store, seen by every process."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..errors import HoldfastError, QueueNotFound, Unavailable
from ..escaping import logger_named
from ..stores.values import ABSENT

if TYPE_CHECKING:
    from .link import Link

_LOG = logger_named("holdfast.kombu")
GONE_S = 3600.0  # a temporary queue that nobody has consumed for so long is its process's no more
_ROUND_S = 900.0  # between two rounds: several within that hour
_BELIEVED_S = 10.0  # a binding that was found is believed so long: who removes one waits for it
_PAUSE_S = 0.05  # at most, after somebody else was faster
_TEMPORARY = "kombu/temporary"


class Binding(msgspec.Struct, frozen=True, array_like=True):
    """As kombu's tables have them."""

    routing_key: str
    pattern: str
    queue: str


class Temporary(msgspec.Struct, frozen=True):
    """A queue of one process: a reply or control queue, or that of a listener."""

    seen: float  # by the store's clock
    exchanges: list[str] = []


_bindings = msgspec.json.Decoder(list[Binding]).decode
_temporaries = msgspec.json.Decoder(dict[str, Temporary]).decode


class Routing:
    """Of one store; every coroutine runs in its loop."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._tables: dict[str, tuple[float, list[Binding]]] = {}
        self._mine: dict[str, set[tuple[str, Binding]]] = {}  # temporary queues of this process, bound to exchanges

    async def declare(self, queue: str, *, temporary: bool = False) -> None:
        """It is there from now on."""
        await self._link.queue(queue)
        if temporary and queue not in self._mine:
            self._mine[queue] = set()
            await self._note(queue)

    async def restore(self, queue: str) -> None:
        """Somebody has deleted it, or swept it while this process was asleep: it is there again, bound as it was."""
        self._link.forget(queue)
        await self._link.queue(queue)
        if queue in self._mine:
            await self._note(queue)
            for exchange, binding in list(self._mine[queue]):
                await self.bind(exchange, binding)

    async def _note(self, queue: str, *exchanges: str) -> None:
        now = await self._link.store.clock()

        def change(all: dict[str, Temporary]) -> dict[str, Temporary]:
            known = all[queue].exchanges if queue in all else []
            return {**all, queue: Temporary(now, [*known, *(each for each in exchanges if each not in known)])}

        await self._change_temporaries(change)

    async def table(self, exchange: str, *, key: str | None = None) -> list[Binding]:
        """The bindings of an exchange. With a `key`, those of a while ago will do if one of them has it."""
        found = self._tables.get(exchange)
        is_fresh = found is not None and key is not None and time.monotonic() - found[0] < _BELIEVED_S
        if found is not None and is_fresh and any(each.routing_key == key for each in found[1]):
            return found[1]
        [value] = await self._link.values.get([_table(exchange)])
        bindings = [] if value is None else _bindings(value.data)
        self._tables[exchange] = (time.monotonic(), bindings)
        return bindings

    def bound(self, queue: str) -> bool:
        """Whether this process has bound it, as a temporary one."""
        return bool(self._mine.get(queue))

    async def bind(self, exchange: str, binding: Binding) -> None:
        if binding.queue in self._mine:
            self._mine[binding.queue].add((exchange, binding))
            await self._note(binding.queue, exchange)  # first: what is bound can be swept
        await self._change_table(exchange, lambda all: all if binding in all else [*all, binding])
        self._tables.pop(exchange, None)

    async def unbind(self, exchange: str, gone: Callable[[Binding], bool]) -> None:
        for bound in self._mine.values():
            bound -= {each for each in bound if each[0] == exchange and gone(each[1])}
        await self._change_table(exchange, lambda all: [each for each in all if not gone(each)])
        self._tables.pop(exchange, None)

    async def delete(self, queue: str, exchanges: set[str]) -> None:
        """The queue, with what is in it, and its bindings."""
        noted = await self._noted()
        if queue in noted:
            exchanges = exchanges | set(noted[queue].exchanges)
        for exchange in exchanges:
            await self.unbind(exchange, lambda each: each.queue == queue)
        try:
            found = await self._link.queue(queue, create=False)
            await self._link.broker.delete_queue(found.name, force=True)
        except QueueNotFound:
            pass
        self._link.forget(queue)
        self._mine.pop(queue, None)
        if queue in noted:
            await self._change_temporaries(lambda all: {name: each for name, each in all.items() if name != queue})

    # Rounds.

    async def keep_house(self) -> None:
        """Now and then, while this process consumes."""
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.0) * _ROUND_S)  # not all at once
            try:
                await self.sweep()
            except HoldfastError as error:
                _LOG.warning("temporary queues could not be swept: %s", error)

    async def sweep(self, *, gone_after: float = GONE_S) -> list[str]:
        """Our own are in use; those that nobody used for an hour go, and so do values that expired."""
        now = await self._link.store.clock()
        mine = set(self._mine)
        if mine:
            await self._change_temporaries(
                lambda all: {
                    name: Temporary(now, each.exchanges) if name in mine else each for name, each in all.items()
                }
            )
        noted = await self._noted()
        for name in mine - set(noted):
            await self.restore(name)
        gone = [name for name, each in noted.items() if name not in mine and now - each.seen >= gone_after]
        for name in gone:
            await self.delete(name, set())
        await self._link.values.sweep()
        return gone

    async def _noted(self) -> dict[str, Temporary]:
        [value] = await self._link.values.get([_TEMPORARY])
        return {} if value is None else _temporaries(value.data)

    async def _change_table(self, exchange: str, change: Callable[[list[Binding]], list[Binding]]) -> None:
        """Others may do so at the same time; what is changed twice is as if once."""

        def step(data: bytes | None) -> bytes | None:
            return _written(change([] if data is None else _bindings(data)), data)

        await changed(self._link, _table(exchange), step)

    async def _change_temporaries(self, change: Callable[[dict[str, Temporary]], dict[str, Temporary]]) -> None:
        """The same."""

        def step(data: bytes | None) -> bytes | None:
            return _written(change({} if data is None else _temporaries(data)), data)

        await changed(self._link, _TEMPORARY, step)


def _written(value: object, old: bytes | None) -> bytes | None:
    data = msgspec.json.encode(value)
    return None if data == old else data


async def changed(
    link: Link, key: str, change: Callable[[bytes | None], bytes | None], *, expires_in: float | None = None
) -> None:
    """Compare and set until it is done; None: it is as it shall be. Unavailable, where others are always faster."""
    until = time.monotonic() + link.broker.options.operation_timeout
    while time.monotonic() < until:
        [value] = await link.values.get([key])
        data = change(None if value is None else value.data)
        if data is None:
            return
        expected = ABSENT if value is None else value.version
        if await link.values.put(key, data, expected=expected, expires_in=expires_in) is not None:
            return
        await asyncio.sleep(random.uniform(0, _PAUSE_S))
    raise Unavailable(f"{key}: others changed it all the time")


def _table(exchange: str) -> str:
    return f"kombu/bindings/{exchange}"
