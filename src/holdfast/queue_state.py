"""An opened queue: what all handles of one queue in a broker share, and the calls to its store with their events."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from . import message_events
from .config import QueueOptions, StoreOptions
from .deliveries import Delivery, Lease, read_receipt
from .errors import ConfigError, Damaged, LeaseLost, MessageNotFound, QueueFull
from .events import Emitter, Event
from .holders import process_name
from .ids import is_id
from .lifetime import Lifetime
from .limits import SHOWN_CHARS
from .once import Once
from .repeats import Repeats
from .stores.base import (
    DEAD,
    LOOK_AGAIN_S,
    CallName,
    QueueInfo,
    SingleAppend,
    Store,
    remembering,
    single_append,
    transactional,
)
from .stores.records import Answer, Claims, Enqueued, Envelope, Settlement

if TYPE_CHECKING:
    from .queue import Queue

Holder: TypeAlias = "Delivery[Any] | Lease"  # both know id, token, attempt and max_attempts

_running_loop = asyncio._get_running_loop
_SINGLE_S = 0.05  # for which the way of single messages is believed


class Opened:
    """One queue of one broker."""

    def __init__(
        self, life: Lifetime, info: QueueInfo, events: Emitter, *, store_options: StoreOptions, place: object
    ) -> None:
        self.life = life
        self.store_options = store_options
        self.info = info
        self.name = info.name  # the dead letters of a queue are opened under a name of their own
        self.events = events
        self.held = Held()
        self._worker = process_name()
        self._place = place
        self._repeats = Repeats(place, self.name)
        self._room = Room()
        self._said: Mapping[str, Any] | None = None  # what the code said about the options, and is so
        self._read_at = time.monotonic()
        self._believed = store_options.maintenance_interval
        self._single: SingleAppend | None = None
        self._single_until = 0.0  # believed until then, and as long as nobody else listens to events
        self._heard = 0

    @property
    def store(self) -> Store:
        """ConfigError in another event loop than the broker's, and once the broker is closed."""
        return self.life.store

    def dead_letters(self) -> Opened:
        """The dead letters of this queue, as the queue they are for the store."""
        letters = copy.copy(self)
        letters.name = self.info.name + DEAD
        letters._repeats = Repeats(self._place, letters.name)
        return letters

    def retire(self) -> None:
        """The store cannot be used any more."""
        self._single_until = 0.0
        self.held.clear()

    def learn(self, info: QueueInfo, said: Mapping[str, Any]) -> None:
        """The queue as the store has it now, and what the code said about it."""
        self.info, self._said, self._read_at, self._single_until = info, said, time.monotonic(), 0.0

    def is_known(self, said: Mapping[str, Any]) -> bool:
        """Whether this was just said and seen to, so that opening a queue for every message costs nothing."""
        return said == self._said and time.monotonic() - self._read_at < LOOK_AGAIN_S

    def current(self) -> QueueOptions | None:
        """The stored options; None: it is time to look again, for others may change them at run time."""
        is_old = time.monotonic() - self._read_at > self._believed
        return None if is_old else self.info.options

    async def options(self) -> QueueOptions:
        """The same, looked up again now and then."""
        if self.current() is None:
            await self.refresh()
        return self.info.options

    async def refresh(self) -> None:
        """Read the stored options again."""
        self._read_at = time.monotonic()  # before the await: other tasks go on with what we have
        info = await self.store.queue(self.info.name)
        if info is not None and info != self.info:
            self.info, self._said, self._single_until = info, None, 0.0

    def single(self) -> SingleAppend | None:
        """How one message is appended without anything being made for it; None: by `append`, as others are.

        Single calls are many, so the answer is believed for a moment: for so long nobody may notice that the log would
        tell of messages now.
        """
        now = time.monotonic()
        believed = now < self._single_until and self.events.changes == self._heard
        if not believed or _running_loop() is not self.life.loop:
            if self.current() is None:
                return None  # the options are looked up again first
            self._single_until, self._heard = now + _SINGLE_S, self.events.changes
            self._single = single_append(self.store, self.name) if self._has_nothing_to_add() else None
        return self._single

    def append(
        self,
        messages: Sequence[Envelope],
        *,
        connection: Any = None,
        notify: bool = False,
        call: CallName | None = None,
        wait: float = 0.0,
    ) -> Awaitable[list[str]]:
        """Their ids; no coroutine of ours in between where there is nothing to add: single calls are many."""
        if connection is None and call is None and not notify and self._has_nothing_to_add():
            return self.store.append(self.name, messages)
        if notify and connection is None:
            raise ConfigError("notify= is for connection=: other calls wake who waits by themselves")
        return self._append(messages, connection, notify, call, wait)

    def _has_nothing_to_add(self) -> bool:
        """To what the store does: neither a limit to keep nor anybody to tell."""
        events = self.events
        return self.info.options.max_messages is None and events.tracer is None and not events.wants("message.enqueued")

    async def _append(
        self, messages: Sequence[Envelope], connection: Any, notify: bool, call: CallName | None, wait: float
    ) -> list[str]:
        limit, tracer = self.info.options.max_messages, self.events.tracer

        def append(some: Sequence[Envelope]) -> Awaitable[list[str]]:
            return self._append_now(some, connection, notify, call)

        sent = append if tracer is None else partial(tracer.send, self.name, append=append)
        if limit is None:
            ids = await sent(messages)
        else:
            async with self._room.for_these(self.store, self.name, len(messages), limit=limit, wait=wait):
                ids = await sent(messages)
        if self.events.wants("message.enqueued"):
            self._tell(*(message_events.enqueued(self.name, id) for id in ids))
        return ids

    async def _append_now(
        self, messages: Sequence[Envelope], connection: Any, notify: bool, call: CallName | None
    ) -> list[str]:
        if call is not None and (store := remembering(self.store)) is not None:
            return await store.append_call(self.name, messages, call)
        if connection is None:
            return await self.store.append(self.name, messages)
        return await transactional(self.store).append(self.name, messages, connection=connection, notify=notify)

    async def append_once(
        self,
        messages: Sequence[Envelope],
        how: Once,
        *,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0.0,
    ) -> list[Enqueued]:
        """What became of each; where no key can hit, as others are appended."""
        if not any(each.dedup_key is not None for each in messages):
            ids = await self.append(messages, connection=connection, notify=notify, wait=wait)
            return [Enqueued(id, True) for id in ids]
        if notify and connection is None:
            raise ConfigError("notify= is for connection=: other calls wake who waits by themselves")
        limit = self.info.options.max_messages
        if limit is None:
            made = await self._append_once_now(messages, how, connection, notify)
        else:
            async with self._room.for_these(self.store, self.name, len(messages), limit=limit, wait=wait):
                made = await self._append_once_now(messages, how, connection, notify)
        if self.events.wants("message.enqueued"):
            self._tell(*(message_events.enqueued(self.name, each.id) for each in made))
        return made

    async def _append_once_now(
        self, messages: Sequence[Envelope], how: Once, connection: Any, notify: bool
    ) -> list[Enqueued]:
        if connection is None:
            return await self.store.append_once(self.name, messages, how.dedup, replace=how.replace)
        return await transactional(self.store).append_once(
            self.name, messages, how.dedup, replace=how.replace, connection=connection, notify=notify
        )

    async def claim(
        self, handle: Queue[Any], limit: int, *, lease: float, wait: float, worker: str | None = None
    ) -> list[Delivery[Any]]:
        """Under the name of this process, unless there is another."""
        worker = worker or self._worker
        if self.life.upkeep is not None:
            self.life.upkeep.used(self.name)
        began = time.monotonic()
        suspects: set[str] = set()
        while True:
            claims = await self._claim_once(limit, lease, wait - time.monotonic() + began, worker, suspects)
            now = time.monotonic()
            # What ended instead of being given, its lease over or its bytes damaged, is reported at once. It may have
            # stood before others, who must not be taken for absent.
            if claims is not None and (claims.messages or not claims.expired):
                break
            if now - began > max(wait, self.store_options.operation_timeout):
                claims = claims or Claims([])
                break
        deliveries = [Delivery(claimed, handle, now) for claimed in claims.messages]
        if deliveries:
            self.held.add(deliveries, lease)
        return deliveries

    async def _claim_once(
        self, limit: int, lease: float, wait: float, worker: str, suspects: set[str]
    ) -> Claims | None:
        """None: something could not be read, which a second look may; what is suspect then is damaged."""
        try:
            claims = await self.ask(limit, lease, wait=max(0.0, wait), worker=worker)
        except Damaged as error:
            if error.key in suspects:
                raise
            suspects.add(error.key)
            return None
        self._tell(*message_events.claimed(self.name, claims))
        return claims

    def ask(self, limit: int, lease: float, *, wait: float = 0.0, worker: str) -> Awaitable[Claims]:
        """One claim of the store."""
        claiming = self.store.claim(self.name, limit, lease, wait=wait, worker=worker)
        tracer = self.events.tracer
        return claiming if tracer is None else tracer.receive(self.name, claiming)

    async def extend(self, holders: Sequence[Holder], seconds: float) -> list[float | None]:
        """The new end of each lease; None: it is lost, and an event says so."""
        ends = await self.store.extend(self.name, [(holder.id, holder.token) for holder in holders], seconds)
        for holder, end in zip(holders, ends, strict=True):
            if end is None:
                self._tell(message_events.lost(self.name, holder.id))
            elif isinstance(held := self.held.find(holder.id, holder.token) or holder, Delivery):
                held._claimed.expires_at = end
        return ends

    async def settle(
        self, settlements: Sequence[Settlement], attempt: Callable[[int], message_events.Attempt]
    ) -> list[Answer]:
        """Settle, forget what was in hand, tell what happened; `attempt` knows the run that each of them ends."""
        told = self._told(settlements)
        # Asked before: once the outcome is durable, nothing may fail any more.
        is_dated = any(settlements[index].action == "retry" for index in told) and self.events.wants("message.retry")
        now = await self.store.clock() if is_dated else 0.0
        settling = self.store.settle(self.name, settlements)
        tracer = self.events.tracer
        answers = await (settling if tracer is None else tracer.settle(self.name, settlements, settling))
        if answers.count("ok") < len(answers):
            told = sorted({*told, *(index for index, answer in enumerate(answers) if answer != "ok")})
        repeated = self._recognise(settlements, answers, told)
        self._note(settlements, answers)
        self.held.drop(settlements)
        kept = self.info.options.dead_letter
        for index in told:
            if index not in repeated:
                settlement, answer = settlements[index], answers[index]
                self._tell(
                    message_events.settled(self.name, settlement, answer, attempt(index), now=now, dead_letter=kept)
                )
        return answers

    def _told(self, settlements: Sequence[Settlement]) -> list[int]:
        """The indexes of those that are news when they succeed."""
        silent = ("release",) if self.events.wants("message.completed") else ("release", "complete")
        return [index for index, settlement in enumerate(settlements) if settlement.action not in silent]

    # A repeat of what this process has settled is success, whatever the store still knows of it, and it is no news.

    def _recognise(self, settlements: Sequence[Settlement], answers: list[Answer], among: Sequence[int]) -> set[int]:
        """The indexes of repeats; their answers become ok."""
        if not among:
            return set()
        known = self._repeats.among([settlements[at] for at in among], [answers[at] for at in among])
        repeated = {among[index] for index in known}
        for index in repeated:
            answers[index] = "ok"
        return repeated

    def _note(self, settlements: Sequence[Settlement], answers: Sequence[Answer]) -> None:
        """All but completions that the store has on record: a message that lives on is soon held by another token."""
        archive, is_told = self.info.options.archive, self.events.wants("message.completed")
        noted = [
            each
            for each, answer in zip(settlements, answers, strict=True)
            if answer == "ok"
            and (each.action != "complete" or is_told or not (archive if each.keep is None else each.keep))
        ]
        if noted:
            self._repeats.note(noted)

    def holder(self, delivery: Delivery[Any] | str) -> Holder | None:
        """Who may settle: a delivery, the id of one in hand, or a receipt; None: none of these."""
        if isinstance(delivery, Delivery):
            return delivery
        if not isinstance(delivery, str):
            raise ConfigError(f"expected a delivery, its receipt or its id, not {type(delivery).__qualname__}")
        return self.held.find(delivery) or read_receipt(delivery)

    async def stranger(self, id: str) -> LeaseLost | MessageNotFound:
        """The error for an id of which this process holds no delivery."""
        if not is_id(id) or (await self.store.get(self.name, [id]))[0] is None:
            return self.missing(id)
        return LeaseLost(f"{self.name}: this process holds no delivery of {id}")

    def missing(self, id: str) -> MessageNotFound:
        return MessageNotFound(f"{self.name}: there is no message {shown(id)}")

    def lost(self, id: str) -> LeaseLost:
        return LeaseLost(f"{self.name}: the lease of {id} is lost; somebody else holds or has finished the message")

    def _tell(self, *events: Event | None) -> None:
        for event in events:
            if event is not None:
                self.events.emit(event)


