"""The queue users hold: every verb, who may settle, what is refused, what is told."""

import asyncio
import logging
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast import (
    Broker,
    CodecError,
    ConfigError,
    Dead,
    Fixed,
    InvalidPriority,
    LeaseLost,
    Message,
    MessageNotFound,
    MessageTooLarge,
    Retry,
)
from holdfast.events import LEVELS
from tests.toy_store import ToyStore


class Email(msgspec.Struct):
    to: str


class Clock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


class Watched(ToyStore):
    """Counts calls, so that a test can say that there was no I/O."""

    calls = 0

    async def append(self, queue, messages):
        self.calls += 1
        return await super().append(queue, messages)

    async def settle(self, queue, settlements):
        self.calls += 1
        return await super().settle(queue, settlements)

    async def claim(self, queue, limit, lease, *, wait=0.0, worker=None):
        self.calls += 1
        return await super().claim(queue, limit, lease, wait=wait, worker=worker)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(clock):
    return Watched(clock)


@pytest.fixture
def broker(store):
    return Broker(store)


@pytest.fixture
async def queue(broker):
    return await broker.queue("q", retry=Fixed(10), lease=30)


@pytest.fixture
def heard(broker):
    events = []
    for name in LEVELS:
        broker.on(name, events.append)
    return events


async def test_one_message_through(broker):
    emails = await broker.queue("emails", Email)
    id = await emails.enqueue(Email("a@example.com"), priority=5, headers={"k": "v"})
    assert await emails.status(id) == "pending"
    delivery = await emails.dequeue(wait=5)
    assert (delivery.id, delivery.value, delivery.priority, delivery.attempt) == (id, Email("a@example.com"), 5, 1)
    assert delivery.headers == {"k": "v"}
    assert await emails.status(id) == "processing"
    await delivery.complete({"sent": True})
    record = await emails.get(id)
    assert (record.status, record.value, record.result) == ("completed", Email("a@example.com"), {"sent": True})


async def test_empty(queue):
    assert await queue.dequeue() is None
    assert await queue.dequeue_many(10) == []
    assert await queue.enqueue_many([]) == []
    assert await queue.complete_many([]) == []
    assert await queue.fail_many([], "x") == []
    assert await queue.get("01a1e15b-3dda-7002-8242-2e8ccc900000") is None
    assert await queue.status("nope") is None


async def test_enqueue_many_keeps_order_and_takes_messages(queue):
    ids = await queue.enqueue_many([1, Message(2, priority=9), 3], priority=1)
    assert len(ids) == 3
    found = await queue.dequeue_many(3)
    assert [(delivery.value, delivery.priority) for delivery in found] == [(2, 9), (1, 1), (3, 1)]
    assert [delivery.id for delivery in found] == [ids[1], ids[0], ids[2]]


async def test_enqueue_takes_a_message_too(queue):
    await queue.enqueue(Message("x", priority=3))
    delivery = await queue.dequeue()
    assert (delivery.value, delivery.priority) == ("x", 3)


async def test_any_iterable(queue):
    assert len(await queue.enqueue_many(n for n in range(3))) == 3
    for wrong in ("abc", b"abc", {"a": 1}):
        with pytest.raises(ConfigError, match="values: a list"):
            await queue.enqueue_many(wrong)


@pytest.mark.parametrize("door", ["delivery", "receipt", "id"])
async def test_a_delivery_its_receipt_or_its_id_settles(queue, door):
    await queue.enqueue_many(range(5))

    async def one():
        delivery = await queue.dequeue()
        return delivery, delivery if door == "delivery" else getattr(delivery, door)

    delivery, key = await one()
    await queue.extend(key, 60)
    await queue.complete(key)
    assert await queue.status(delivery.id) == "completed"
    delivery, key = await one()
    await queue.fail(key, "boom")
    assert await queue.status(delivery.id) == "retry"
    delivery, key = await one()
    await queue.kill(key, "why")
    assert await queue.status(delivery.id) == "dead"
    delivery, key = await one()
    await queue.release(key, 5)
    assert await queue.status(delivery.id) == "delayed"
    delivery, key = await one()
    assert await queue.complete_many([key]) == [True]


