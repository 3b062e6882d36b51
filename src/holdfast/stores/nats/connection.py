"""The connection: requests with a deadline, a publishing window of our own, and the server's clock."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from ...config import StoreOptions
from ...errors import Unavailable
from . import connecting, deadline, faults, wire
from .address import Address
from .clock import Clock, Moment
from .connecting import Attempt
from .deadline import FRESH_S, POLL_S, RECOVERY_S, RETRY_S, TRY_S, apart
from .fast_reader import FastClient, Handler, Incoming
from .faults import Code, Denied, Lost, Nobody, Refused, TooLarge
from .sums import Sums
from .wire import API, Post, read_answer, read_there, removal, sequence

WINDOW = 256  # requests in one write, messages in one page: with more the server is busy all the time as well
BATCHES = 16  # atomic batches under way at once: the server takes 50 of a stream, of all clients together
PENDING_BYTES = 64 << 20  # may wait to be sent: memory that a server which reads nothing can cost us
TRIES = 5  # of what fails for a moment only, when asked for at the wrong one
T = TypeVar("T")


class Connection:
    """One connection of one store, kept alive by the driver."""

    def __init__(self, address: Address, options: StoreOptions) -> None:
        self.options = options
        self.one_try = min(TRY_S, options.operation_timeout)
        self.version = "?"  # of the server
        self.sums = Sums()
        self.client = FastClient()
        self.drops: list[Callable[[], None]] = []  # called when the connection breaks
        self.closed = False
        self._address = address
        self._replies: dict[str, asyncio.Future[Any]] = {}
        self._asked: dict[str, Iterable[str]] = {}  # the subjects that an answer is awaited from
        self._deaf: Denied | None = None  # we may not hear what we must: no answer will come
        self._streams: dict[str, Callable[[Incoming, str], None]] = {}  # given what follows the name
        self._numbers = itertools.count(1)
        self._inbox = ""
        self._heard: list[tuple[str, Handler]] = []  # subjects that this connection listens to, on whatever connection
        self._revival: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._up_since = 0.0
        self._batches = asyncio.Semaphore(BATCHES)
        self._window = asyncio.Semaphore(WINDOW)
        self._clock = Clock(time.time() - time.monotonic())
        self._clock_asked = float("-inf")

    # ------------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        """Connect; our error within `connect_timeout`, at once where waiting cannot help."""
        given = self._address.connect_options()
        until = deadline.until(self.options.connect_timeout)
        while (attempt := await self._connect(given, max(until - time.monotonic(), 0.001))) is not None:
            # A server that refuses us may hang up before we have read why: asked again, it says so.
            if attempt.is_final.is_set() or time.monotonic() + RETRY_S > until:
                raise faults.opening(attempt.cause, self._address.servers, self.options.connect_timeout) from None
            await asyncio.sleep(RETRY_S)
            self.client = FastClient()
        self.version = str(self.client._server_info.get("version", "?"))
        self._inbox = self.client.new_inbox()
        await self.listen(f"{self._inbox}.>", self._answered)
        self._up.set()

    async def _connect(self, given: dict[str, Any], within: float) -> Attempt | None:
        return await connecting.connect(
            self.client,
            given,
            self.options,
            within,
            said=self._said,
            dropped=self._dropped,
            returned=self._returned,
            given_up=self._given_up,
        )

    def is_at_least(self, major: int, minor: int) -> bool:
        """Whether the server has this version or a newer one."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return found is not None and (int(found[1]), int(found[2])) >= (major, minor)

    @property
    def max_payload(self) -> int:
        """Bytes of a message that the server takes, by the last word of the one we are connected to."""
        return int(self.client._server_info.get("max_payload", 1 << 20))

    async def listen(self, subject: str, handler: Handler) -> None:
        """Hear what comes on a subject, for good: also on a connection that takes the place of this one."""
        self._heard.append((subject, handler))
        await self._wait_for_room(self.one_try)
        await self.client.listen(subject, handler)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._fail_all()
            if self._revival is not None:
                self._revival.cancel()
            await connecting.end(self.client, self.options.operation_timeout)

    def _said(self, error: Exception) -> None:
        """Of the driver's words one is for us: what this user may not do. Who waits for that hears it at once."""
        if (denied := faults.denial(error)) is None:
            return
        if denied.hearing:
            self._deaf = denied
        for name, future in list(self._replies.items()):
            if not future.done() and (denied.hearing or denied.is_of(self._asked.get(name, ()))):
                future.set_exception(denied)

    async def _dropped(self) -> None:
        self._up.clear()
        self._fail_all()
        for drop in self.drops:
            drop()

    async def _returned(self) -> None:
        self._up_since = time.monotonic()
        self._deaf = None  # rights may have changed
        self._clock.doubt_all()
        self._up.set()

    async def _given_up(self) -> None:
        """The driver closes itself for good after most errors of the server; this connection does not."""
        if self._heard and not self.closed and (self._revival is None or self._revival.done()):
            await self._dropped()
            self._revival = apart(self._revive())

    async def _revive(self) -> None:
        """A new connection in place of the one that was closed; what that one had still to send is not sent again."""
        given = self._address.connect_options()
        while not self.closed:
            self.client = FastClient()
            if await self._connect(given, self.options.connect_timeout) is None:
                for subject, handler in self._heard:
                    await self.client.listen(subject, handler)
                await self._returned()
                return
            await asyncio.sleep(FRESH_S)  # it may be our credentials that are refused, for good

    def _fail_all(self) -> None:
        for future in self._replies.values():
            if not future.done():
                future.set_exception(Lost("the connection broke"))

    def check_open(self) -> None:
        if self.closed:
            raise Unavailable("nats: the store is closed")

    # ------------------------------------------------------------------ asking

    def _answered(self, message: Incoming) -> None:
        name, _, place = message.subject[len(self._inbox) + 1 :].partition(".")
        if (stream := self._streams.get(name)) is not None:
            stream(message, place)
        elif (future := self._replies.get(name)) is not None and not future.done():
            future.set_result(message)

    async def connected(self, within: float) -> None:
        """Wait until there is a connection; Lost, Denied."""
        self.check_open()
        if self.client.is_closed:
            await self._given_up()
        if not self._up.is_set():
            try:
                await asyncio.wait_for(self._up.wait(), deadline.left(within))
            except TimeoutError:
                raise Lost("no connection") from None
        if self._deaf is not None:
            raise self._deaf

    async def send(self, subject: str, data: bytes = b"", reply: str = "") -> None:
        """Publish without an answer."""
        await self.say(wire.frame(subject, data, reply))

    async def say(self, frames: bytes) -> None:
        """The same for ready frames; Lost."""
        await self._send(frames, self.one_try)

    async def _send(self, data: bytes, within: float) -> None:
        """Hand frames to the driver's own buffer, in their order with everything else it sends; Lost."""
        await self._wait_for_room(within)
        client: Any = self.client  # its own parts
        client.stats["out_bytes"] += len(data)
        await client._send_command(data)
        await client._flush_pending()

    async def _wait_for_room(self, within: float) -> None:
        """The driver waits without an end for a server that reads nothing: before it would, we do with one; Lost."""
        client, until = self.client, 0.0
        if client._flush_queue is None:
            raise Lost("no connection")
        while client._flush_queue.full() or client._pending_data_size > PENDING_BYTES:
            until = until or deadline.until(within)
            if time.monotonic() >= until:
                raise Lost("the server reads nothing")
            await asyncio.sleep(POLL_S)

    def _expect(self, name: str, subjects: Iterable[str]) -> asyncio.Future[Any]:
        """An answer under this name, to what is sent to these subjects; `_expected` it at the end."""
        self._replies[name] = future = asyncio.get_running_loop().create_future()
        self._asked[name] = subjects
        return future

    def _expected(self, name: str) -> None:
        del self._replies[name], self._asked[name]
        self._streams.pop(name, None)

    def _must_fit(self, size: int) -> None:
        """More would end the connection: it is refused here."""
        if size > (limit := self.max_payload):
            raise TooLarge(size, limit)

    async def _ask(self, subjects: Iterable[str], frames: Callable[[str], bytes], within: float) -> Incoming:
        until = time.monotonic() + within
        await self.connected(within)
        name = str(next(self._numbers))
        future = self._expect(name, subjects)
        try:
            await self._send(frames(f"{self._inbox}.{name}"), within)
            message: Incoming = await answer(future, until)
        finally:
            self._expected(name)
        if message.headers and message.headers.get("Status") == "503":
            raise Nobody
        return message

    async def request(
        self, subject: str, data: bytes = b"", *, headers: str = "", within: float | None = None
    ) -> Incoming:
        """One request; Lost, Nobody, TooLarge."""
        self._must_fit(len(data) + len(headers))
        frames = partial(wire.frame, subject, data, headers=headers)
        return await self._ask((subject,), frames, within or self.one_try)

    async def api(self, path: str, body: object = None) -> dict[str, Any]:
        """A request of JetStream's API that may be repeated; Refused, Nobody, Lost after `operation_timeout`."""
        until = deadline.until(self.options.operation_timeout)
        data = b"" if body is None else msgspec.json.encode(body)
        while True:
            sent = time.monotonic()
            try:
                reply = await self.request(API + path, data, within=min(TRY_S, max(until - sent, 0.001)))
                answer: dict[str, Any] = msgspec.json.decode(reply.data)
                if "error" in answer:
                    raise faults.refusal(answer["error"])
                self._learn(answer.get("ts"), sent)
                return answer
            except (Lost, Nobody, Refused) as error:
                again = isinstance(error, Lost) or self._may_recover(error)
                if not again or time.monotonic() >= until:
                    raise
            await asyncio.sleep(RETRY_S)

    def _may_recover(self, error: Exception) -> bool:
        if isinstance(error, Refused):
            return error.code in (Code.CLUSTER_NOT_READY, Code.NOT_THE_LEADER)
        return time.monotonic() - self._up_since < RECOVERY_S

    async def collect(self, path: str, body: object) -> list[Incoming]:
        """A request with many answers and an end, such as a batch of direct gets; Lost, Nobody, Refused."""
        until = deadline.until(self.options.operation_timeout)
        while True:
            try:
                return await self._collect(path, body)
            except Nobody as error:  # a server that has just started does not serve its streams yet
                if not self._may_recover(error) or time.monotonic() >= until:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _collect(self, path: str, body: object) -> list[Incoming]:
        data = msgspec.json.encode(body)
        self._must_fit(len(data))
        await self.connected(self.one_try)
        name, found = str(next(self._numbers)), list[Incoming]()
        end = self._expect(name, (API + path,))

        def heard(message: Incoming, _place: str) -> None:
            if (message.headers or {}).get("Status") is not None:
                if not end.done():
                    end.set_result(message)
            else:
                found.append(message)

        self._streams[name] = heard
        try:
            await self._send(wire.frame(API + path, data, f"{self._inbox}.{name}"), self.one_try)
            last: Incoming = await asyncio.wait_for(end, deadline.left(2 * self.one_try))
        except TimeoutError:
            raise Lost("no answer in time") from None
        finally:
            self._expected(name)
        status = (last.headers or {}).get("Status")
        if status == "503":
            raise Nobody
        if status not in ("204", "404"):
            raise Refused(int(status or 0), str(last.headers))
        return found

    # ------------------------------------------------------------------ storing

    async def store(self, posts: Sequence[Post]) -> list[int]:
        """Store messages in one stream, all of a batch or none; their sequences.

        Refused, Lost, Nobody, TooLarge.
        """
        self._must_fit(max((wire.size(post) for post in posts), default=0))
        posts = self.sums.posts(posts)
        if len(posts) < 2:
            return [await self._store_one(post) for post in posts]
        # Parts are sent one after the other without waiting: one connection keeps their order.
        parts = wire.parts(posts)
        calls = [self._store_part(part, place) for place, part in enumerate(parts, 1)]
        return [one for stored in await asyncio.gather(*calls) for one in stored]

    async def _store_part(self, posts: Sequence[Post], place: int) -> list[int]:
        """The server takes one part after the other, and each has its time."""
        stored = [await self._store_one(posts[0])] if len(posts) == 1 else await self._store_batch(posts, place)
        deadline.renew()
        return stored

    async def store_each(self, posts: Sequence[Post]) -> list[int | Exception]:
        """Store messages, each for itself, in one write: sequences, or why not (Refused, Lost, Nobody); TooLarge."""
        self._must_fit(max((wire.size(post) for post in posts), default=0))
        return await self._each(self.sums.posts(posts), read_answer)

    async def are_there(self, stream: str, sequences: Sequence[int]) -> list[bool | Exception]:
        """Whether messages are stored, by their leader, in one write."""
        subject = f"{API}STREAM.MSG.GET.{stream}"
        return await self._each([Post(subject, b'{"seq":%d}' % one) for one in sequences], read_there)

    async def delete_each(self, stream: str, sequences: Sequence[int]) -> list[bool | Exception]:
        """Remove stored messages, many in one write: False for one that is not there, or why not."""
        return await self._each([removal(stream, one) for one in sequences], read_there)

    async def remove_each(self, stream: str, places: Sequence[int | str]) -> bool:
        """Remove stored messages by their sequences or subjects, in one write; whether the last was answered.

        Only that one is: answers to all cost half as much again. Who has to know what went looks.
        """
        *rest, last = [removal(stream, one) for one in places]
        try:
            await self.connected(self.one_try)
            await self.say(b"".join([wire.frame(post.subject, post.data) for post in rest]))
        except Lost:
            return False
        [answer] = await self._each([last], read_there)
        return isinstance(answer, bool)

    async def _each(self, posts: Sequence[Post], read: Callable[[Incoming], T | Exception]) -> list[T | Exception]:
        """Requests that are answered one by one, a window and the word before it in one write; what came of each."""
        windows = [posts[start : start + WINDOW + 1] for start in range(0, len(posts), WINDOW + 1)]
        return [answer for part in windows for answer in await self._window_of(part, read)]

    async def _window_of(self, posts: Sequence[Post], read: Callable[[Incoming], T | Exception]) -> list[T | Exception]:
        """Requests in one write, answered under their places."""
        answers: list[T | Exception | None] = [None] * len(posts)
        try:
            await self.connected(self.one_try)
        except Lost as lost:
            return [lost] * len(answers)
        name, left = str(next(self._numbers)), len(answers)
        end = self._expect(name, [post.subject for post in posts])

        def heard(message: Incoming, place: str) -> None:
            nonlocal left
            if answers[number := int(place)] is None:
                answers[number] = read(message)
                left -= 1
                if left == 0 and not end.done():
                    end.set_result(None)

        self._streams[name] = heard
        try:
            await self._send(wire.frames(posts, f"{self._inbox}.{name}"), self.one_try)
            await asyncio.wait_for(end, deadline.left(self.one_try))
        except (TimeoutError, Lost):
            pass
        finally:
            self._expected(name)
        return [Lost("no answer in time") if answer is None else answer for answer in answers]

    async def _store_one(self, post: Post) -> int:
        def frames(reply: str) -> bytes:
            return wire.frame(post.subject, post.data, reply, wire.lines(post))

        async with holding(self._window, self.one_try):
            return sequence(await self._ask((post.subject,), frames, self.one_try))

    async def _store_batch(self, posts: Sequence[Post], place: int) -> list[int]:
        name, within = os.urandom(8).hex(), 2 * self.one_try * place
        subjects = [post.subject for post in posts]
        async with holding(self._batches, within):
            last = sequence(await self._ask(subjects, lambda to: wire.batch(posts, name, to), within))
        return list(range(last - len(posts) + 1, last + 1))

    # ------------------------------------------------------------------ time

    def now(self) -> float:
        """The server's time, as well as we know it."""
        return self.moment().now

    def moment(self) -> Moment:
        """The same with its bounds: for leases."""
        return self._clock.moment(time.monotonic())

    def _learn(self, stamp: str | None, sent: float) -> None:
        if stamp is not None:
            self._clock.hear(msgspec.convert(stamp, datetime).timestamp(), sent, time.monotonic())

    def must_ask_clock(self) -> bool:
        """Whether the server should be heard again; of all who ask at once, one is told so."""
        at = time.monotonic()
        if min(self._clock.age(at), at - self._clock_asked) < FRESH_S:
            return False
        self._clock_asked = at
        return True


async def answer(future: asyncio.Future[T], until: float) -> T:
    """What comes by then, and by the call's end, which other answers may move meanwhile; Lost."""
    while not future.done():
        seconds = deadline.left(until - time.monotonic())
        if seconds <= 0:
            raise Lost("no answer in time")
        await asyncio.wait((future,), timeout=seconds)
    return future.result()


@asynccontextmanager
async def holding(lock: asyncio.Lock | asyncio.Semaphore, most: float) -> AsyncIterator[None]:
    """`async with lock`, but no wait for it beyond the call's end; Lost."""
    try:
        async with asyncio.timeout(deadline.left(most)):
            await lock.acquire()
    except TimeoutError:
        raise Lost("no answer in time") from None
    try:
        yield
    finally:
        lock.release()
