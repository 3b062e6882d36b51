"""The blocking face across processes: fork, spawn, gunicorn --preload."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from holdfast import ConfigError, sync

SITE = """
import os
import holdfast

queue = None
{opening}

def application(environ, start_response):
    global queue
    try:
        if queue is None:
            queue = holdfast.sync.connect(os.environ["JOBS"]).queue("hits")
        body = queue.enqueue({{"pid": os.getpid()}})
    except holdfast.ConfigError as error:
        body = f"ConfigError: {{error}}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]
"""


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "jobs")


def use_inherited(queue, folder, answers):
    """In a child: the parent's queue is refused, one of our own works."""
    try:
        queue.enqueue("inherited")
    except ConfigError as error:
        answers.put(str(error))
    else:
        answers.put("no error")
    with sync.connect(folder) as broker:
        answers.put(broker.queue("q").enqueue("child"))


def use_own(folder, answers):
    with sync.connect(folder) as broker:
        answers.put(broker.queue("q").enqueue("child"))


def test_fork(folder):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with sync.connect(folder) as broker:
        queue = broker.queue("q")
        queue.enqueue("parent")
        child = context.Process(target=use_inherited, args=(queue, folder, answers))
        child.start()
        assert "before a fork" in answers.get(timeout=30)
        assert answers.get(timeout=30)
        child.join(30)
        assert child.exitcode == 0
        queue.enqueue("parent again")
        assert [delivery.value for delivery in queue.dequeue_many(10)] == ["parent", "child", "parent again"]


def test_fork_of_an_app_that_was_open(folder):
    app = sync.App(folder)

    @app.handler("q")
    def handle(value):
        pass

    handle.enqueue(1)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def child():
        try:
            handle.enqueue(2)
        except ConfigError as error:
            answers.put(str(error))

    process = context.Process(target=child)
    process.start()
    assert "before a fork" in answers.get(timeout=30)
    process.join(30)
    app.close()


def test_fork_of_an_app_not_yet_open(folder):
    app = sync.App(folder)

    @app.handler("q")
    def handle(value):
        pass

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=handle.enqueue, args=(number,)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0, 0]
    with app:
        assert handle.queue().stats().pending == 3


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawn(folder, method):
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    with sync.connect(folder) as broker:
        queue = broker.queue("q")
        child = context.Process(target=use_own, args=(folder, answers))
        child.start()
        id = answers.get(timeout=30)
        child.join(30)
        assert queue.get(id).value == "child"


@pytest.fixture
def serve(tmp_path, folder):
    """Run a site under gunicorn with --preload and two workers; its address."""
    running = []

    def start(opening):
        (tmp_path / "site_under_test.py").write_text(SITE.format(opening=opening))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind", address]
        environment = {**os.environ, "JOBS": folder}
        running.append(subprocess.Popen([*command, "site_under_test"], cwd=tmp_path, env=environment))
        return f"http://{address}/"

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def read(url, seconds=30.0):
    """The answer, once somebody listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            assert time.monotonic() < deadline, "gunicorn did not come up"
            time.sleep(0.05)


def test_gunicorn_preload(serve, folder):
    pytest.importorskip("gunicorn")
    url = serve("")
    ids = {read(url) for _ in range(20)}
    with sync.connect(folder) as broker:
        queue = broker.queue("hits")
        assert len(ids) == queue.stats().pending == 20
        assert {delivery.id for delivery in queue.dequeue_many(20)} == ids


def test_gunicorn_preload_with_an_open_broker(serve):
    pytest.importorskip("gunicorn")
    url = serve('queue = holdfast.sync.connect(os.environ["JOBS"]).queue("hits")')
    answer = read(url)
    assert answer.startswith("ConfigError")
    assert "before a fork" in answer