def attempt_of(holder: Holder, result: Any = None) -> message_events.Attempt:
    """The run that its holder ends now."""
    duration = time.monotonic() - holder._since if isinstance(holder, Delivery) else None
    return message_events.Attempt(holder.attempt, duration, result)


def shown(id: str) -> str:
    """An id in an error; a text that is none may be of any length."""
    return repr(id) if len(id) <= SHOWN_CHARS else f"{id[:SHOWN_CHARS]!r}…"


class Held:
    """Deliveries in the hands of this process, by id, until they are settled or their lease is over."""

    def __init__(self) -> None:
        self._by_id: dict[str, Delivery[Any]] = {}
        self._look_again = 0.0

    def add(self, deliveries: Sequence[Delivery[Any]], lease: float) -> None:
        by_id = self._by_id
        for delivery in deliveries:
            by_id[delivery._claimed.id] = delivery
        now = deliveries[0]._claimed.expires_at - lease  # the store's
        if now >= self._look_again:
            # Once a lease: what nobody settled must not stay in memory for ever.
            self._by_id = {id: held for id, held in by_id.items() if held._claimed.expires_at > now}
            self._look_again = now + lease

    def find(self, id: str, token: str | None = None) -> Delivery[Any] | None:
        found = self._by_id.get(id)
        return found if found is None or token is None or found._claimed.token == token else None

    def drop(self, settlements: Sequence[Settlement]) -> None:
        by_id = self._by_id
        if not by_id:
            return
        for settlement in settlements:
            found = by_id.get(settlement.id)
            # A late settle by an older lease must not take the current one out of our hands.
            if found is not None and found._claimed.token == settlement.token:
                del by_id[settlement.id]

    def clear(self) -> None:
        self._by_id.clear()