async def test_a_receipt_settles_from_another_process(queue, store):
    await queue.enqueue(1, max_attempts=2)
    receipt = (await queue.dequeue()).receipt
    elsewhere = await Broker(store).queue("q")
    await elsewhere.fail(receipt, "boom", retry_in=0)
    delivery = await queue.dequeue()
    assert delivery.attempt == 2
    await elsewhere.fail(delivery.receipt, "boom")  # it knows that this was the last
    assert await queue.status(delivery.id) == "dead"


async def test_an_id_of_nobody(queue, store):
    id = await queue.enqueue(1)
    for settle in (queue.complete, queue.release):
        with pytest.raises(LeaseLost, match="holds no delivery"):
            await settle(id)
        with pytest.raises(MessageNotFound):
            await settle("nope")
    with pytest.raises(MessageNotFound):
        await queue.fail("nope", "boom")
    with pytest.raises(LeaseLost):
        await queue.extend(id, 5)
    assert await queue.complete_many([id, "nope"]) == [False, False]
    with pytest.raises(ConfigError, match="a delivery, its receipt or its id, not int"):
        await queue.complete(5)


async def test_a_lost_lease(queue, clock, heard):
    await queue.enqueue_many([1, 2])
    old, other = await queue.dequeue_many(2, lease=5)
    clock.now += 6
    new = await queue.dequeue()
    assert (new.id, new.attempt) == (old.id, 2)
    for settle in (old.complete(), old.fail("x"), old.release(), old.kill("x"), old.extend(5)):
        with pytest.raises(LeaseLost, match=old.id):
            await settle
    assert await queue.complete_many([old, other, new], ["a", "b", "c"]) == [False, True, True]
    assert (await queue.get(new.id)).result == "c"
    assert sum(event.name == "lease.lost" for event in heard) == 6


async def test_results_stay_with_their_messages(queue):
    await queue.enqueue_many([1, 2, 3])
    a, b, c = await queue.dequeue_many(3)
    assert await queue.complete_many([a, "nope", b, c], ["a", "?", "b", "c"]) == [True, False, True, True]
    assert [(await queue.get(one.id)).result for one in (a, b, c)] == ["a", "b", "c"]
    with pytest.raises(ConfigError, match="1 results for 2 deliveries"):
        await queue.complete_many([a, b], [1])


async def test_keep_false_deletes(queue):
    await queue.enqueue_many([1, 2])
    a, b = await queue.dequeue_many(2)
    await a.complete(keep=False)
    assert await queue.complete_many([b], keep=False) == [True]
    assert (await queue.stats()).archived == 0


async def test_repeating_a_settle_is_success_and_no_news(queue, heard):
    await queue.enqueue(1)
    delivery = await queue.dequeue()
    await delivery.complete()
    await delivery.complete()
    assert [event.name for event in heard] == ["message.enqueued", "message.completed"]


async def test_fail_retries_then_is_dead(queue, clock, heard):
    id = await queue.enqueue(1, max_attempts=2)
    await (await queue.dequeue()).fail(ValueError("boom"))
    assert await queue.status(id) == "retry"
    assert await queue.dequeue() is None
    clock.now += 10
    await (await queue.dequeue()).fail(ValueError("boom"))
    record = await queue.get(id)
    assert (record.status, record.attempts) == ("dead", 2)
    assert record.error.startswith("ValueError: boom")
    retry, dead = heard[1:]
    assert (retry.name, retry.attempts, dead.name, dead.attempts) == ("message.retry", 1, "message.dead", 2)
    assert retry.next_visible_at == datetime.fromtimestamp(clock.now, UTC)


async def test_a_failure_may_decide(queue):
    ids = await queue.enqueue_many([1, 2, 3])
    a, b, c = await queue.dequeue_many(3)
    await a.fail(Dead("no use"))
    assert await queue.fail_many([b, c], [Retry(3600), "plain"], retry_in=None) == [True, True]
    assert [await queue.status(id) for id in ids] == ["dead", "retry", "retry"]
    assert (await queue.get(ids[1])).visible_at > (await queue.get(ids[2])).visible_at


