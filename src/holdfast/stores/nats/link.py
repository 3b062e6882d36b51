"""The connection: requests with a deadline, a publishing window of our own, and the server's clock."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import nats

from ...config import StoreOptions
from ...errors import Unavailable
from ...escaping import logger_named
from . import faults, wire
from .address import Address
from .answers import read_answer, sequence
from .clock import Clock, Moment
from .faults import Lost, Nobody, Refused, TooLarge
from .features import Features, features_of
from .hearing import Ear, Handler, Word
from .wire import Post

_LOG = logger_named("holdfast.nats")
_WINDOW = 256  # publishes under way at once, where there are no batches
_BATCHES = 16  # batches under way at once; the server takes 50 of a stream
_ONE_TRY = 5.0  # seconds until an unanswered request is asked again
_RECOVERY = 10.0  # seconds after a reconnect in which a missing stream may just not be back yet
_REVIVE = 0.5  # seconds between two tries to connect anew
_CLOCK_GOOD = 2.0  # seconds after which the server's clock is asked for again
_JS = "$JS.API."


class Link:
    """One connection of one store, kept alive by the driver."""

    def __init__(self, address: Address, options: StoreOptions) -> None:
        self.options = options
        self.one_try = min(_ONE_TRY, options.operation_timeout)
        self.features = Features()
        self.client = Ear()
        self.drops: list[Callable[[], None]] = []  # called when the connection breaks
        self.closed = False
        self._address = address
        self._replies: dict[str, asyncio.Future[Word]] = {}
        self._streams: dict[str, Callable[[Word, str], None]] = {}  # given what follows the name
        self._numbers = itertools.count(1)
        self._inbox = ""
        self._heard: list[tuple[str, Handler]] = []  # subjects that this link listens to, on whatever connection
        self._revival: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._up_since = 0.0
        self._batches = asyncio.Semaphore(_BATCHES)
        self._window = asyncio.Semaphore(_WINDOW)
        self._clock = Clock(time.time() - time.monotonic())
        self._clock_asked = float("-inf")

    # ------------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        """Connect; our error within `connect_timeout`."""
        given = self._address.connect_options()
        deadline = time.monotonic() + self.options.connect_timeout
        while True:
            error = await self._connect(given, max(deadline - time.monotonic(), 0.001))
            if error is None:
                break
            # A server that refuses us may hang up before we have read why: asked again, it says so.
            if faults.is_final(error) or time.monotonic() + 0.1 > deadline:
                raise faults.opening(error, self.options.connect_timeout) from error
            await asyncio.sleep(0.1)
            self.client = Ear()
        await self._begin()

    async def _connect(self, given: dict[str, Any], within: float) -> BaseException | None:
        """One connection; why there is none."""
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        last: list[BaseException] = []

        async def heard(error: Exception) -> None:
            last.append(error)
            if faults.is_final(error) and not failed.done():
                failed.set_result(error)
            _LOG.debug("nats: %s", type(error).__name__)

        connecting: asyncio.Future[Any] = asyncio.ensure_future(self._driver_connects(heard, given))
        try:
            await asyncio.wait({connecting, failed}, timeout=within, return_when="FIRST_COMPLETED")
            if connecting.done() and connecting.exception() is None:
                return None
            final = [error for error in last if faults.is_final(error)]
            raised = [connecting.exception()] if connecting.done() else []
            found: list[BaseException | None] = [*final, *raised, *last[-1:], TimeoutError()]
            return found[0]
        finally:
            if not connecting.done():
                connecting.cancel()
                await asyncio.gather(connecting, return_exceptions=True)
                await self._end()

    async def _driver_connects(self, heard: Callable[[Exception], Any], given: dict[str, Any]) -> None:
        await self.client.connect(
            error_cb=heard,
            disconnected_cb=self._dropped,
            reconnected_cb=self._returned,
            closed_cb=self._given_up,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,  # type: ignore[arg-type]  # seconds; the driver's own default is a whole number
            connect_timeout=min(self.options.connect_timeout, 5.0),  # type: ignore[arg-type]  # as above
            ping_interval=10,
            pending_size=64 << 20,
            flush_timeout=10,
            skip_subject_validation=True,
            name="holdfast",
            **given,
        )

    async def _begin(self) -> None:
        self.features = features_of(self.client._server_info)
        self._inbox = self.client.new_inbox()
        await self.listen(f"{self._inbox}.>", self._answered)
        self._up.set()

    @property
    def max_payload(self) -> int:
        """Bytes of a message that the server takes, by the last word of the one we are connected to."""
        return int(self.client._server_info.get("max_payload", 1 << 20))

    async def listen(self, subject: str, handler: Handler) -> None:
        """Hear what comes on a subject, for good: also on a connection that takes the place of this one."""
        self._heard.append((subject, handler))
        await self.client.listen(subject, handler)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._fail_all()
            if self._revival is not None:
                self._revival.cancel()
            await self._end()

    async def _end(self) -> None:
        try:
            await asyncio.wait_for(self.client.close(), 5)
        except (TimeoutError, nats.errors.Error, OSError):
            pass

    async def _dropped(self) -> None:
        self._up.clear()
        self._fail_all()
        for drop in self.drops:
            drop()

    async def _returned(self) -> None:
        self._up_since = time.monotonic()
        self._clock.doubt_all()
        self._up.set()

    async def _given_up(self) -> None:
        """The driver closes itself for good after most errors of the server; this link does not."""
        if self._heard and not self.closed and (self._revival is None or self._revival.done()):
            await self._dropped()
            self._revival = asyncio.ensure_future(self._revive())

    async def _revive(self) -> None:
        """A new connection in place of the one that was closed; what that one had still to send is not sent again."""
        given = self._address.connect_options()
        while not self.closed:
            self.client = Ear()
            if await self._connect(given, self.options.connect_timeout) is None:
                for subject, handler in self._heard:
                    await self.client.listen(subject, handler)
                await self._returned()
                return
            await asyncio.sleep(_REVIVE)

    def _fail_all(self) -> None:
        for future in self._replies.values():
            if not future.done():
                future.set_exception(Lost("the connection broke"))

    def check_open(self) -> None:
        if self.closed:
            raise Unavailable("nats: the store is closed")

    @property
    def just_returned(self) -> bool:
        """Whether the server may still be recovering its streams."""
        return time.monotonic() - self._up_since < _RECOVERY

    # ------------------------------------------------------------------ asking

    def _answered(self, message: Word) -> None:
        name, _, place = message.subject[len(self._inbox) + 1 :].partition(".")
        if (stream := self._streams.get(name)) is not None:
            stream(message, place)
        elif (future := self._replies.get(name)) is not None and not future.done():
            future.set_result(message)

    async def connected(self, within: float) -> None:
        """Wait until there is a connection; Lost."""
        self.check_open()
        if self.client.is_closed:
            await self._given_up()
        if not self._up.is_set():
            try:
                await asyncio.wait_for(self._up.wait(), within)
            except TimeoutError:
                raise Lost("no connection") from None

    async def send(self, subject: str, data: bytes = b"", reply: str = "") -> None:
        """Publish without an answer."""
        await wire.send(self.client, wire.frame(subject, data, reply))

    def _must_fit(self, size: int) -> None:
        """More would end the connection: it is refused here."""
        if size > (limit := self.max_payload):
            raise TooLarge(size, limit)

    async def _ask(self, frames: Callable[[str], bytes], within: float) -> Word:
        await self.connected(within)
        name = str(next(self._numbers))
        future: asyncio.Future[Word] = asyncio.get_running_loop().create_future()
        self._replies[name] = future
        try:
            await wire.send(self.client, frames(f"{self._inbox}.{name}"))
            message = await asyncio.wait_for(future, within)
        except TimeoutError:
            raise Lost("no answer in time") from None
        finally:
            del self._replies[name]
        if message.headers and message.headers.get("Status") == "503":
            raise Nobody
        return message

    async def request(self, subject: str, data: bytes = b"", *, headers: str = "", within: float | None = None) -> Word:
        """One request; Lost, Nobody, TooLarge."""
        self._must_fit(len(data) + len(headers))
        return await self._ask(lambda reply: wire.frame(subject, data, reply, headers), within or self.one_try)

    async def api(self, path: str, body: object = None) -> dict[str, Any]:
        """A request of JetStream's API that may be repeated; Refused, Nobody, Lost after `operation_timeout`."""
        deadline = time.monotonic() + self.options.operation_timeout
        data = b"" if body is None else msgspec.json.encode(body)
        while True:
            sent = time.monotonic()
            try:
                reply = await self.request(_JS + path, data, within=min(_ONE_TRY, max(deadline - sent, 0.001)))
                answer: dict[str, Any] = msgspec.json.decode(reply.data)
                if "error" in answer:
                    raise faults.refusal(answer["error"])
                self._learn(answer.get("ts"), sent)
                return answer
            except (Lost, Nobody, Refused) as error:
                again = isinstance(error, Lost) or self._may_recover(error)
                if not again or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(0.05)

    def _may_recover(self, error: Exception) -> bool:
        if isinstance(error, Refused):
            return error.code in (10008, 10009)  # the cluster has no leader just now
        return self.just_returned

    async def collect(self, path: str, body: object) -> list[Word]:
        """A request with many answers and an end, such as a batch of direct gets; Lost, Nobody, Refused."""
        data = msgspec.json.encode(body)
        self._must_fit(len(data))
        await self.connected(self.one_try)
        name, found = str(next(self._numbers)), list[Word]()
        end: asyncio.Future[Word] = asyncio.get_running_loop().create_future()

        def heard(message: Word, _place: str) -> None:
            if (message.headers or {}).get("Status") is not None:
                if not end.done():
                    end.set_result(message)
            else:
                found.append(message)

        self._streams[name], self._replies[name] = heard, end
        try:
            await wire.send(self.client, wire.frame(_JS + path, data, f"{self._inbox}.{name}"))
            last = await asyncio.wait_for(end, 2 * self.one_try)
        except TimeoutError:
            raise Lost("no answer in time") from None
        finally:
            del self._streams[name], self._replies[name]
        status = (last.headers or {}).get("Status")
        if status == "503":
            raise Nobody
        if status not in ("204", "404"):
            raise Refused(int(status or 0), str(last.headers))
        return found

    # ------------------------------------------------------------------ storing

    async def store(self, posts: Sequence[Post]) -> list[int]:
        """Store messages in one stream, all or none where the server can; their sequences.

        Refused, Lost, Nobody, TooLarge.
        """
        self._must_fit(max((wire.size(post) for post in posts), default=0))
        if len(posts) < 2:
            return [await self._store_one(post) for post in posts]
        if not self.features.batches:
            return list(await asyncio.gather(*[self._store_one(post) for post in posts]))
        # Parts are sent one after the other without waiting: one connection keeps their order.
        calls = [self._store_batch(part) if len(part) > 1 else self._store_ones(part) for part in wire.parts(posts)]
        return [one for stored in await asyncio.gather(*calls) for one in stored]

    async def _store_ones(self, posts: Sequence[Post]) -> list[int]:
        return [await self._store_one(post) for post in posts]

    async def store_each(self, posts: Sequence[Post]) -> list[int | Exception]:
        """Store messages, each for itself, in one write: sequences, or why not (Refused, Lost, Nobody); TooLarge."""
        self._must_fit(max((wire.size(post) for post in posts), default=0))
        found: list[int | Exception] = []
        for start in range(0, len(posts), _WINDOW):
            found += await self._store_window(posts[start : start + _WINDOW])
        return found

    async def _store_window(self, posts: Sequence[Post]) -> list[int | Exception]:
        try:
            await self.connected(self.one_try)
        except Lost as lost:
            return [lost] * len(posts)
        answers: list[int | Exception | None] = [None] * len(posts)
        name, left = str(next(self._numbers)), len(posts)
        end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def heard(message: Word, place: str) -> None:
            nonlocal left
            if answers[number := int(place)] is None:
                answers[number] = read_answer(message)
                left -= 1
                if left == 0 and not end.done():
                    end.set_result(None)

        self._streams[name], self._replies[name] = heard, end
        try:
            await wire.send(self.client, wire.frames(posts, f"{self._inbox}.{name}"))
            await asyncio.wait_for(end, self.one_try)
        except (TimeoutError, Lost):
            pass
        finally:
            del self._streams[name], self._replies[name]
        return [Lost("no answer in time") if answer is None else answer for answer in answers]

    async def _store_one(self, post: Post) -> int:
        async with self._window:
            reply = await self._ask(lambda to: wire.frame(post.subject, post.data, to, wire.lines(post)), self.one_try)
        return sequence(reply)

    async def _store_batch(self, posts: Sequence[Post]) -> list[int]:
        name = os.urandom(8).hex()
        async with self._batches:
            last = sequence(await self._ask(lambda to: wire.batch(posts, name, to), 2 * self.one_try))
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
        if min(self._clock.age(at), at - self._clock_asked) < _CLOCK_GOOD:
            return False
        self._clock_asked = at
        return True
