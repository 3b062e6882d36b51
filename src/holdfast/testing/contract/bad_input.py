"""Bad input: refused before any I/O, with a sentence; nothing is half done."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from ...broker import connect
from ...errors import CodecError, ConfigError, HoldfastError, QueueFull
from .base import LONG_S, SHORT_S, StoreContract, refused

NAMES: list[Any] = ["", "a/b", "..", "../up", ".hidden", "a b", "a'b", 'a"b', "a\0b", "x" * 200, "🙂", "a\n", None, 5]
GOOD_NAMES = ["a", "A.b-c_9", "0", "x" * 128, "select", "CON", "a..b"]
ENQUEUES: list[dict[str, Any]] = [
    {"delay": -1},
    {"delay": float("nan")},
    {"delay": float("inf")},
    {"delay": "5"},
    {"at": "tomorrow"},
    {"at": datetime(2030, 1, 1)},  # without a time zone
    {"headers": {"k": 5}},
    {"headers": {"k": "\ud800"}},
    {"headers": ["k"]},
    {"dedup_key": ""},
    {"dedup_key": 5},
    {"max_attempts": 0},
    {"max_attempts": 1.5},
]
DEQUEUES: list[dict[str, Any]] = [
    {"limit": 0},
    {"limit": -1},
    {"limit": 1.5},
    {"limit": 1, "lease": 0},
    {"limit": 1, "lease": -1},
    {"limit": 1, "wait": -1},
]
URLS = ["", "not a url", "ftp://host/path", "files:///tmp/x", "file://host/path", "memory://?pol_interval=1"]


class BadInput(StoreContract):
    """Whatever is wrong is said, in our own errors."""

    async def test_bad_queue_names_are_refused(self) -> None:
        for name in NAMES:
            for call in (self.broker.queue, self.broker.create_queue, self.broker.delete_queue):
                with refused(name, ConfigError):
                    await call(name)
        assert await self.broker.queues() == []

    async def test_good_queue_names_stay_apart(self) -> None:
        for name in GOOD_NAMES:
            await (await self.queue(name)).enqueue(name)
        assert sorted(info.name for info in await self.broker.queues()) == sorted(GOOD_NAMES)
        assert [(await self.take(await self.queue(name))).value for name in GOOD_NAMES] == GOOD_NAMES

    async def test_bad_terms_of_a_message_are_refused(self) -> None:
        queue = await self.queue()
        for terms in ENQUEUES:
            with refused(terms, ConfigError):
                await queue.enqueue(1, **terms)
        assert (await queue.stats()).total == 0

    async def test_bad_terms_of_a_claim_are_refused(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        for terms in DEQUEUES:
            with refused(terms, ConfigError):
                await queue.dequeue_many(**terms)
        assert (await queue.stats()).pending == 1

    async def test_bad_terms_of_a_settle_are_refused_and_the_lease_stays(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        delivery = await self.take(queue)
        calls = [delivery.extend(0), delivery.release(-1), delivery.fail("x", retry_in=-1), delivery.fail(5)]  # type: ignore[arg-type]  # the bad input
        for call in calls:
            with pytest.raises(ConfigError):
                await call
        with pytest.raises(CodecError):
            await delivery.complete(object())
        await delivery.complete()

    @pytest.mark.parametrize("view", ["dead", "archive"])
    async def test_what_is_no_id_is_refused(self, view: str) -> None:
        letters = getattr(await self.queue(), view)
        for call in (letters.list(after=5), letters.delete([5]), letters.delete(5), letters.replay([5])):
            with pytest.raises(ConfigError):
                await call

    async def test_unserialisable_value_is_refused(self) -> None:
        queue = await self.queue()
        for value in (object(), len, {1, object()}, 1j):
            with refused(value, CodecError):
                await queue.enqueue(value)
        assert (await queue.stats()).total == 0

    async def test_endless_nesting_is_refused(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        queue = await self.queue()
        with pytest.raises(CodecError):
            await queue.enqueue(endless)
        assert (await queue.stats()).total == 0

    async def test_queue_is_full_at_its_limit(self) -> None:
        queue = await self.queue(max_messages=3)
        await queue.enqueue_many([1, 2])
        with pytest.raises(QueueFull):
            await queue.enqueue_many([3, 4])
        await queue.enqueue(3)
        with pytest.raises(QueueFull):
            await queue.enqueue(4)
        assert (await queue.stats()).pending == 3
        await (await self.take(queue)).complete()
        await queue.enqueue(4)

    async def test_a_full_queue_is_waited_for(self) -> None:
        queue = await self.queue(max_messages=2)
        await queue.enqueue_many([1, 2])
        with pytest.raises(QueueFull):
            await queue.enqueue(3, wait=SHORT_S)
        with pytest.raises(QueueFull):  # never
            await queue.enqueue_many([3, 4, 5], wait=LONG_S)
        waiting = asyncio.ensure_future(queue.enqueue(3, wait=LONG_S))
        await asyncio.sleep(SHORT_S)
        assert not waiting.done()
        await (await self.take(queue)).complete()
        id = await asyncio.wait_for(waiting, self.patience)
        assert await queue.status(id) == "pending"
        assert (await queue.stats()).pending == 2

    async def test_bad_urls_are_refused(self) -> None:
        for url in URLS:
            with refused(url, ConfigError):
                await connect(url)

    async def test_credentials_are_never_shown(self) -> None:
        with pytest.raises(ConfigError) as refused:
            await connect("postgresx://anna:canary@host/db?password=canary&secret_access_key=canary")
        assert "canary" not in f"{refused.value!r} {refused.value}"

    async def test_closed_broker_says_so(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        await self.broker.close()
        await self.broker.close()
        for call in (queue.enqueue(2), queue.dequeue(), queue.stats(), self.broker.queue("jobs")):
            with pytest.raises(HoldfastError, match="closed"):
                await call
