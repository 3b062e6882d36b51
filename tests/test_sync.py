"""The blocking face: the same names and signatures, on a real store, from threads."""

import inspect
import os
import signal
import threading
import time

import msgspec
import pytest

import holdfast
from holdfast import ConfigError, LeaseLost, QueueFull, sync

# Public in the async classes, and of no use to those who block.
ASYNC_ONLY = {
    "Broker": {"store", "events", "gone", "workers"},
    "Queue": {"store", "store_options", "events", "codec"},
    "Worker": {"stop_soon", "busy"},
    "Schedules": {"declare", "declare_file", "written"},
    "App": {"on_open"},
    "AppHandler": {"app", "function", "queue_options", "worker_options"},
}


class Email(msgspec.Struct):
    to: str


@pytest.fixture
def broker():
    with sync.connect("memory://") as broker:
        yield broker


@pytest.fixture
def queue(broker):
    return broker.queue("q")


def until(condition, seconds=10.0):
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


@pytest.mark.parametrize("core", sync.NAMES, ids=lambda core: core.__name__)
def test_no_name_is_forgotten(core):
    public = {name for name in dir(core) if not name.startswith("_")}
    public |= {name for name in vars(core).get("__annotations__", {}) if not name.startswith("_")}
    named = set(sync.NAMES[core].split())
    assert public - ASYNC_ONLY.get(core.__name__, set()) <= named
    face = getattr(sync, core.__name__)
    assert all(hasattr(face, name) for name in named)


@pytest.mark.parametrize("core", sync.NAMES, ids=lambda core: core.__name__)
def test_signatures_are_the_same(core):
    face = getattr(sync, core.__name__)
    for name in sync.NAMES[core].split():
        ours, theirs = inspect.getattr_static(face, name), inspect.getattr_static(core, name, None)
        if inspect.isfunction(theirs):
            assert inspect.signature(ours) == inspect.signature(theirs), name
            assert not inspect.iscoroutinefunction(ours)
            assert ours.__doc__ == theirs.__doc__
        else:
            assert isinstance(ours, property)
    assert hasattr(face, "__enter__") == hasattr(core, "__aenter__")


def test_connect_is_the_same():
    assert list(inspect.signature(sync.connect).parameters) == list(inspect.signature(holdfast.connect).parameters)
    assert list(inspect.signature(sync.App).parameters) == list(inspect.signature(holdfast.App).parameters)


def test_one_message_through(broker):
    emails = broker.queue("emails", Email)
    id = emails.enqueue(Email("a@example.com"), priority=5)
    delivery = emails.dequeue(wait=5)
    assert (delivery.id, delivery.value, delivery.priority) == (id, Email("a@example.com"), 5)
    delivery.complete({"sent": True})
    assert emails.get(id).result == {"sent": True}
    assert emails.status(id) == "completed"
    assert emails.wait(id, 5).status == "completed"
    assert emails.archive.count() == 1
    assert [record.id for record in emails.archive.list()] == [id]


def test_usable_without_with():
    broker = sync.connect("memory://")
    assert len(broker.queue("q").enqueue_many([1, 2])) == 2
    broker.close()
    broker.close()
    with pytest.raises(ConfigError, match="closed"):
        broker.queues()


def test_deliveries_receipts_and_ids_are_accepted(queue):
    queue.enqueue_many(range(6))
    a, b, c, d, e, f = queue.dequeue_many(6)
    assert isinstance(a, sync.Delivery)
    queue.complete(a)
    queue.complete(delivery=b)
    assert queue.complete_many([c, d.receipt], ["x", "y"]) == [True, True]
    assert queue.complete_many(deliveries=(e,)) == [True]
    queue.release(f.id)
    assert queue.stats().completed == 5


def test_errors_come_through(broker, queue):
    queue.enqueue(1)
    delivery = queue.dequeue()
    delivery.release()
    with pytest.raises(LeaseLost):
        delivery.complete()
    small = broker.queue("small", max_messages=1)
    small.enqueue(1)
    with pytest.raises(QueueFull):
        small.enqueue(2)
    with pytest.raises(ConfigError, match="did you mean"):
        sync.connect("memmory://")


def test_dead_letters(queue):
    queue.enqueue(1)
    queue.dequeue().kill("why")
    assert queue.dead.count() == 1
    assert queue.dead.list()[0].error == "why"
    assert queue.dead.replay() == 1