class Room:
    """Keeps a queue with `max_messages` below it, by a count at most a second old and what we added since."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._landed = asyncio.Event()  # no append of ours is under way
        self._landed.set()
        self._flying = 0
        self._counted = 0
        self._counted_at = float("-inf")
        self._added = 0

    @asynccontextmanager
    async def for_these(
        self, store: Store, name: str, count: int, *, limit: int, wait: float = 0.0
    ) -> AsyncIterator[None]:
        """So many are appended inside; QueueFull when there is no room for them after `wait` seconds."""
        deadline = time.monotonic() + wait
        while not await self._is_taken(store, name, count, limit=limit, until=deadline if count <= limit else 0.0):
            await store.watch(name, min(LOOK_AGAIN_S, max(0.0, deadline - time.monotonic())))
        try:
            yield
        finally:
            self._flying -= 1
            if not self._flying:
                self._landed.set()

    async def _is_taken(self, store: Store, name: str, count: int, *, limit: int, until: float) -> bool:
        """Whether room was found, now kept for them; QueueFull: not, and it is too late to ask again."""
        async with self._lock:
            try:
                await self._make_sure(store, name, count, limit=limit)
            except QueueFull:
                if time.monotonic() >= until:
                    raise
                return False
            self._added += count
            self._flying += 1
            self._landed.clear()
            return True

    async def _make_sure(self, store: Store, name: str, count: int, *, limit: int) -> None:
        if time.monotonic() - self._counted_at >= LOOK_AGAIN_S:
            await self._count(store, name)
        if self._counted + self._added + count > limit:
            await self._count(store, name)  # some may have been finished since
        if self._counted + count > limit - self._added:
            raise QueueFull(f"{name} holds {self._counted + self._added} messages, its limit is {limit}")

    async def _count(self, store: Store, name: str) -> None:
        await self._landed.wait()  # what is under way might be counted, or not
        stats = await store.stats(name)
        self._counted = stats.pending + stats.delayed + stats.processing + stats.retry
        self._counted_at = time.monotonic()
        self._added = 0
