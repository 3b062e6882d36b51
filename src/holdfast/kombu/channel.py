"""A channel: declaring, publishing, consuming, and what is said of a message."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from queue import Empty
from typing import TYPE_CHECKING, Any

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.json import dumps, loads

from ..deliveries import Delivery
from ..errors import HoldfastError, QueueNotFound
from ..escaping import logger_named
from ..queue import Queue
from .feed import Feed
from .held import Word
from .requeue import mark_redelivered
from .routing import Binding

if TYPE_CHECKING:
    from .link import Link

_LOG = logger_named("holdfast.kombu")
_AHEAD_MESSAGES = 100  # messages claimed ahead for who sets no limit
# Those of AMQP 0-9-1 that kombu does not pass by themselves.
_PROPERTIES = {
    "delivery_mode", "priority", "correlation_id", "reply_to", "expiration", "message_id", "timestamp", "type",
    "user_id", "app_id", "cluster_id",
}  # fmt: skip


class QoS(virtual.QoS):
    """What is delivered and not settled; settling goes to the store."""

    restore_at_shutdown = True

    def ack(self, delivery_tag: str) -> None:
        self.channel.say(delivery_tag, "ack")
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.say(delivery_tag, "requeue" if requeue else "kill")
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        self._flush()
        for tag in list(self._delivered):
            self.channel.say(tag, "release")
        self._delivered.clear()
        return []


class Channel(virtual.Channel):
    QoS = QoS
    supports_fanout = True
    max_priority = 255

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self._process = os.getpid()
        self.link: Link = connection.link
        self._feed = Feed(self.link, lease=connection.lease, ring=connection.bell.ring)
        self._holds: dict[str, tuple[Queue[bytes], Delivery[bytes]]] = {}
        self._without_ack: set[str] = set()  # queues whose messages are done when they are delivered
        self._lives_s: dict[str, float] = {}  # by queue: for which its messages count
        self._own: set[str] = set()  # queues that go with their consumer
        self._boxes: set[str] = set()  # queues that a broker keeps some seconds without a consumer

    @property
    def controls(self) -> bool:
        """It serves a queue of this process alone."""
        return bool(self._own)

    # Declaring.

    def prepare_queue_arguments(self, arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
        """`expires` and `message_ttl` of a queue, which kombu does not pass by itself."""
        prepared: dict[str, Any] = to_rabbitmq_queue_arguments(arguments, **options)
        return prepared

    def _new_queue(self, queue: str, auto_delete: bool = False, exclusive: bool = False, **more: Any) -> None:
        arguments = more.get("arguments") or {}
        temporary = bool(auto_delete or exclusive or "x-expires" in arguments)
        if "x-message-ttl" in arguments:
            self._lives_s[queue] = float(arguments["x-message-ttl"]) / 1000  # milliseconds
        if exclusive:
            self._own.add(queue)
        if auto_delete and "x-expires" in arguments:
            self._boxes.add(queue)
        if temporary or not self.link.known(queue):
            self.link.run(self.link.routing.declare(queue, temporary=temporary))

    def _has_queue(self, queue: str, **more: Any) -> bool:
        try:
            self.link.run(self.link.queue(queue, create=False))
        except QueueNotFound:
            return False
        return True

    def _size(self, queue: str) -> int:
        async def ask() -> int:
            stats = await (await self.link.queue(queue, create=False)).stats()
            return stats.pending + stats.retry

        try:
            return self.link.run(ask())
        except QueueNotFound:
            return 0

    def _purge(self, queue: str) -> int:
        async def ask() -> int:
            return await (await self.link.queue(queue, create=False)).purge()

        try:
            return self.link.run(ask())
        except QueueNotFound:
            return 0

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **more: Any) -> None:
        if if_empty and self._size(queue):
            return
        exchanges = {exchange for exchange, _, _ in self.state.queue_bindings(queue)}
        self.link.run(self.link.routing.delete(queue, exchanges))
        self.state.queue_bindings_delete(queue)
        self._own.discard(queue)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        is_box = queue in self._boxes and self.typeof(exchange).type == "fanout"
        if is_box and not self.link.routing.bound(queue):
            self._purge(queue)  # what was said to a process of this name that is gone: a broker had deleted it
        self.link.run(self.link.routing.bind(exchange, Binding(routing_key or "", pattern or "", queue)))

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **more: Any
    ) -> None:
        super().queue_unbind(queue, exchange, routing_key, arguments, **more)
        self.link.run(
            self.link.routing.unbind(
                exchange or "amq.direct", lambda each: (each.queue, each.routing_key) == (queue, routing_key)
            )
        )

    def get_table(self, exchange: str) -> list[tuple[str, str, str]]:
        return [
            (each.routing_key, each.pattern, each.queue) for each in self.link.run(self.link.routing.table(exchange))
        ]

    # Publishing.

    def prepare_message(
        self, body: Any, priority: Any = None, content_type: Any = None, content_encoding: Any = None,
        headers: Any = None, properties: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Of the properties those that AMQP has: publishers also give what is no property of a message."""
        known = {name: value for name, value in (properties or {}).items() if name in _PROPERTIES}
        message: dict[str, Any] = super().prepare_message(
            body, priority, content_type, content_encoding, headers, known
        )
        return message

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        kind = self.typeof(exchange)
        if exchange and kind.type == "direct":
            table = self.link.run(self.link.routing.table(exchange, key=routing_key))
            found = [each.queue for each in table if each.routing_key == routing_key]
            if found:
                return list(dict.fromkeys(found))
        return list(dict.fromkeys(super()._lookup(exchange, routing_key, default)))

    def _put(self, queue: str, message: dict[str, Any], **more: Any) -> None:
        async def put() -> None:
            data, terms = dumps(message).encode(), self._terms(message)
            await self.link.held.requeued()
            try:
                await (await self.link.queue(queue, create=False)).enqueue(data, **terms)
            except QueueNotFound:  # deleted since we looked; a queue of somebody who is gone is not made again
                self.link.forget(queue)
                if await self._is_bound(queue, message["properties"]["delivery_info"].get("exchange")):
                    await (await self.link.queue(queue)).enqueue(data, **terms)

        self.link.run(put())

    async def _is_bound(self, queue: str, exchange: str | None) -> bool:
        return not exchange or any(each.queue == queue for each in await self.link.routing.table(exchange))

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **more: Any) -> None:
        for queue in dict.fromkeys(queue for _, _, queue in self.get_table(exchange)):
            self._put(queue, message)

    def _terms(self, message: dict[str, Any]) -> dict[str, Any]:
        terms: dict[str, Any] = {"priority": self._get_message_priority(message)}
        due = _eta(message)
        return terms if due is None else {**terms, "at": due}

    # Consuming.

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **more: Any) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **more)
        if no_ack:
            self._without_ack.add(queue)
            self._own |= self._boxes & {queue}  # one of tasks may have other consumers
        else:
            self._without_ack.discard(queue)
        self._ask()

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues and self._is_here:
            self._ask()
            self._feed.give_back([queue])
            if queue in self._own:
                self._drop(queue)

    def _drop(self, queue: str) -> None:
        try:
            self.queue_delete(queue)
        except HoldfastError as error:
            _LOG.warning("%s could not be deleted and will be swept: %s", queue, error)

    @property
    def _is_here(self) -> bool:
        """Not in the child of a fork: what is held is the parent's."""
        return self._process == os.getpid()

    def _ask(self) -> int:
        """Let as much be claimed as consumers may have; how many may be delivered."""
        limit = self.qos.prefetch_count
        unsettled = len(self.qos._delivered) - len(self.qos._dirty)
        free = max(limit - unsettled, 0) if limit else _AHEAD_MESSAGES
        self._feed.want(self._active_queues, free - len(self._feed) if self._consumers else 0)
        return free

    def deliver(self) -> int:
        """Call consumers for what is there, as far as they may have more; how many times."""
        if self._feed.error is not None:
            error, self._feed.error = self._feed.error, None
            self._feed.close()
            raise error
        done = 0
        while self._consumers and self._ask() > 0 and (item := self._feed.take()) is not None:
            name, queue, delivery = item
            done += self._deliver(name, queue, delivery)
        return done

    def _deliver(self, name: str, queue: Queue[bytes], delivery: Delivery[bytes]) -> int:
        message = self._received(name, queue, delivery)
        if message is None:
            return 0
        if name in self._without_ack:
            self.say(message["properties"]["delivery_tag"], "ack")
        self.connection._deliver(message, name)
        return 1

    def _received(self, name: str, queue: Queue[bytes], delivery: Delivery[bytes]) -> dict[str, Any] | None:
        """The message as kombu has it; None: its time is over, or its lease was lost while it waited here."""
        if not self.link.held.has(delivery):
            return None
        message: dict[str, Any] = loads(delivery.payload.decode())
        properties = message["properties"]
        tag = properties["delivery_tag"] = self._next_delivery_tag()
        self._holds[tag] = (queue, delivery)
        life = _life_s(message, self._lives_s.get(name))
        if life is not None and delivery._claimed.expires_at - self.connection.lease - life > _counts_from(delivery):
            self.say(tag, "ack")
            return None
        if delivery.attempt > 1:
            mark_redelivered(message)
        return message

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        async def ask() -> tuple[Queue[bytes], Delivery[bytes] | None]:
            await self.link.held.settled()  # what was given back just now comes first
            found = await self.link.queue(queue)
            delivery = await found.dequeue(lease=self.connection.lease)
            if delivery is not None:
                self.link.held.hold(found, delivery, self.connection.lease)
            return found, delivery

        self.link.keep_house()
        while True:
            found, delivery = self.link.run(ask())
            if delivery is None:
                raise Empty
            message = self._received(queue, found, delivery)
            if message is not None:
                return message

    def basic_get(self, queue: str, no_ack: bool = False, **more: Any) -> Any:
        message = super().basic_get(queue, no_ack=no_ack, **more)
        if message is not None and no_ack:
            self.say(message.delivery_tag, "ack")
        return message

    # What is said of a message.

    def say(self, tag: str, word: Word) -> None:
        held = self._holds.pop(tag, None)
        if held is not None and self._is_here:
            self.link.held.settle(self.link, *held, word)

    def close(self) -> None:
        if self.closed:
            return
        if not self._is_here:
            self.closed = True
            return
        super().close()
        self._feed.close()
        self.link.run(self.link.held.settled())


def _eta(message: dict[str, Any]) -> datetime | None:
    """When a task of Celery is due: the store keeps it until then, not a worker."""
    headers = message.get("headers") or {}
    text = headers.get("eta")
    if not isinstance(text, str) or "task" not in headers:
        return None
    try:
        due = datetime.fromisoformat(text)
    except ValueError:
        return None
    return due if due.tzinfo is not None else due.replace(tzinfo=UTC)


def _life_s(message: dict[str, Any], of_queue: float | None) -> float | None:
    """Seconds for which a message counts; a task of Celery that expires does longer: its worker makes it REVOKED."""
    headers, own = message.get("headers") or {}, message["properties"].get("expiration")
    is_celerys = "task" in headers and headers.get("expires") is not None
    lives = [] if own is None or is_celerys else [float(own) / 1000]  # milliseconds
    return min([*lives, *([] if of_queue is None else [of_queue])], default=None)


def _counts_from(delivery: Delivery[bytes]) -> float:
    return delivery._claimed.enqueued_at
