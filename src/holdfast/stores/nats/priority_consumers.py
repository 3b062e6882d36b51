"""One pull consumer per priority in use, asked from the highest down. Consumers that vanish are made again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import takewhile
from typing import Any

import msgspec

from ...errors import Unavailable
from ...validate import CENTURY_S
from . import deadline, wire
from .connection import TRIES, WINDOW, Connection, holding
from .deadline import ANSWER_S, FRESH_S, RETRY_S, apart
from .fast_reader import Incoming
from .faults import Code, Ignored, Lost, Nobody, Refused, has_no_folder, of_queue
from .names import id_of
from .reading import Reader

HAND_OUT_S = 0.25  # the server's timers may be so late with what has become visible or was given back


class Handed(msgspec.Struct, order=True, gc=False):
    """A message as the server handed it to us."""

    id: str
    subject: str
    ack: str
    data: bytes
    delivered: int  # how often the server has handed it to anybody
    sequence: int
    asked: float = 0.0  # by our own clock: it was handed out after that


class PriorityConsumer:
    """One consumer. Pulls of this process go through it one at a time; what comes lies in `buffer` until taken."""

    def __init__(self, connection: Connection, stream: str, name: str, lease: float) -> None:
        self.name = name
        self.lease = lease  # the consumer's ack_wait
        self.buffer: deque[Handed] = deque()
        self.lock = asyncio.Lock()
        self.standing: str = ""  # the pull that waits for the next message
        self.standing_since = self.standing_until = 0.0
        self.wake: Any = None  # called when something came and nobody was pulling
        self.broken = False  # the consumer is not on the server any more
        self.was_empty = False  # the last pull was given nothing
        self._connection = connection
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self._numbers = itertools.count(1)
        self._inbox = ""
        self._pull: asyncio.Future[None] | None = None
        self._pull_name = ""
        self._pulled_at = 0.0
        self._left = 0
        self._sorted_until = float("-inf")  # by our own clock

    async def open(self) -> None:
        self._inbox = self._connection.client.new_inbox()
        await self._connection.listen(f"{self._inbox}.*", self._heard)

    async def fetch(self, limit: int, ahead: int = 0) -> list[Handed]:
        """Up to so many messages that are there now, `ahead` into the buffer; Lost when the server does not answer."""
        async with holding(self.lock, self._connection.options.operation_timeout):
            if len(self.buffer) < limit:
                await self._ask(max(limit, ahead) - len(self.buffer))
                self.was_empty = not self.buffer
            if time.monotonic() > self._sorted_until and any(one.delivered > 1 for one in self.buffer):
                await self._sort()
            return [self.buffer.popleft() for _ in range(min(limit, len(self.buffer)))]

    async def _sort(self) -> None:
        """What was given back comes before everything else, but in the order in which that happened: see all of it.

        What is not taken of it is given back in the order of its ids, so this need not be done for every claim.
        """
        most = 2 * WINDOW  # beyond it the order is that of the returns
        while self.buffer and self.buffer[-1].delivered > 1 and (had := len(self.buffer)) < most:
            await self._ask(min(had, most - had))
            if len(self.buffer) == had:
                break
        self.buffer = deque(sorted(self.buffer))
        self._sorted_until = time.monotonic() + HAND_OUT_S

    async def _ask(self, count: int) -> None:
        await self._connection.connected(ANSWER_S)
        try:
            await self._connection.say(self.pull(count))
            assert self._pull is not None
            await asyncio.wait_for(self._pull, deadline.left(ANSWER_S))
        except TimeoutError:
            if not self.buffer:
                raise Lost("a pull was not answered") from None
        finally:
            self._pull = None

    def pull(self, count: int) -> bytes:
        """What asks for so many messages that are there now; `answered` then tells when they came."""
        self._pull = asyncio.get_running_loop().create_future()
        self._pull_name, self._left, self._pulled_at = f"n{next(self._numbers)}", count, time.monotonic()
        body = b'{"batch":%d,"no_wait":true}' % count
        return wire.frame(self._next, body, f"{self._inbox}.{self._pull_name}")

    def answered(self) -> asyncio.Future[None]:
        assert self._pull is not None
        return self._pull

    def pulled(self) -> None:
        """Nobody waits for the pull any more."""
        self._pull, self.was_empty = None, not self.buffer

    @property
    def is_idle(self) -> bool:
        """Whether nothing was there at the last look, and nobody looks just now."""
        return self.was_empty and not self.buffer and not self.broken and not self.lock.locked()

    async def stand(self, seconds: float) -> None:
        """Ask to be handed the next message, whenever it comes."""
        if self.standing and time.monotonic() < self.standing_until:
            return
        self.standing, self.standing_since = f"s{next(self._numbers)}", time.monotonic()
        self.standing_until = self.standing_since + seconds
        body = msgspec.json.encode({"batch": 1, "expires": int(seconds * 1e9)})
        await self._connection.send(self._next, body, f"{self._inbox}.{self.standing}")

    def _heard(self, message: Incoming) -> None:
        if not message.reply:
            self._ended(message)
            return
        self.buffer.append(handed(message, self._asked()))
        if self._pull is not None:
            self._left -= 1
            if self._left <= 0 and not self._pull.done():
                self._pull.set_result(None)
        elif self.wake is not None:
            self.standing = ""
            self.wake()

    def _asked(self) -> float:
        """When what comes now was asked for, at the earliest; a pull may be answered after it was given up."""
        waits = self._pull is None or bool(self.standing)
        return min(self.standing_since, self._pulled_at) if waits else self._pulled_at

    def _ended(self, message: Incoming) -> None:
        name, headers = message.subject[len(self._inbox) + 1 :], message.headers or {}
        status, words = headers.get("Status", ""), str(headers.get("Description", "")).lower()
        if status == "503" or (status == "409" and "deleted" in words):
            self.broken = True
        if name == self.standing:
            self.standing = ""
            is_lost = status == "409" and ("leadership" in words or "shutdown" in words)
            if (self.broken or is_lost) and self.wake is not None:
                self.wake()
        elif name == self._pull_name and self._pull is not None and not self._pull.done():
            self._pull.set_result(None)

    def dropped(self) -> None:
        """The connection broke: nothing that was asked will come, and what lies here may be another's by now."""
        self.buffer.clear()
        self.standing = ""
        if self._pull is not None and not self._pull.done():
            self._pull.set_exception(Lost("the connection broke"))

    async def put_back(self) -> None:
        """Give back at once what came and nobody took; the answer to the last means that a pull finds all of it."""
        try:
            while len(self.buffer) > 1:
                await self._connection.send(self.buffer.popleft().ack, b"-NAK")
            if self.buffer:
                await self._connection.request(self.buffer.popleft().ack, b"-NAK", within=ANSWER_S)
        except (Lost, Nobody, Unavailable):
            pass  # it is handed out once more when its time is over