async def test_fail_many_with_one_error(queue):
    await queue.enqueue_many([1, 2])
    found = await queue.dequeue_many(2)
    assert await queue.fail_many(found, "boom", retry_in=0) == [True, True]
    assert len(await queue.dequeue_many(5)) == 2
    with pytest.raises(ConfigError, match="1 errors for 2 deliveries"):
        await queue.fail_many(found, ["x"])


async def test_without_dead_letters_it_ends_as_failed(broker, heard):
    queue = await broker.queue("plain", dead_letter=False)
    await queue.enqueue(1)
    await (await queue.dequeue()).kill("why")
    event = heard[-1]
    assert (event.name, event.error, event.attempts) == ("message.failed", "why", 1)


async def test_release_costs_no_attempt(queue):
    await queue.enqueue(1)
    await (await queue.dequeue()).release()
    assert (await queue.dequeue()).attempt == 1


async def test_extend_moves_the_end(queue, clock):
    await queue.enqueue(1)
    delivery = await queue.dequeue(lease=10)
    end = await delivery.extend(100)
    assert delivery.expires_at == end == datetime.fromtimestamp(clock.now + 100, UTC)
    assert await queue.extend(delivery.receipt, 5) == end
    await queue.extend(delivery.receipt, 500)
    assert delivery.expires_at == datetime.fromtimestamp(clock.now + 500, UTC)


async def test_recovered_and_expired_are_told(broker, clock, heard):
    queue = await broker.queue("frail", max_attempts=2, lease=5)
    id = await queue.enqueue(1)
    await queue.dequeue()
    clock.now += 6
    await queue.dequeue()
    clock.now += 6
    assert await queue.dequeue() is None
    assert [(event.name, event.id) for event in heard[1:]] == [("message.recovered", id), ("message.dead", id)]
    assert heard[-1].error == "lease expired"
    assert heard[-1].attempts == 2


async def test_completed_says_how_long_and_what(queue, heard):
    await queue.enqueue_many([1, 2])
    a, b = await queue.dequeue_many(2)
    await a.complete({"n": 1})
    await queue.complete(b.receipt)
    by_hand, by_id = heard[2:]
    assert by_hand == {"queue": "q", "id": a.id, "attempts": 1, "duration": by_hand.duration, "result": {"n": 1}}
    assert 0 <= by_hand.duration < 30
    assert (by_id.id, by_id.result) == (b.id, None)


async def test_no_subscriber_no_cost(queue, broker, caplog):
    caplog.set_level(logging.CRITICAL, "holdfast")
    asked = []
    broker.events.emit = lambda *args, **fields: asked.append(args)
    await queue.enqueue_many([1, 2])
    await queue.complete_many(await queue.dequeue_many(2))
    assert asked == []


async def test_cancel(queue, heard):
    id = await queue.enqueue(1, delay=60)
    assert await queue.cancel(id) is True
    record = await queue.get(id)
    assert (record.status, record.error) == ("failed", "cancelled")
    assert heard[-1] == {"queue": "q", "id": id, "attempts": 0, "error": "cancelled"}
    assert await queue.cancel(id) is False
    with pytest.raises(MessageNotFound):
        await queue.cancel("nope")


async def test_wait(queue):
    id = await queue.enqueue(1)
    waiting = asyncio.create_task(queue.wait(id, 10))
    await (await queue.dequeue(wait=5)).complete("done")
    record = await waiting
    assert (record.status, record.result) == ("completed", "done")
    late = await queue.enqueue(1)
    with pytest.raises(TimeoutError, match="still pending"):
        await queue.wait(late, 0)
    with pytest.raises(MessageNotFound):
        await queue.wait("nope", 1)


async def test_wait_looks_again_when_something_changes(queue):
    id, other = await queue.enqueue_many([1, 2])
    waiting = asyncio.create_task(queue.wait(id))
    deliveries = {delivery.id: delivery for delivery in await queue.dequeue_many(2)}
    await deliveries[other].complete()
    await asyncio.wait({waiting}, timeout=0.05)
    assert not waiting.done()
    await deliveries[id].fail(Dead("why"))
    assert (await asyncio.wait_for(waiting, 10)).status == "dead"


