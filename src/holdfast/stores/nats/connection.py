"""The connection: requests with a deadline, a publishing window of our own, and the server's clock."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from ...config import StoreOptions
from ...errors import Unavailable
from . import connecting, deadline, faults, wire
from .address import Address
from .answers import read_answer, read_there, sequence
from .clock import Clock, Moment
from .connecting import Attempt
from .deadline import apart, holding
from .fast_reader import Ear, Handler, Word
from .faults import Denied, Lost, Nobody, Refused, TooLarge
from .features import Features, features_of
from .wire import Post

_WINDOW = 256  # publishes under way at once, where there are no batches
_BATCHES = 16  # batches under way at once; the server takes 50 of a stream
_ONE_TRY = 5.0  # seconds until an unanswered request is asked again
_RECOVERY = 10.0  # seconds after a reconnect in which a missing stream may just not be back yet
_REVIVE = 0.5  # seconds between two tries to connect anew
_CLOCK_GOOD = 2.0  # seconds after which the server's clock is asked for again
_JS = "$JS.API."
T = TypeVar("T")


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
        self._replies: dict[str, asyncio.Future[Any]] = {}
        self._asked: dict[str, Iterable[str]] = {}  # the subjects that an answer is awaited from
        self._deaf: Denied | None = None  # we may not hear what we must: no answer will come
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
        """Connect; our error within `connect_timeout`, at once where waiting cannot help."""
        given = self._address.connect_options()
        until = deadline.until(self.options.connect_timeout)
        while (attempt := await self._connect(given, max(until - time.monotonic(), 0.001))) is not None:
            # A server that refuses us may hang up before we have read why: asked again, it says so.
            if attempt.is_final.is_set() or time.monotonic() + 0.1 > until:
                raise faults.opening(attempt.cause, self._address.servers, self.options.connect_timeout) from None
            await asyncio.sleep(0.1)
            self.client = Ear()
        await self._begin()

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
        await wire.wait_for_room(self.client, self.one_try)
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
        """The driver closes itself for good after most errors of the server; this link does not."""
        if self._heard and not self.closed and (self._revival is None or self._revival.done()):
            await self._dropped()
            self._revival = apart(self._revive())

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
        await wire.send(self.client, frames, self.one_try)

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

    async def _ask(self, subjects: Iterable[str], frames: Callable[[str], bytes], within: float) -> Word:
        until = time.monotonic() + within
        await self.connected(within)
        name = str(next(self._numbers))
        future = self._expect(name, subjects)
        try:
            await wire.send(self.client, frames(f"{self._inbox}.{name}"), within)
            message: Word = await deadline.answer(future, until)
        finally:
            self._expected(name)
        if message.headers and message.headers.get("Status") == "503":
            raise Nobody
        return message

    async def request(self, subject: str, data: bytes = b"", *, headers: str = "", within: float | None = None) -> Word:
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
                reply = await self.request(_JS + path, data, within=min(_ONE_TRY, max(until - sent, 0.001)))
                answer: dict[str, Any] = msgspec.json.decode(reply.data)
                if "error" in answer:
                    raise faults.refusal(answer["error"])
                self._learn(answer.get("ts"), sent)
                return answer
            except (Lost, Nobody, Refused) as error:
                again = isinstance(error, Lost) or self._may_recover(error)
                if not again or time.monotonic() >= until:
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
        end = self._expect(name, (_JS + path,))

        def heard(message: Word, _place: str) -> None:
            if (message.headers or {}).get("Status") is not None:
                if not end.done():
                    end.set_result(message)
            else:
                found.append(message)

        self._streams[name] = heard
        try:
            await wire.send(self.client, wire.frame(_JS + path, data, f"{self._inbox}.{name}"), self.one_try)
            last: Word = await asyncio.wait_for(end, deadline.left(2 * self.one_try))
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
        if len(posts) < 2:
            return [await self._store_one(post) for post in posts]
        # Parts are sent one after the other without waiting: one connection keeps their order.
        parts = wire.parts(posts)
        calls = [self._store_part(part, place) for place, part in enumerate(parts, 1)]
        return [one for stored in await asyncio.gather(*calls) for one in stored]

    async def _store_part(self, posts: Sequence[Post], place: int) -> list[int]:
        """The server takes one part after the other, and each has its time."""
        stored = await (self._store_batch(posts, place) if len(posts) > 1 else self._store_ones(posts))
        deadline.renew()
        return stored

    async def _store_ones(self, posts: Sequence[Post]) -> list[int]:
        return [await self._store_one(post) for post in posts]

    async def store_each(self, posts: Sequence[Post]) -> list[int | Exception]:
        """Store messages, each for itself, in one write: sequences, or why not (Refused, Lost, Nobody); TooLarge."""
        self._must_fit(max((wire.size(post) for post in posts), default=0))
        found: list[int | Exception] = []
        for start in range(0, len(posts), _WINDOW):
            part = posts[start : start + _WINDOW]
            found += await self._each(part, read_answer)
        return found

    async def are_there(self, stream: str, sequences: Sequence[int]) -> list[bool | Exception]:
        """Whether messages are stored, by their leader, in one write."""
        subject, found = f"{_JS}STREAM.MSG.GET.{stream}", list[bool | Exception]()
        for start in range(0, len(sequences), _WINDOW):
            part = [Post(subject, b'{"seq":%d}' % one) for one in sequences[start : start + _WINDOW]]
            found += await self._each(part, read_there)
        return found

    async def delete_each(self, stream: str, sequences: Sequence[int]) -> list[bool | Exception]:
        """Remove stored messages, many in one write: False for one that is not there, or why not."""
        posts, found = [_removal(stream, one) for one in sequences], list[bool | Exception]()
        for start in range(0, len(posts), _WINDOW):
            found += await self._each(posts[start : start + _WINDOW], read_there)
        return found

    async def remove_each(self, stream: str, places: Sequence[int | str]) -> bool:
        """Remove stored messages by their sequences or subjects, in one write; whether the last was answered.

        Only that one is: answers to all cost half as much again. Who has to know what went looks.
        """
        *rest, last = [_removal(stream, one) for one in places]
        try:
            await self.connected(self.one_try)
            await self.say(b"".join([wire.frame(post.subject, post.data) for post in rest]))
        except Lost:
            return False
        [answer] = await self._each([last], read_there)
        return isinstance(answer, bool)

    async def _each(self, posts: Sequence[Post], read: Callable[[Word], T | Exception]) -> list[T | Exception]:
        """Requests in one write, answered under their places; what came of each."""
        answers: list[T | Exception | None] = [None] * len(posts)
        try:
            await self.connected(self.one_try)
        except Lost as lost:
            return [lost] * len(answers)
        name, left = str(next(self._numbers)), len(answers)
        end = self._expect(name, [post.subject for post in posts])

        def heard(message: Word, place: str) -> None:
            nonlocal left
            if answers[number := int(place)] is None:
                answers[number] = read(message)
                left -= 1
                if left == 0 and not end.done():
                    end.set_result(None)

        self._streams[name] = heard
        try:
            await wire.send(self.client, wire.frames(posts, f"{self._inbox}.{name}"), self.one_try)
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
        if min(self._clock.age(at), at - self._clock_asked) < _CLOCK_GOOD:
            return False
        self._clock_asked = at
        return True


def _removal(stream: str, place: int | str) -> Post:
    """The request that removes the message of a sequence, or all of a subject."""
    if isinstance(place, int):
        return Post(f"{_JS}STREAM.MSG.DELETE.{stream}", b'{"seq":%d,"no_erase":true}' % place)
    return Post(f"{_JS}STREAM.PURGE.{stream}", b'{"filter":"%b"}' % place.encode())