def test_many_threads(queue):
    def produce():
        for i in range(50):
            queue.enqueue(i)

    threads = [threading.Thread(target=produce) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.stats().pending == 400
    assert len({delivery.id for delivery in queue.dequeue_many(500)}) == 400


def test_events_may_use_the_face(broker, queue):
    seen = []

    def note(event):
        seen.append((event.id, queue.status(event.id), threading.current_thread().name))

    off = broker.on("message.enqueued", note)
    id = queue.enqueue(1)
    until(lambda: seen)
    off()
    queue.enqueue(2)
    assert seen == [(id, "pending", "holdfast-message.enqueued-1")]
    with pytest.raises(ConfigError, match="did you mean"):
        broker.on("message.enqueue", note)
    with pytest.raises(ConfigError, match="a callback is a function"):
        broker.on("message.enqueued", None)


def test_close_waits_for_callbacks():
    seen = []
    with sync.connect("memory://") as broker:
        broker.on("message.enqueued", lambda event: seen.append(event.id))
        ids = broker.queue("q").enqueue_many(range(10))
    assert seen == ids


def test_async_callbacks_run_in_the_loop(broker, queue):
    seen = []

    async def note(event):
        seen.append(threading.current_thread().name)

    broker.on("message.enqueued", note)
    queue.enqueue(1)
    until(lambda: seen)
    assert seen == ["holdfast-sync"]


def test_a_worker_with_blocking_callbacks(broker, queue):
    done, failed = [], []

    def handler(value):
        if value == "bad":
            raise ValueError("boom")
        queue.enqueue("follow-up") if value == "first" else None  # the face is usable in handlers
        return value.upper()

    worker = queue.worker(
        handler,
        on_complete=lambda delivery, result: done.append((delivery, result)),
        on_error=lambda error, delivery: failed.append((type(error), delivery)),
    )
    with worker:
        assert worker.is_running
        queue.enqueue_many(["first", "bad"])
        until(lambda: len(done) == 2 and failed)
    assert not worker.is_running
    assert sorted(result for _, result in done) == ["FIRST", "FOLLOW-UP"]  # it follows while the first still runs
    assert isinstance(done[0][0], sync.Delivery)
    assert failed[0][0] is ValueError
    assert isinstance(failed[0][1], sync.Delivery)
    assert isinstance(worker.queue, sync.Queue)


def test_dead_letters_have_workers(queue):
    id = queue.enqueue(1)
    queue.dequeue().kill("why")
    with queue.dead.worker(lambda value: None):
        until(lambda: queue.status(id) == "completed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_by_a_signal(queue, number):
    before = signal.getsignal(number)
    started, finish = threading.Event(), threading.Event()

    def handler(value):
        started.set()
        finish.wait(10)

    def interrupt():
        assert started.wait(10)
        os.kill(os.getpid(), number)
        finish.set()

    id = queue.enqueue(1)
    thread = threading.Thread(target=interrupt)
    thread.start()
    queue.worker(handler, grace=10).run()
    thread.join()
    assert queue.status(id) == "completed"
    assert signal.getsignal(number) is before


def test_run_in_another_thread_ends_by_stop(queue):
    worker = queue.worker(lambda value: None)
    thread = threading.Thread(target=worker.run)
    thread.start()
    until(lambda: worker.is_running)
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_an_app():
    app = sync.App("memory://sync-app")
    seen = []

    @app.handler("emails", Email, concurrency=2, on_complete=lambda delivery, result: seen.append(delivery.id))
    def send(email, context):
        """Sends."""
        return email.to

    assert (send(Email("direct"), None), send.__name__, send.__doc__) == ("direct", "send", "Sends.")
    assert send.queue_name == "emails"
    with app:
        id = send.enqueue(Email("a"))
        assert isinstance(send.queue(), sync.Queue)
        assert isinstance(app.broker(), sync.Broker)
        assert isinstance(app.handlers["emails"], sync.AppHandler)
        (worker,) = app.workers()
        with worker:
            until(lambda: seen == [id])
        assert app.queue("emails").get(id).result == "a"
    assert app.open() is app
    app.close()


def test_an_app_runs_until_a_signal():
    app = sync.App("memory://sync-app-run")
    seen = []

    @app.handler("first")
    def first(value):
        second.enqueue(value + 1)  # the app is open where its workers run

    @app.handler("second")
    def second(value):
        seen.append(value)
        os.kill(os.getpid(), signal.SIGTERM)

    with app:
        first.enqueue(1)
        app.run()
    assert seen == [2]


def test_a_sync_app_whose_core_runs_elsewhere():
    """As `holdfast worker run` does: the async core in the main thread, sync handlers that enqueue more."""
    import asyncio

    app = sync.App("memory://sync-app-elsewhere")
    seen = []

    @app.handler("first")
    def first(value):
        second.enqueue(value + 1)

    @app.handler("second")
    def second(value):
        seen.append((value, app.queue("second").stats().processing))
        os.kill(os.getpid(), signal.SIGTERM)

    async def main():
        async with app.core:
            await app.core.handlers["first"].enqueue(1)
            await app.core.run()

    asyncio.run(main())
    assert seen == [(2, 1)]


def test_generic_and_named():
    assert sync.Queue[int].__origin__ is sync.Queue
    with sync.connect("memory://") as broker:
        assert repr(broker.queue("q")) == "sync.Queue('q')"
    assert set(sync.__all__) == {core.__name__ for core in sync.NAMES} | {
        "UnknownOutcome",
        "connect",
        "backup",
        "restore",
        "move",
    }


def test_threads_of_callbacks_end_with_the_broker():
    heard = threading.Event()

    def ours():
        return [thread for thread in threading.enumerate() if "message.enqueued" in thread.name]

    with sync.connect("memory://") as broker:
        broker.on("message.enqueued", lambda event: heard.set())
        leave = broker.on("message.enqueued", lambda event: None)
        broker.queue("q").enqueue(1)
        assert heard.wait(10)
        leave()
    until(lambda: not ours())