async def test_a_message_that_vanished_is_not_found(queue, store):
    id = await queue.enqueue(1)
    delivery = await queue.dequeue()
    store.rooms["q"].rows.clear()
    with pytest.raises(MessageNotFound, match=id):
        await delivery.complete()
    assert await queue.complete_many([delivery]) == [False]


async def test_pause_resume_purge_cleanup(queue, clock):
    await queue.pause()
    await queue.enqueue_many([1, 2, 3])
    assert await queue.dequeue() is None
    await queue.resume()
    await (await queue.dequeue()).complete()
    assert await queue.purge() == 2
    clock.now += 100
    assert await queue.cleanup(older_than=200) == 0
    assert await queue.cleanup(older_than=50) == 1
    await queue.enqueue(1)
    await (await queue.dequeue()).complete()
    assert await queue.cleanup() == 1
    assert (await queue.stats()).total == 0


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"priority": 256}, InvalidPriority),
        ({"delay": -1}, ConfigError),
        ({"at": datetime(2024, 5, 1)}, ConfigError),
        ({"headers": {"a": 1}}, ConfigError),
        ({"max_attempts": 0}, ConfigError),
    ],
    ids=str,
)
async def test_bad_terms_are_refused_before_any_call(queue, store, bad, error):
    for call in (queue.enqueue(1, **bad), queue.enqueue_many([1], **bad)):
        with pytest.raises(error):
            await call
    assert store.calls == 0


async def test_bad_messages_are_refused_before_any_call(broker, store):
    queue = await broker.queue("small", max_message_size=10)
    with pytest.raises(MessageTooLarge):
        await queue.enqueue("x" * 20)
    with pytest.raises(CodecError):
        await queue.enqueue(object())
    with pytest.raises(InvalidPriority, match=r"^message 1: "):
        await queue.enqueue_many([1, Message(2, priority=-1)])
    assert store.calls == 0
    assert (await queue.stats()).total == 0


async def test_bad_calls_are_refused_before_any_call(queue, store):
    await queue.enqueue(1)
    delivery = await queue.dequeue()
    store.calls = 0
    for call in (
        queue.dequeue(lease=0),
        queue.dequeue(lease=-1),
        queue.dequeue(wait=-1),
        queue.dequeue_many(0),
        queue.dequeue_many(True),
        queue.dequeue_many("5"),
        queue.extend(delivery, 0),
        queue.release(delivery, -1),
        queue.fail(delivery, "x", retry_in=-1),
        queue.fail(delivery, None),
        queue.kill(delivery, None),
        queue.cleanup(-1),
        queue.get(5),
        queue.cancel(None),
        queue.wait(5, 1),
        queue.enqueue_many(5),
        queue.enqueue_many("text"),
        queue.enqueue_many({"a": 1}),
        queue.complete(delivery, keep=1),
        queue.complete(delivery, keep=[]),
        queue.complete_many(5),
        queue.complete_many("text"),
        queue.complete_many([delivery], results=5),
        queue.complete_many([delivery], keep="no"),
        queue.fail_many(None, "x"),
        queue.fail_many([delivery], 5),
    ):
        with pytest.raises(ConfigError):
            await call
    with pytest.raises(CodecError):
        await delivery.complete(object())
    assert store.calls == 0


async def test_many_may_come_from_a_generator(queue):
    ids = await queue.enqueue_many(number for number in range(3))
    found = await queue.dequeue_many(3)
    assert [delivery.id for delivery in found] == ids
    assert await queue.complete_many(delivery for delivery in found) == [True] * 3


async def test_undecodable_payloads_come_with_their_bytes(broker):
    await (await broker.queue("q")).enqueue({"to": 5})
    delivery = await (await broker.queue("q", Email)).dequeue()
    assert delivery.payload == b'{"to":5}'
    with pytest.raises(CodecError):
        _ = delivery.value


async def test_worker_options_from_the_settings(store):
    from holdfast.config import Settings

    queue = await Broker(store, settings=Settings(worker={"concurrency": 3})).queue("q")
    assert queue.worker(print).concurrency == 3
    assert queue.worker(print, concurrency=4).concurrency == 4
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        queue.worker(print, concurency=4)
