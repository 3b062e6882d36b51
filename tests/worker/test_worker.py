"""Handlers of every kind, their results, their errors, their batches and their limits."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import msgspec
import pytest

import holdfast
from holdfast.stores.records import Envelope
from tests.worker_stores import KINDS, broker_on, finished, until

NOW = holdfast.Fixed(0.0)


@pytest.fixture(params=KINDS)
async def broker(request, tmp_path):
    async with broker_on(request.param, tmp_path) as broker:
        yield broker


class Order(msgspec.Struct):
    item: str
    count: int = 1


async def value_only(value):
    return {"got": value}


async def with_context(value, context):
    return {"got": value, "attempt": context.attempt, "id": context.message_id, "queue": context.queue}


def sync_value_only(value):
    return {"got": value}


def sync_with_context(value, context):
    return {"got": value, "attempt": context.attempt, "id": context.message_id, "queue": context.queue}


class Callable_:
    async def __call__(self, value, context):
        return {"got": value}


@pytest.mark.parametrize("handler", [value_only, with_context, sync_value_only, sync_with_context, Callable_()])
async def test_handlers_of_every_kind_and_their_results(broker, handler):
    queue = await broker.queue("q")
    id = await queue.enqueue([1, 2])
    async with queue.worker(handler):
        record = await queue.wait(id, timeout=20)
    assert record.status == "completed"
    assert record.result["got"] == [1, 2]
    assert record.result.get("attempt", 1) == 1
    assert record.result.get("id", id) == id
    assert record.worker


async def test_typed_values_arrive_typed(broker):
    queue = await broker.queue("orders", Order)
    id = await queue.enqueue(Order("tea", 3))

    async def handle(order: Order, context: holdfast.Context):
        assert isinstance(order, Order)
        assert context.headers == {"h": "1"}
        return order

    id = await queue.enqueue(Order("tea", 3), headers={"h": "1"})
    async with queue.worker(handle):
        assert (await queue.wait(id, timeout=20)).result == {"item": "tea", "count": 3}


async def test_a_failing_handler_is_retried_and_then_dead(broker):
    queue = await broker.queue("q", retry=NOW, max_attempts=3)
    attempts = []

    async def fail(value, context):
        attempts.append(context.attempt)
        raise ValueError("no good")

    id = await queue.enqueue("x")
    async with queue.worker(fail):
        record = await queue.wait(id, timeout=20)
    assert record.status == "dead"
    assert attempts == [1, 2, 3]
    assert record.error.startswith("ValueError: no good")
    assert "in test_a_failing_handler" in record.error
    assert record.attempts == 3


async def test_retry_and_dead_decide(broker):
    queue = await broker.queue("q", retry=holdfast.NoRetry())
    seen = []

    def decide(value, context):
        seen.append((value, context.attempt))
        if value == "retry" and context.attempt == 1:
            raise holdfast.Retry(0)
        if value == "dead":
            raise holdfast.Dead("hopeless")

    ids = [await queue.enqueue("retry"), await queue.enqueue("dead")]
    async with queue.worker(decide):
        assert await finished(queue, *ids) == ["completed", "dead"]
    assert (await queue.get(ids[1])).error == "hopeless"
    assert sorted(seen) == [("dead", 1), ("retry", 1), ("retry", 2)]


async def test_a_retry_function_decides(broker):
    queue = await broker.queue("q", max_attempts=9)
    calls = []

    def retry(attempt, error):
        calls.append((attempt, type(error)))
        return 0.0 if attempt < 3 else None

    def fail(value):
        raise KeyError(value)

    id = await queue.enqueue("x")
    async with queue.worker(fail, retry=retry):
        assert await finished(queue, id) == ["dead"]
    assert calls == [(1, KeyError), (2, KeyError), (3, KeyError)]


async def test_system_exit_and_a_leaked_cancellation_fail_the_attempt_only(broker):
    queue = await broker.queue("q", max_attempts=1)

    async def handle(value):
        if value == "exit":
            raise SystemExit(3)
        if value == "cancelled":
            raise asyncio.CancelledError
        return value

    ids = await queue.enqueue_many(["exit", "cancelled", "fine"])
    async with queue.worker(handle, concurrency=1):
        assert await finished(queue, *ids) == ["dead", "dead", "completed"]


async def test_system_exit_in_a_thread_fails_the_attempt_only(broker):
    queue = await broker.queue("q", max_attempts=1)

    def handle(value):
        if value == "exit":
            raise SystemExit(3)
        if value == "stop":
            raise StopIteration
        if value == "close":
            raise GeneratorExit
        return value

    ids = await queue.enqueue_many(["exit", "stop", "close", "fine"])
    async with queue.worker(handle, concurrency=1):
        assert await finished(queue, *ids) == ["dead", "dead", "dead", "completed"]


async def test_a_slip_in_a_decision_fails_the_attempt_only(broker):
    queue = await broker.queue("q", max_attempts=1)

    async def handle(value):
        if value == "dead":
            raise holdfast.Dead(404)
        if value == "retry":
            raise holdfast.Retry(float("inf"))
        return value

    ids = await queue.enqueue_many(["dead", "retry", "fine"])
    async with queue.worker(handle, concurrency=1):
        assert await finished(queue, *ids) == ["dead", "dead", "completed"]


async def test_an_undecodable_payload_is_dead_and_the_worker_lives(broker):
    queue = await broker.queue("orders", Order)
    bad = (await broker.store.append("orders", [Envelope(b"{not json")]))[0]
    wrong = (await broker.store.append("orders", [Envelope(b'{"item": 7}')]))[0]
    good = await queue.enqueue(Order("tea"))
    seen, errors = [], []

    async with queue.worker(seen.append, on_error=lambda error, delivery: errors.append((type(error), delivery.id))):
        assert await finished(queue, bad, wrong, good) == ["dead", "dead", "completed"]
        await until(lambda: len(errors) == 2)
    assert len(seen) == 1
    assert (await queue.get(bad)).error.startswith("undecodable payload: CodecError")
    assert {id for _, id in errors} == {bad, wrong}


async def test_a_result_that_cannot_be_stored_fails_the_attempt(broker):
    queue = await broker.queue("q", max_attempts=1)
    id = await queue.enqueue("x")

    async def handle(value):
        return object()

    async with queue.worker(handle):
        record = await queue.wait(id, timeout=20)
    assert record.status == "dead"
    assert record.error.startswith("CodecError: cannot encode the result")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_concurrency_is_respected_and_used(broker, kind):
    queue = await broker.queue("q")
    ids = await queue.enqueue_many(list(range(12)))
    running, most, lock = 0, 0, threading.Lock()
    all_in = threading.Barrier(4)
    together = asyncio.Event()

    def enter(step):
        nonlocal running, most
        with lock:
            running += step
            most = max(most, running)
        return running

    async def in_loop(value):
        if enter(1) == 4:
            together.set()
        await asyncio.wait_for(together.wait(), 10)
        enter(-1)

    def in_thread(value):
        enter(1)
        all_in.wait(10)
        enter(-1)

    async with queue.worker(in_loop if kind == "async" else in_thread, concurrency=4):
        assert set(await finished(queue, *ids)) == {"completed"}
    assert most == 4


async def test_callbacks_get_delivery_result_and_error_after_the_outcome_is_durable(broker):
    queue = await broker.queue("q", retry=NOW, max_attempts=2)
    told = []

    async def on_complete(delivery, result):
        told.append(("complete", delivery.value, result, await queue.status(delivery.id)))

    def on_error(error, delivery):
        told.append(("error", delivery.value, str(error), delivery.attempt))

    async def handle(value):
        if value == "bad":
            raise ValueError("bad")
        return value.upper()

    ids = [await queue.enqueue("good"), await queue.enqueue("bad")]
    async with queue.worker(handle, on_complete=on_complete, on_error=on_error):
        await finished(queue, *ids)
    assert sorted(told) == [
        ("complete", "good", "GOOD", "completed"),
        ("error", "bad", "bad", 1),
        ("error", "bad", "bad", 2),
    ]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_exception_in_a_callback_is_not_felt(broker, kind, caplog):
    queue = await broker.queue("q")

    async def later(delivery, result):
        raise RuntimeError("late callback")

    def at_once(delivery, result):
        raise RuntimeError("callback")

    def sync_handler(value):
        return value

    ids = await queue.enqueue_many([1, 2, 3])
    handler, callback = (value_only, later) if kind == "async" else (sync_handler, at_once)
    async with queue.worker(handler, on_complete=callback):
        assert await finished(queue, *ids) == ["completed"] * 3
    assert "callback failed" in caplog.text


async def test_batches(broker):
    queue = await broker.queue("q")
    ids = await queue.enqueue_many(list(range(25)))
    sizes = []

    async def handle(values):
        sizes.append(len(values))
        return [value * 2 for value in values]

    async with queue.worker(handle, batch=10, concurrency=1):
        assert set(await finished(queue, *ids)) == {"completed"}
    assert sum(sizes) == 25
    assert max(sizes) == 10
    assert [(await queue.get(id)).result for id in ids] == [value * 2 for value in range(25)]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_exception_fails_the_whole_batch(broker, kind):
    queue = await broker.queue("q", retry=NOW, max_attempts=2)
    ids = await queue.enqueue_many([1, 2, 3])
    runs = []

    def fail(values):
        runs.append(list(values))
        raise holdfast.Retry(0) if len(runs) == 1 else ValueError("all of them")

    async def fail_later(values):
        fail(values)

    async with queue.worker(fail if kind == "sync" else fail_later, batch=3, concurrency=1):
        assert await finished(queue, *ids) == ["dead"] * 3
    assert sorted(value for run in runs for value in run) == [1, 1, 2, 2, 3, 3]


async def test_one_of_a_batch_may_fail_alone_and_the_unreadable_do_not_trouble_the_rest(broker):
    queue = await broker.queue("numbers", int, max_attempts=1)
    good = await queue.enqueue_many([1, 2, 3])
    unread = (await broker.store.append("numbers", [Envelope(b'"text"')]))[0]

    async def handle(values):
        return [ValueError("two") if value == 2 else None if value == 1 else object() for value in values]

    async with queue.worker(handle, batch=10):
        assert await finished(queue, *good, unread) == ["completed", "dead", "dead", "dead"]
    assert (await queue.get(good[1])).error == "ValueError: two"


async def test_a_batch_handler_with_the_wrong_number_of_results_fails(broker):
    queue = await broker.queue("q", max_attempts=1)
    id = await queue.enqueue(1)

    async def handle(values):
        return [1, 2]

    async with queue.worker(handle, batch=5):
        record = await queue.wait(id, timeout=20)
    assert "as many results as values" in record.error


async def test_timeout_ends_an_async_handler(broker):
    queue = await broker.queue("q", max_attempts=1)
    id = await queue.enqueue(1)
    cancelled = []

    async def slow(value):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(value)
            raise

    async with queue.worker(slow, timeout=0.05, concurrency=1):
        record = await queue.wait(id, timeout=20)
        again = await queue.enqueue(2)  # the lane lives on
        assert await finished(queue, again) == ["dead"]
    assert record.error == "TimeoutError: the handler ran longer than 0.05 s"
    assert cancelled == [1, 2]


async def test_timeout_stops_waiting_for_a_sync_handler_and_keeps_its_lane_until_it_returns(broker):
    queue = await broker.queue("q", max_attempts=1)
    go_on, started, saw_lost = threading.Event(), [], []

    def slow(value, context):
        started.append(value)
        if value == 1:
            go_on.wait(20)
            saw_lost.append(context.lost)

    first = await queue.enqueue(1)
    async with queue.worker(slow, timeout=0.05, concurrency=1):
        assert await finished(queue, first) == ["dead"]
        second = await queue.enqueue(2)
        await asyncio.sleep(0.05)
        assert started == [1]  # one thread, still taken
        go_on.set()
        assert await finished(queue, second) == ["completed"]
    assert saw_lost == [True]


async def test_a_handler_of_its_own_timeout_error_says_so(broker):
    queue = await broker.queue("q", max_attempts=1)
    id = await queue.enqueue(1)

    async def handle(value):
        raise TimeoutError("upstream")

    async with queue.worker(handle, timeout=10):
        record = await queue.wait(id, timeout=20)
    assert record.error.startswith("TimeoutError: upstream")


async def test_dead_letters_have_a_worker_of_their_own(broker):
    queue = await broker.queue("q", max_attempts=1, retry=NOW)
    ids = await queue.enqueue_many(["mend", "stubborn"])

    async def fail(value):
        raise ValueError(value)

    async with queue.worker(fail):
        assert await finished(queue, *ids) == ["dead", "dead"]

    tries = []

    async def mend(value):
        tries.append(value)
        if value == "stubborn":
            raise holdfast.Dead("still")
        return "mended"

    async with queue.dead.worker(mend, concurrency=2):
        await until(lambda: tries.count("stubborn") >= 3 and tries.count("mend") == 1)
        assert (await queue.wait(ids[0], timeout=20)).result == "mended"
    assert await queue.status(ids[1]) == "dead"
    assert await queue.dead.count() == 1


async def test_the_context_can_extend_from_the_loop_and_from_a_thread(broker):
    queue = await broker.queue("q")

    async def in_loop(value, context):
        await context.extend(60)

    def in_thread(value, context):
        context.extend(60)

    for handler in (in_loop, in_thread):
        id = await queue.enqueue(1)
        async with queue.worker(handler):
            assert await finished(queue, id) == ["completed"]


async def test_a_handler_that_never_yields_does_not_keep_the_loop_to_itself(broker):
    queue = await broker.queue("q")
    ids = await queue.enqueue_many(list(range(20)))

    async def busy(value):
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            pass

    longest, last = 0.0, time.monotonic()

    async def pulse():
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    beating = asyncio.create_task(pulse())
    async with queue.worker(busy, concurrency=20):
        assert set(await finished(queue, *ids)) == {"completed"}
    beating.cancel()
    assert longest < 0.3


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (lambda: None, {}),
        (lambda a, b, c: None, {}),
        (lambda a, *, b: None, {}),
        (lambda values, context: None, {"batch": 5}),
        ("text", {}),
        (value_only, {"concurrency": 0}),
        (value_only, {"timeout": 0}),
        (value_only, {"concurency": 3}),
        (value_only, {"lease": 0}),
        (value_only, {"retry": "soon"}),
    ],
)
async def test_what_cannot_be_meant_is_refused_at_once(tmp_path, handler, options):
    async with broker_on("toy", tmp_path) as broker:
        queue = await broker.queue("q")
        with pytest.raises(holdfast.ConfigError):
            queue.worker(handler, **options)


@pytest.mark.parametrize(
    "options",
    [{"on_error": 5}, {"on_complete": "log"}, {"worker_id": 5}, {"concurrency": 10**30}, {"concurrency": True}],
    ids=str,
)
async def test_options_that_cannot_be_meant_are_refused_when_the_worker_is_made(broker, options):
    queue = await broker.queue("q")
    with pytest.raises(holdfast.ConfigError, match=next(iter(options))):
        queue.worker(print, **options)


@pytest.mark.parametrize("levels", [5000, 3_000_000])
async def test_what_a_newer_python_accepted_is_a_dead_letter_where_it_cannot_be_read(broker, levels):
    """3.13 reads 5,000 levels, those before do not."""
    deep = Envelope(b"[" * levels + b"]" * levels, "application/json")
    queue, handled = await broker.queue("q"), []
    ids = await queue.store.append("q", [deep, Envelope(b'"sound"', "application/json")])
    async with queue.worker(handled.append):
        await finished(queue, *ids)
    letters = await queue.dead.list()
    if sys.version_info >= (3, 13) and levels == 5000:
        assert (len(handled), letters) == (2, [])
        return
    assert handled == ["sound"]
    assert "nested deeper than this version of Python reads" in letters[0].error
    assert letters[0].payload == deep.payload
