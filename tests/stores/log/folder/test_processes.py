"""Several real processes on one folder. The file is also the program they run."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.stores.log.folder import FolderSpace
from holdfast.stores.log.folder.lock import FolderLock
from tests import ROOT
from tests.stores.log.space_suite import keys, value


class Child:
    """A process that runs one of the programs below."""

    def __init__(self, program: str, folder: Path, *arguments: str):
        command = [sys.executable, "-m", __name__, program, str(folder), *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, text: str):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    async def line(self) -> str:
        async with asyncio.timeout(20):
            line = await asyncio.to_thread(self.process.stdout.readline)
        return line.strip()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


@pytest.fixture
def child(tmp_path: Path):
    children = []

    def start(program: str, *arguments: str) -> Child:
        children.append(Child(program, tmp_path / "store", *arguments))
        return children[-1]

    yield start
    for each in children:
        each.kill()
        each.process.stdout.close()


async def test_many_may_be_the_first(child, tmp_path: Path):
    children = [child("open") for _ in range(5)]
    for each in children:
        assert await each.line() == "starting"
    for each in children:
        each.say("go")
    assert [await each.line() for each in children] == ["opened"] * 5
    space = await FolderSpace.open(tmp_path / "store")
    assert len(await space.read(keys("opened/"))) == 5
    await space.close()


async def test_everybody_gets_a_share(child):
    children = [child("commit for", "2") for _ in range(4)]
    for each in children:
        assert await each.line() == "ready"
    for each in children:
        each.say("go")
    counts = [int(await each.line()) for each in children]
    assert min(counts) >= 0.15 * sum(counts), counts


async def test_signals_cross_processes(child, tmp_path: Path):
    space = await FolderSpace.open(tmp_path / "store")
    echo = child("echo")
    assert await echo.line() == "ready"
    for number in range(50):
        ticket = space.ticket("pong")
        await space.transact(lambda tx, number=number: (tx.put("ping", b"%d" % number), tx.signal("ping")))
        async with asyncio.timeout(20):
            while await space.read(value("pong")) != b"%d" % number:
                assert await space.watch("pong", 20, since=ticket)
                ticket = space.ticket("pong")
    await space.close()


async def test_a_killed_process_takes_nobody_along(child, tmp_path: Path):
    victim, *others = children = [child("commit", str(number)) for number in range(3)]
    for each in children:
        for _ in range(20):
            await each.line()
    victim.process.send_signal(signal.SIGKILL)
    acknowledged = (await asyncio.to_thread(victim.process.stdout.read)).split()
    for each in others:
        for _ in range(100):  # more than was buffered in the pipe is not needed: they must go on at all
            assert await each.line()
    for each in others:
        each.kill()
        rest = (await asyncio.to_thread(each.process.stdout.read)).split("\n")[:-1]  # the last line may be cut
        acknowledged += rest
    space = await FolderSpace.open(tmp_path / "store")
    for at in range(0, len(acknowledged), 500):
        some = [key for key in acknowledged[at : at + 500] if key]
        assert await space.read(lambda view, some=some: [key for key in some if view.get(key) is None]) == []
    assert {line.name: line.state for line in await space.check()}["integrity"] == "ok"
    await space.close()


async def test_a_step_expires_while_another_process_has_the_lock(child, tmp_path: Path):
    space = await FolderSpace.open(tmp_path / "store")
    holder = child("hold")
    assert await holder.line() == "held"
    with pytest.raises(Unavailable, match="nothing was done"):
        await space.transact(lambda tx: tx.put("late", b"x"), deadline=0.1)
    holder.say("release")
    assert await holder.line() == "released"
    await space.transact(lambda tx: tx.put("next", b"x"))
    assert await space.read(keys()) == ["next"]
    await space.close()


async def test_opening_and_closing_end_while_another_process_has_the_lock(child, tmp_path: Path):
    (await FolderSpace.open(tmp_path / "store")).clock()
    holder = child("hold")
    assert await holder.line() == "held"
    with pytest.raises(Unavailable, match="no turn"):
        await FolderSpace.open(tmp_path / "store", operation_timeout=0.2)


async def test_a_forked_child_does_not_inherit_the_lock(child, tmp_path: Path):
    parent = child("fork and die")
    orphan = int(await parent.line())
    try:
        assert await asyncio.to_thread(parent.process.wait, 10) == -signal.SIGKILL
        space = await FolderSpace.open(tmp_path / "store", operation_timeout=10)
        await space.transact(lambda tx: tx.put("a", b"x"))
        await space.close()
    finally:
        os.kill(orphan, signal.SIGKILL)


# The programs


async def open_program(folder: Path):
    print("starting", flush=True)
    sys.stdin.readline()
    space = await FolderSpace.open(folder)
    await space.transact(lambda tx: tx.create(f"opened/{os.getpid()}", b""))
    print("opened", flush=True)
    sys.stdin.readline()


async def commit_for_program(folder: Path, seconds: str):
    space = await FolderSpace.open(folder)
    print("ready", flush=True)
    sys.stdin.readline()
    end, count = time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        await space.transact(lambda tx: tx.put(f"head/{os.getpid()}", b"x" * 1000))
        count += 1
    print(count, flush=True)
    await space.close()


async def commit_program(folder: Path, name: str):
    space = await FolderSpace.open(folder)
    for number in range(1_000_000):
        key = f"{name}/{number:07d}"
        await space.transact(lambda tx, key=key: tx.create(key, b"x" * 500))
        print(key, flush=True)


async def echo_program(folder: Path):
    space = await FolderSpace.open(folder)
    ticket, last = space.ticket("ping"), None
    print("ready", flush=True)
    while True:
        await space.watch("ping", 30, since=ticket)
        ticket = space.ticket("ping")
        data = await space.read(value("ping"))
        if data != last:
            last = data
            await space.transact(lambda tx, data=data: (tx.put("pong", data), tx.signal("pong")))


async def hold_program(folder: Path):
    lock = FolderLock(folder / "lock")
    lock.acquire()
    print("held", flush=True)
    sys.stdin.readline()
    lock.release()
    print("released", flush=True)


async def fork_and_die_program(folder: Path):
    space = await FolderSpace.open(folder)

    def step(tx):
        tx.put("lost", b"x")
        orphan = os.fork()
        if orphan == 0:
            time.sleep(30)
            os._exit(0)
        print(orphan, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    await space.transact(step)


if __name__ == "__main__":
    program = globals()[sys.argv[1].replace(" ", "_") + "_program"]
    asyncio.run(program(Path(sys.argv[2]), *sys.argv[3:]))
