"""Who keeps others waiting: a process that is stopped while it holds the folder's lock is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import admin
from holdfast.errors import Unavailable
from holdfast.stores.log.folder import lock as lock_module
from holdfast.stores.log.folder.lock import FolderLock

HOLDER = """
import sys, time
from pathlib import Path
from holdfast.stores.log.folder.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
lock.release()
"""
BRIEF = 1.0  # seconds a call may take


def started(command: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock of the folder, and is stopped."""
    (tmp_path / "store").mkdir()
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "store" / "lock")]
    process = started(command)
    assert process.stdin is not None
    assert process.stdout is not None
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait(10)
    process.stdin.close()
    process.stdout.close()


def stop(holder: subprocess.Popen[str]) -> None:
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED)


def names(error: object, holder: subprocess.Popen[str]) -> bool:
    """The process, since when (today), that it is stopped, and what to do."""
    today = datetime.now(UTC).strftime("%Y-%m-%dT%H")
    said = f"process {holder.pid} holds the folder's lock since {today}"
    return all(words in str(error) for words in (said, "is stopped", f"kill -CONT {holder.pid}"))


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
async def test_stopped_holder_of_the_lock_is_named(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(tmp_path / "other"):
        pass  # its engine is imported
    stop(holder)
    began = time.monotonic()
    with pytest.raises(Unavailable) as opening:
        await holdfast.connect(tmp_path / "store", connect_timeout=BRIEF)
    assert time.monotonic() - began < BRIEF + 1
    assert names(opening.value, holder), opening.value

    monkeypatch.setenv("HOLDFAST_STORE_CONNECT_TIMEOUT", str(BRIEF))
    checks = {check.name: check for check in await admin.doctor(str(tmp_path / "store"))}
    assert checks["store"].state == "fail"
    assert names(checks["store"].detail, holder), checks["store"].detail


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
async def test_calls_name_the_stopped_holder_and_go_on_when_it_does(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait(10)
    async with holdfast.connect(tmp_path / "store", operation_timeout=4 * BRIEF) as broker:
        queue = await broker.queue("jobs")
        again = started(holder.args)
        try:
            stop(again)
            with pytest.raises(Unavailable) as waited:
                await queue.enqueue(1)
            assert names(waited.value, again), waited.value
        finally:
            again.send_signal(signal.SIGCONT)
            again.communicate("", timeout=10)
        await queue.enqueue(2)
        assert (await queue.stats()).pending == 1


@pytest.mark.parametrize("content", [b"", b"\0" * 16, b"\xff" * 16, b"x" * 40])
def test_what_somebody_else_wrote_there_harms_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    lock = FolderLock(tmp_path / "lock")
    try:
        lock._waits = True
        assert "process" in lock.holder() or lock.holder() == ""
        lock.acquire()
        lock.release()
    finally:
        lock.close()


EMPTIED = """
import asyncio, os, sys, holdfast
async def main():
    async with holdfast.connect(sys.argv[1]) as broker:
        queue = await broker.queue("jobs")
        for size in (0, 3):
            os.truncate(sys.argv[1] + "/lock", size)
            await queue.enqueue(size)
        print((await queue.stats()).pending)
asyncio.run(main())
"""


def test_who_empties_the_lock_file_ends_nobody(tmp_path: Path) -> None:
    """As `> lock` does; while it was mapped into memory, every process that looked there was killed (SIGBUS)."""
    ran = subprocess.run(
        [sys.executable, "-c", EMPTIED, str(tmp_path / "store")], capture_output=True, text=True, timeout=60
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "2\n"), ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="who holds a lock is read from /proc")
def test_a_holder_that_does_not_sign_is_named_by_the_system(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    plain = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(1, flush=True); sys.stdin.read()"
    lock = FolderLock(path)
    lock.acquire()  # signed by this process, which holds it no more
    lock.release()
    other = started([sys.executable, "-c", plain, str(path)])
    try:
        assert other.stdout is not None
        assert other.stdout.readline()
        lock._waits = True
        assert lock.holder() == f"process {other.pid} holds the folder's lock"
    finally:
        other.communicate("", timeout=10)
        lock.close()


def test_a_disk_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "_state", lambda path: "D")  # `chaos frozen --fault hung` does it for real
    lock = FolderLock(tmp_path / "lock")
    try:
        lock.acquire()
        assert lock.holder() == ""
        lock._held = (threading.get_native_id(), time.time() - 5)
        assert lock.holder().startswith("its disk has not answered since 20")
        lock.release()
        assert lock.holder() == ""
    finally:
        lock.close()


def test_nobody_is_named_while_nobody_waits(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "lock")
    try:
        lock.acquire()
        assert lock.holder() == ""
        lock.release()
        assert (tmp_path / "lock").stat().st_size == 16
    finally:
        lock.close()