class PriorityConsumers:
    """The consumers of one stream of tasks or of dead letters."""

    def __init__(self, connection: Connection, reader: Reader, stream: str, subject: str, queue: str) -> None:
        self.stream = stream
        self._connection = connection
        self._reader = reader
        self._subject = subject  # before the priority
        self._queue = queue
        self._consumers: dict[int, PriorityConsumer] = {}
        self._looked = float("-inf")
        self.bare_at = float("-inf")  # by our own clock: when the server last said that nothing waits or is held
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._starved: dict[int, int] = {}
        self.came: Callable[[], bool] = lambda: False  # whether somebody else waits for what comes
        self._resting: asyncio.Task[None] | None = None  # a task needs somebody who holds it
        connection.drops.append(self._dropped)

    def close(self) -> None:
        self._connection.drops.remove(self._dropped)
        self.wake_all()

    # ------------------------------------------------------------------ consumers

    async def ensure(self, priority: int, lease: float) -> bool:
        """A consumer of this priority is there; True: it is new to us."""
        if priority in self._consumers:
            return False
        await self.restore(priority, lease)
        return True

    def consumer(self, priority: int) -> PriorityConsumer:
        """One that is there."""
        return self._consumers[priority]

    async def restore(self, priority: int, lease: float) -> None:
        """A consumer whose consumer may have gone with its stream."""
        await self._make(priority, lease)
        await self._know(priority, lease)

    async def _make(self, priority: int, lease: float) -> None:
        # One pattern for everything: a server counts wrong what is purged of a consumer with several.
        name, subject = str(priority), f"{self._subject}{priority}.>"
        config = {
            "name": name,
            "durable_name": name,
            "filter_subject": subject,
            "ack_policy": "explicit",
            "ack_wait": int(lease * 1e9),
            "max_ack_pending": -1,
            "max_deliver": -1,  # attempts are counted by us: the server's limit would strand the message
        }
        body = {"stream_name": self.stream, "config": config}
        for left in range(TRIES, -1, -1):
            try:
                with of_queue(self._queue):
                    await self._connection.api(f"CONSUMER.CREATE.{self.stream}.{name}.{subject}", body)
                return
            except Refused as error:
                if not left:
                    raise
                if has_no_folder(error):
                    await self._delete(name)
            await asyncio.sleep(RETRY_S)  # one that is being deleted at the same moment cannot be made just yet

    async def _know(self, priority: int, lease: float) -> None:
        if priority in self._consumers:
            self._consumers[priority].lease = lease
            return
        consumer = PriorityConsumer(self._connection, self.stream, str(priority), lease)
        consumer.wake = self._wake
        self._consumers[priority] = consumer
        await consumer.open()

    async def set_lease(self, lease: float) -> None:
        """Another ack_wait for all consumers, so that the usual lease needs no word of its own."""
        await self.look()
        for priority, consumer in list(self._consumers.items()):
            if consumer.lease != lease:
                await self._make(priority, lease)
                consumer.lease = lease

    async def look(self) -> list[dict[str, Any]]:
        """Ask the server which consumers there are; what it says of each."""
        asked = time.monotonic()
        with of_queue(self._queue):
            infos = await self._reader.pages(f"CONSUMER.LIST.{self.stream}", "consumers", {})
        self._looked = time.monotonic()
        consumers = [info for info in infos if info["name"].isdigit()]
        if not any(info["num_pending"] or info["num_ack_pending"] for info in consumers):
            self.bare_at = asked
        for info in consumers:
            await self._know(int(info["name"]), info["config"]["ack_wait"] / 1e9)
        for gone in set(self._consumers) - {int(info["name"]) for info in consumers}:
            self._consumers[gone].broken = True
        return consumers

    def look_soon(self) -> None:
        """A consumer was made elsewhere."""
        self._looked = float("-inf")
        self.wake_all()

    async def _all(self) -> list[tuple[int, PriorityConsumer]]:
        if time.monotonic() - self._looked > FRESH_S:
            await self.look()
        for priority, consumer in list(self._consumers.items()):
            if consumer.broken:  # somebody deleted the consumer; what was being worked on is told by the records
                await self._make(priority, consumer.lease)
                consumer.broken = False
        return sorted(self._consumers.items(), key=lambda item: -item[0])

    # ------------------------------------------------------------------ pulling

    async def fetch(self, limit: int, ahead: int = 0) -> list[tuple[PriorityConsumer, Handed]]:
        """Up to so many messages, highest priority first; so many of each consumer are asked for `ahead`."""
        found: list[tuple[PriorityConsumer, Handed]] = []
        consumers = [consumer for _, consumer in await self._all()]
        while consumers and len(found) < limit:
            # Where nothing was before there is most likely nothing now: such consumers are asked in one go.
            empty = list(takewhile(lambda consumer: consumer.is_idle, consumers))
            if len(empty) > 1:
                asked = await self._probe(empty)
                given = [consumer for consumer in empty if consumer not in asked or consumer.buffer or consumer.broken]
                consumers = given + consumers[len(empty) :]
                if not consumers:
                    break
            consumer, consumers = consumers[0], consumers[1:]
            found += [(consumer, handed) for handed in await self._fetch(consumer, limit - len(found), ahead)]
        if found:
            self._starved.clear()
        return found

    async def _probe(self, consumers: Sequence[PriorityConsumer]) -> Sequence[PriorityConsumer]:
        """Ask each of these that nobody else asks for one message, all in one write; whom. Lost.

        What comes lies in their buffers.
        """
        await self._connection.connected(ANSWER_S)
        consumers = [consumer for consumer in consumers if consumer.is_idle]
        if not consumers:
            return consumers
        async with AsyncExitStack() as held:
            for consumer in consumers:
                await held.enter_async_context(consumer.lock)  # nobody holds it: nothing is waited for
            try:
                await self._connection.say(b"".join([consumer.pull(1) for consumer in consumers]))
                answers = [consumer.answered() for consumer in consumers]
                _, late = await asyncio.wait(answers, timeout=deadline.left(ANSWER_S))
            finally:
                for consumer in consumers:
                    consumer.pulled()
        for answer in answers:
            if answer.done() and not answer.cancelled() and (error := answer.exception()) is not None:
                raise error
        if late and not any(consumer.buffer for consumer in consumers):
            raise Lost("a pull was not answered")
        return consumers

    async def _fetch(self, consumer: PriorityConsumer, limit: int, ahead: int) -> list[Handed]:
        found = await consumer.fetch(limit, ahead)
        if consumer.broken and not found:
            await self._make(int(consumer.name), consumer.lease)
            consumer.broken = False
            found = await consumer.fetch(limit, ahead)
        return sorted(found)  # by id: what was given back stands at its place again

    async def stand(self, seconds: float) -> None:
        """Wait on every consumer at once."""
        for _, consumer in await self._all():
            await consumer.stand(seconds)

    async def stand_at_known(self, seconds: float) -> None:
        """The same without asking the server which there are; one that broke is left to the next claim."""
        for consumer in list(self._consumers.values()):
            await consumer.stand(seconds)

    async def wait(self, seconds: float) -> None:
        """Until a message came for one who waits, or the time is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait_for(waiter, deadline.left(seconds))
        except TimeoutError:
            pass
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        if not self.came():
            self._resting = apart(self.put_back())

    def wake_all(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def rest(self) -> None:
        """A claim is over: what it left behind is for the next one here, or for others."""
        if any(consumer.buffer for consumer in self._consumers.values()):
            if self._waiters:
                self._wake()
            else:
                await self.put_back()

    async def put_back(self) -> None:
        """Nobody here wants what lies in the buffers."""
        for consumer in list(self._consumers.values()):  # others may come while one is put back
            if consumer.buffer and not consumer.lock.locked():
                await consumer.put_back()

    def _dropped(self) -> None:
        for consumer in self._consumers.values():
            consumer.dropped()
        self.wake_all()

    async def looks_starved(self) -> bool:
        """Whether a consumer has a backlog and gave nothing; where that is so twice in a row, it is made anew."""
        is_any = False
        for info in await self.look():
            priority = int(info["name"])
            starved = info["num_pending"] > 0  # and whoever asks us this was just given nothing
            self._starved[priority] = self._starved.get(priority, 0) + 1 if starved else 0
            if self._starved[priority] >= 2:
                self._starved[priority] = 0
                await self._remake(priority)
            is_any |= starved
        return is_any

    async def _remake(self, priority: int) -> None:
        consumer = self._consumers[priority]
        await self._delete(consumer.name)
        consumer.dropped()
        await self._make(priority, consumer.lease)

    async def _delete(self, name: str) -> None:
        with Ignored(Code.CONSUMER_NOT_FOUND):
            await self._connection.api(f"CONSUMER.DELETE.{self.stream}.{name}")


def handed(message: Incoming, asked: float) -> Handed:
    """From a message of a pull; the reply subject tells how often it was handed out, and its place in the stream."""
    words = message.reply.split(".")
    at = 4 if len(words) == 9 else 6  # the longer form names domain and account first
    delivered, sequence = int(words[at]), int(words[at + 1])
    return Handed(id_of(message.subject), message.subject, message.reply, message.data, delivered, sequence, asked)


def nak(delay: float) -> bytes:
    """Give back, to be handed out again after a while; the server keeps the instant."""
    return b'-NAK {"delay":%d}' % int(min(delay, CENTURY_S) * 1e9) if delay > 0 else b"-NAK"
