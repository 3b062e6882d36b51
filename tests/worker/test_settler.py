"""Outcomes that the store refuses for good: the others go on, and the guilty one ends as near to it as can be."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.retry import Fixed
from tests.toy_store import ToyStore
from tests.worker_stores import finished, until


class Picky(ToyStore):
    """Refuses calls with an outcome it does not like, in whatever words it is told to."""

    def __init__(self, error=holdfast.StoreError):
        super().__init__()
        self.error = error
        self.dislikes = lambda settlement: False
        self.refusals = 0
        self.calls = 0

    async def settle(self, queue, settlements):
        self.calls += 1
        if any(self.dislikes(each) for each in settlements):
            self.refusals += 1
            raise self.error("there are no letters for this")
        return await super().settle(queue, settlements)


def has_foreign_letters(settlement):
    return not (settlement.error or "").isascii()


@pytest.fixture(params=[holdfast.StoreError, RuntimeError, ValueError], ids=lambda error: error.__name__)
def store(request):
    return Picky(request.param)


@pytest.fixture
async def broker(store):
    async with Broker(store) as broker:
        yield broker


async def test_one_refused_outcome_holds_up_no_other(broker, store):
    """Also those that come later, and whatever the store says no with."""
    queue = await broker.queue("q", max_attempts=1)
    store.dislikes = has_foreign_letters
    told = []
    broker.on("message.dead", lambda event: told.append(event.id))

    async def handle(value):
        if value == "bad":
            raise ValueError("größer als 🙂")
        return value

    async with queue.worker(handle, concurrency=10):
        ids = await queue.enqueue_many(["a", "bad", *"cdefgh"])
        assert await finished(queue, *ids) == ["completed", "dead", *["completed"] * 6]
        later = await queue.enqueue_many(["i", "j", "k"])
        assert await finished(queue, *later) == ["completed"] * 3
        await until(lambda: told)
    record = await queue.get(ids[1])
    assert record.error.startswith("ValueError: gr\\xf6\\xdfer als \\U0001f642")
    assert told == [ids[1]]


async def test_lone_outcome_that_is_refused_ends_without_company(broker, store):
    """A store's own words are believed after a while; other exceptions may be anything, until others pass."""
    queue = await broker.queue("q", max_attempts=1)
    store.dislikes = has_foreign_letters

    async def handle(value):
        if value == "bad":
            raise ValueError("größer")

    async with queue.worker(handle):
        id = await queue.enqueue("bad")
        if store.error is not holdfast.StoreError:
            await until(lambda: store.refusals >= 3)
            assert await queue.status(id) == "processing"
            assert await finished(queue, await queue.enqueue("good")) == ["completed"]
        assert await finished(queue, id) == ["dead"]


async def test_refused_completion_fails_the_attempt(broker, store):
    queue = await broker.queue("q", max_attempts=1)
    store.dislikes = lambda settlement: settlement.result == b'"bad"'
    errors = []

    async def handle(value):
        return value

    async with queue.worker(handle, concurrency=4, on_error=lambda error, delivery: errors.append(delivery.id)):
        ids = await queue.enqueue_many(["a", "bad", "b", "c"])
        assert await finished(queue, *ids) == ["completed", "dead", "completed", "completed"]
        await until(lambda: errors)
    assert "there are no letters for this" in (await queue.get(ids[1])).error
    assert errors == [ids[1]]


async def test_refused_retry_is_dead_and_refused_death_is_released(broker, store, caplog):
    queue = await broker.queue("q", max_attempts=9, retry=Fixed(0))
    ids = await queue.enqueue_many(["retry", "dead", "fine"])
    refused = {ids[0]: ("retry",), ids[1]: ("retry", "dead")}
    store.dislikes = lambda settlement: settlement.action in refused.get(settlement.id, ())

    async def handle(value):
        if value != "fine":
            raise ValueError(value)

    async with queue.worker(handle, concurrency=3):
        assert await finished(queue, ids[0], ids[2]) == ["dead", "completed"]
        await until(lambda: _is(queue, ids[1], "delayed"))
    assert "was refused" in caplog.text


async def _is(queue, id, status):
    return await queue.status(id) == status


async def test_message_of_which_no_outcome_is_taken_is_given_up_and_others_go_on(broker, store, caplog):
    queue = await broker.queue("q", lease=1, max_attempts=2)
    ids = await queue.enqueue_many(["bad", *range(5)])
    store.dislikes = lambda settlement: settlement.id == ids[0]

    async def handle(value):
        return value

    async with queue.worker(handle, concurrency=3):
        assert await finished(queue, *ids[1:]) == ["completed"] * 5
        more = await queue.enqueue_many(range(20))
        assert await finished(queue, *more) == ["completed"] * 20
        await until(lambda: "its lease will expire" in caplog.text)

        async def is_dead_amid_others():
            await finished(queue, await queue.enqueue(0))
            return await queue.status(ids[0]) == "dead"

        await until(is_dead_amid_others)
    assert (await queue.get(ids[0])).error == "lease expired"


async def test_guilty_one_is_found_in_few_calls(broker, store):
    queue = await broker.queue("q", max_attempts=1)
    store.dislikes = has_foreign_letters
    free = asyncio.Event()

    async def handle(values):
        await free.wait()
        return [ValueError("größer") if value == 77 else value for value in values]

    ids = await queue.enqueue_many(range(128))
    async with queue.worker(handle, batch=128, concurrency=1, prefetch=200):
        await until(lambda: _held(queue, 128))
        free.set()
        assert await finished(queue, *ids) == ["completed"] * 77 + ["dead"] + ["completed"] * 50
    assert store.calls < 40


async def _held(queue, count):
    return (await queue.stats()).processing == count


async def test_outcomes_survive_a_store_that_refuses_everything_for_a_while(broker, store):
    """It may be anything: nothing is thrown away, and what comes through is the outcome itself."""
    queue = await broker.queue("q", max_attempts=1)
    store.dislikes = lambda settlement: True

    async def handle(value):
        return value

    async with queue.worker(handle, concurrency=3):
        ids = await queue.enqueue_many([1, 2, 3])
        await until(lambda: store.refusals > 20)
        store.dislikes = lambda settlement: False
        assert await finished(queue, *ids) == ["completed"] * 3
    assert [(await queue.get(id)).result for id in ids] == [1, 2, 3]


async def test_stop_ends_what_is_refused_too(broker, store):
    queue = await broker.queue("q", max_attempts=1)
    store.dislikes = has_foreign_letters

    async def handle(value):
        raise ValueError("größer")

    id = await queue.enqueue("bad")
    worker = queue.worker(handle)
    await worker.start()
    await until(lambda: store.refusals)
    await asyncio.wait_for(worker.stop(), 20)
    assert await queue.status(id) == "dead"
