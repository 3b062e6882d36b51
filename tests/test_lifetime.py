"""Brokers that nobody closes: what is printed when their process ends, and what their end may wait for."""

import asyncio
import concurrent.futures.thread
import contextlib
import faulthandler
import gc
import subprocess
import sys
import threading
import time

import pytest

import holdfast
from holdfast.errors import ConfigError
from tests.servers.nats import Server as NatsServer

USE = """
import asyncio, logging, sys, holdfast
logging.getLogger("holdfast").setLevel("ERROR")  # a store may have something to say about its server
async def use(broker, count=2):
    queue = await broker.queue("exit")
    await queue.enqueue_many(range(count))
    held = await queue.dequeue(wait=5)
    await asyncio.to_thread(broker.store.extend_from_thread, "exit", [(held.id, held.token)], 60)
    await held.complete()
    return queue
def use_blocking(broker):
    queue = broker.queue("exit")
    queue.enqueue(1)
    queue.dequeue(wait=5).complete()
    return queue
async def kept():
    global broker
    broker = await holdfast.connect(sys.argv[1])
    await use(broker, 20)
async def dropped():
    await use(await holdfast.connect(sys.argv[1]))
async def dropped_early():
    await use(await holdfast.connect(sys.argv[1]))
    await asyncio.sleep(0.3)
async def working():
    await (await use(await holdfast.connect(sys.argv[1]))).worker(print).start()
def blocking():
    global broker
    use_blocking(broker := holdfast.sync.connect(sys.argv[1]))
def blocking_dropped():
    use_blocking(holdfast.sync.connect(sys.argv[1]))
def blocking_working():
    global worker
    worker = use_blocking(holdfast.sync.connect(sys.argv[1])).worker(lambda value: None)
    worker.start()
"""
ENDS = [f"asyncio.run({name}())" for name in ("kept", "dropped", "dropped_early", "working")]
ENDS += ["blocking()", "blocking_dropped()", "blocking_working()"]
SOME_ENDS = ["asyncio.run(dropped())", "asyncio.run(working())", "blocking_working()"]  # a process takes its time


@pytest.fixture(scope="module")
def nats_server():
    with NatsServer() as server:
        yield server


@pytest.fixture
def url(request, tmp_path):
    match request.param:
        case "memory":
            return "memory://exit"
        case "file":
            return f"file://{tmp_path}/store"
        case "slatedb":
            pytest.importorskip("slatedb")
            return f"slatedb+file://{tmp_path}/store"
        case "nats":
            return f"{request.getfixturevalue('nats_server').url}?prefix=exit{tmp_path.name[-20:].replace('_', '')}"
        case name:
            return request.getfixturevalue(name).url


STORES = ["memory", "file", "slatedb", "postgres", "s3", "nats"]


@pytest.mark.parametrize("url", STORES, indirect=True)
def test_nothing_is_printed_when_a_process_ends_without_close(url):
    at_once = 1 if url.startswith("slatedb") else 4  # processes; a second one would take a database over
    ends = ENDS if url.startswith("file") else SOME_ENDS
    said = {}
    for some in (ends[at : at + at_once] for at in range(0, len(ends), at_once)):
        running = {end: _process(USE + end, url) for end in some}
        try:
            for end, process in running.items():
                _, error = process.communicate(timeout=30)
                if process.returncode or error:
                    said[end] = (process.returncode, error)
        finally:
            for process in running.values():
                process.kill()
    assert said == {}


