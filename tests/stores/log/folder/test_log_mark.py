"""A write-ahead log that was cut off behind a damaged frame: said at opening and by doctor; nothing else is."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import admin
from holdfast.stores.log.folder.log_mark import CUT, MARK, LogMark
from holdfast.stores.log.folder.wal import FRAME_HEADER_BYTES, HEADER_BYTES, is_sound

SENT = 30
LOG, DATABASE = "holdfast.db-wal", "holdfast.db"
SENDS = f"""
import asyncio, os, signal, sys, holdfast
async def main():
    broker = await holdfast.connect(sys.argv[1])
    queue = await broker.queue("jobs")
    await asyncio.sleep(0.1)  # or the database's own date would be as young as the commits
    for number in range({SENT}):
        await queue.enqueue(number)
    assert await queue.dequeue() is not None
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The folder of a process that was killed after all its messages were acknowledged, and one was leased."""
    folder = tmp_path / "store"
    send(folder)
    return folder


def send(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SENDS, folder.as_uri()], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def frame(folder: Path, number: int) -> int:
    """Where a frame of the log begins."""
    page = int.from_bytes((folder / LOG).read_bytes()[8:12], "big")
    return HEADER_BYTES + number * (FRAME_HEADER_BYTES + page)


async def opened(folder: Path) -> tuple[int, list[str]]:
    """How many messages are left, and what doctor says of the log."""
    async with holdfast.connect(folder.as_uri()) as broker:
        counts = await broker.stats()
        said = [check.detail for check in await admin.doctor(folder.as_uri()) if check.name == "log"]
        return sum(each.total for each in counts.values()), said


async def test_a_log_that_was_not_touched_says_nothing(killed: Path) -> None:
    assert await opened(killed) == (SENT, [])
    assert await opened(killed) == (SENT, []), "closed in order, the log was copied and removed"
    assert not (killed / CUT).exists()


@pytest.mark.parametrize("where", ["frame", "header of a frame", "header", "cut off"])
async def test_a_damaged_log_is_said(killed: Path, where: str, caplog: pytest.LogCaptureFixture) -> None:
    third = frame(killed, 30)
    if where == "cut off":
        os.truncate(killed / LOG, third)
    else:
        flip(killed / LOG, {"frame": third + 100, "header of a frame": third + 1, "header": 17}[where])
    try:
        left, said = await opened(killed)
    except holdfast.errors.HoldfastError:  # not even the database was in it; the loss was told before
        left, said = 0, [CUT]
    assert left < SENT
    assert len(said) == 1
    assert "the write-ahead log was cut off" in caplog.text
    if where in ("frame", "header of a frame"):
        lost = int(caplog.text.partition("cut off: ")[2].partition(" commits")[0])
        assert SENT - left <= lost + 1 <= SENT + 10, "each was a commit of its own"
        assert "remove the file log-cut" in said[0]
        (killed / CUT).unlink()
        assert (await opened(killed))[1] == [], "told once, and then it is another log"


@pytest.mark.parametrize("how", ["removed", "emptied", "zeroed"])
async def test_a_log_that_is_gone_is_said(killed: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    if how == "removed":
        (killed / LOG).unlink()
    else:
        size = (killed / LOG).stat().st_size
        os.truncate(killed / LOG, 0)
        os.truncate(killed / LOG, size if how == "zeroed" else 0)
    with contextlib.suppress(holdfast.errors.HoldfastError):  # not even the database was in it
        assert (await opened(killed))[0] < SENT
    assert "the write-ahead log was removed: up to " in caplog.text
    assert (killed / CUT).exists()


@pytest.mark.parametrize("log", ["left out", "empty"])
async def test_a_copy_without_its_log_is_said(killed: Path, log: str, tmp_path: Path) -> None:
    """Copied, every date is new."""
    async with holdfast.connect(killed.as_uri()):
        pass  # closed in order
    send(killed)
    copy = shutil.copytree(killed, tmp_path / "copy", copy_function=shutil.copy)
    for name in (LOG, "holdfast.db-shm"):
        (copy / name).unlink()
    if log == "empty":
        (copy / LOG).touch()
    left, said = await opened(copy)
    assert left == SENT
    assert len(said) == 1
    assert "the database is an earlier one, or its write-ahead log is missing: up to " in said[0]
    assert SENT <= int(said[0].partition("up to ")[2].partition(" commits")[0]) <= 2 * SENT + 10
    (copy / CUT).unlink()
    assert await opened(copy) == (SENT, []), "told once"
    assert await opened(killed) == (2 * SENT, [])


async def test_an_earlier_database_is_said(tmp_path: Path) -> None:
    folder, earlier = tmp_path / "store", tmp_path / "earlier.db"
    for number in range(3):
        async with holdfast.connect(folder.as_uri()) as broker:
            queue = await broker.queue("jobs")
            for each in range(10):
                await queue.enqueue(each)
        if number == 1:
            shutil.copy(folder / DATABASE, earlier)
    assert await opened(folder) == (30, [])
    shutil.copy(earlier, folder / DATABASE)
    left, said = await opened(folder)
    assert left == 20
    assert len(said) == 1
    assert "the database is an earlier one" in said[0]
    lost = int(said[0].partition("up to ")[2].partition(" commits")[0])
    assert 10 <= lost <= 30
    async with holdfast.connect(folder.as_uri()) as broker:
        await (await broker.queue("jobs")).enqueue(1)
    assert len((folder / CUT).read_bytes().splitlines()) == 1


async def test_two_processes_in_turn_are_no_alarm(tmp_path: Path) -> None:
    """Each counts for itself, and both note."""
    folder = tmp_path / "store"
    async with holdfast.connect(folder.as_uri()) as one, holdfast.connect(folder.as_uri()) as two:
        queues = [await broker.queue("jobs") for broker in (one, two)]
        for number in range(300):
            await queues[number % 2].enqueue("x" * 20_000)
        trial = tmp_path / "trial"
        shutil.copytree(folder, trial)
    assert await opened(trial) == (300, [])
    assert await opened(folder) == (300, [])


async def test_who_removes_a_log_that_was_copied_loses_nothing(killed: Path) -> None:
    """A tool of SQLite's own that closes last removes it in order, and knows nothing of our note."""
    sqlite3.connect(killed / DATABASE).execute("SELECT count(*) FROM objects").connection.close()
    assert not (killed / LOG).exists()
    assert await opened(killed) == (SENT, [])