def _process(program, url):
    return subprocess.Popen(
        [sys.executable, "-c", program, url], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


AT_SOMETHING = """
import sys, threading, time
from holdfast.stores.log.commit_queue import CommitQueue
from holdfast.stores.log.entries import Step
def run(works):
    begun.set()
    time.sleep(0.5)
    print("finished", flush=True)
begun = threading.Event()
commits = CommitQueue("holdfast-test", run, finish=lambda: None, leads_in_caller=LEADS)
threading.Thread(target=commits.put, args=(Step(None), 9), daemon=True).start()
begun.wait(9)
"""


@pytest.mark.parametrize("leads", [True, False])
def test_the_end_of_a_process_waits_for_what_a_store_is_at(leads):
    """A thread that is stopped inside a library ends the process with an abort (`FATAL: exception not rethrown`)."""
    program = f"LEADS = {leads}\n{AT_SOMETHING}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "finished\n", "")


LOCKS = [concurrent.futures.thread._global_shutdown_lock, threading._active_limbo_lock]


@pytest.mark.parametrize("loop", ["runs", "has ended"])
async def test_the_end_of_a_dropped_broker_waits_for_no_lock(tmp_path, loop):
    """Garbage is collected in the middle of anything, also where this very thread holds a lock."""
    gc.disable()
    try:
        made = _made_in_a_cycle(f"file://{tmp_path}/store")
        await (made if loop == "runs" else asyncio.to_thread(asyncio.run, made))
        assert _ours()
        # A deadlock would be for ever: say where, and end.
        faulthandler.dump_traceback_later(20, exit=True)
        with contextlib.ExitStack() as held:
            for lock in LOCKS:
                held.enter_context(lock)
            gc.collect()
        faulthandler.cancel_dump_traceback_later()
    finally:
        gc.enable()
    deadline = time.monotonic() + 10
    while _ours() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert _ours() == []


async def _made_in_a_cycle(url):
    broker = await holdfast.connect(url)
    await (await broker.queue("q")).enqueue(1)
    broker.itself = broker  # only a collection finds it


@pytest.fixture(autouse=True)
def _threads_of_others():
    """What other tests of this process have left does not count."""
    _others.clear()
    gc.collect()
    _others.update(thread.ident for thread in threading.enumerate())


_others = set()


def _ours():
    found = [thread for thread in threading.enumerate() if thread.ident not in _others]
    return [thread.name for thread in found if thread.name.startswith("holdfast")]


def test_the_blocking_face_gives_its_thread_back(tmp_path):
    with holdfast.sync.connect(f"file://{tmp_path}/store") as broker:
        queue = broker.queue("q")
        queue.enqueue(1)
        assert "holdfast-sync" in [thread.name for thread in threading.enumerate()]
    assert _ours() == []
    with pytest.raises(ConfigError, match="closed"):
        queue.enqueue(2)
    assert _ours() == []
    with holdfast.sync.connect(f"file://{tmp_path}/store") as broker:
        assert broker.queue("q").dequeue().value == 1


def test_a_dropped_blocking_broker_gives_its_thread_back(tmp_path):
    holdfast.sync.connect(f"file://{tmp_path}/store").queue("q").enqueue(1)
    gc.collect()
    deadline = time.monotonic() + 10
    while _ours() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _ours() == []


def test_a_dropped_blocking_broker_ends_its_callbacks(tmp_path):
    heard = []
    broker = holdfast.sync.connect(f"file://{tmp_path}/store")
    broker.on("message.enqueued", heard.append)
    broker.queue("q").enqueue(1)
    del broker
    gc.collect()
    deadline = time.monotonic() + 10
    while _ours() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (len(heard), _ours()) == (1, [])


async def test_a_handler_may_close_the_broker_of_its_worker(tmp_path):
    broker = await holdfast.connect(f"file://{tmp_path}/store")
    queue = await broker.queue("q", lease=60)
    await queue.enqueue(1)

    async def close(value):
        await broker.close()

    worker = queue.worker(close)
    await asyncio.wait_for(worker.run(), 10)
    async with holdfast.connect(f"file://{tmp_path}/store") as again:
        delivery = await (await again.queue("q")).dequeue()
    assert delivery is not None
    assert delivery.attempt == 1


async def test_a_callback_may_close_the_broker(tmp_path):
    broker = await holdfast.connect(f"file://{tmp_path}/store")

    async def close(event):
        await broker.close()

    broker.on("message.enqueued", close)
    await (await broker.queue("q")).enqueue(1)
    began = time.monotonic()
    await broker.close()
    assert time.monotonic() - began < 4  # it did not wait for the callback that waited for it
    with pytest.raises(ConfigError, match="closed"):
        await broker.queues()