async def test_a_note_that_is_older_than_the_log_is_no_alarm(tmp_path: Path) -> None:
    """After a power cut the log is on the disk and the note of its last commits may not be."""
    folder, cut = tmp_path / "store", tmp_path / "cut"
    async with holdfast.connect(folder.as_uri()) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(1)
        early = (folder / MARK).read_bytes()
        for number in range(SENT):
            await queue.enqueue(number)
        shutil.copytree(folder, cut)
    for note in (early, b"", early[:-1] + b"x", bytes(len(early))):
        trial = shutil.copytree(cut, tmp_path / "trial")
        (trial / MARK).write_bytes(note)
        assert await opened(trial) == (SENT + 1, [])
        shutil.rmtree(trial)


async def test_a_log_that_was_copied_is_no_alarm(tmp_path: Path) -> None:
    """The note is of a log that is in the database by now, whatever lies beside that."""
    folder, cut = tmp_path / "store", tmp_path / "cut"
    async with holdfast.connect(folder.as_uri()) as broker:
        queue = await broker.queue("jobs", bytes)
        for _ in range(SENT):
            await queue.enqueue(b"x" * 100)
        old = (folder / MARK).read_bytes()
    async with holdfast.connect(folder.as_uri()) as broker:
        await (await broker.queue("jobs", bytes)).enqueue(b"x")
        shutil.copytree(folder, cut)
    for log in ("as it is", "empty", "none"):
        trial = shutil.copytree(cut, tmp_path / "trial")
        (trial / MARK).write_bytes(old)
        if log == "empty":
            os.truncate(trial / LOG, 0)
        elif log == "none":
            (trial / LOG).unlink()
        assert await opened(trial) == (SENT + (log == "as it is"), [])
        shutil.rmtree(trial)


async def test_a_note_that_cannot_be_written_is_no_reason_to_refuse(tmp_path: Path) -> None:
    (tmp_path / MARK).symlink_to("/etc/hostname")
    async with holdfast.connect(tmp_path.as_uri()) as broker:
        assert await (await broker.queue("jobs")).enqueue(1)
    note = LogMark(os.open(tmp_path, os.O_RDONLY))
    assert note.read() is None
    note.close()


async def test_nothing_of_it_stays_when_the_store_goes(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with holdfast.connect(folder.as_uri()) as broker:
        await (await broker.queue("jobs")).enqueue(1)
        (folder / CUT).write_bytes(b"")
        assert await broker.uninstall() == []
    assert not folder.exists()


def test_a_header_is_sound_by_sqlites_own_sum(killed: Path) -> None:
    header = (killed / LOG).read_bytes()[:HEADER_BYTES]
    assert is_sound(header)
    assert not any(is_sound(header[:at] + bytes([header[at] ^ 1]) + header[at + 1 :]) for at in range(4, HEADER_BYTES))
