"""The short form of the run `frozen` on every store but a folder, which is one of `test_runs.py`'s; and that it finds
what it looks for."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module

import msgspec
import pytest

import holdfast
from chaos.frozen.verbs import BROKER_VERBS, VERBS
from chaos.frozen.wire import Wire
from chaos.runs import RUNS
from chaos.verdict import lines
from holdfast.archive import Archive
from holdfast.dead_letters import DeadLetters
from holdfast.queue import Queue
from holdfast.scheduling import Schedules
from holdfast.stores.log.folder.commit_thread import Lane

frozen_run = import_module("chaos.runs.frozen")  # the name in the package is the function's
[SHORT] = [run.short for run in RUNS if run.name == "frozen"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("store", "fault"),
    [
        *(("postgres", "slow"), ("postgres", "stopped"), ("s3", "stopped"), ("slatedb", "stopped")),
        *(("nats", "stopped"), ("http", "stopped")),
    ],
)
async def test_short_form(store: str, fault: str) -> None:
    verdict = await frozen_run.frozen(msgspec.structs.replace(SHORT, store=store, fault=fault))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.effective_kills > 20  # calls that were hit


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs a disk of its own, which root mounts")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("fault", "hit"), [("slow", 20), ("hung", 20), ("read-only", 20), ("full", 5)])
async def test_disks_of_a_folder(fault: str, hit: int) -> None:
    verdict = await frozen_run.frozen(msgspec.structs.replace(SHORT, store="file", fault=fault))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.effective_kills > hit


@pytest.mark.timeout(120)
async def test_a_call_that_ends_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Lane.submit

    def late(self: Lane, step: object, *, deadline: float, **more: object) -> object:
        return submit(self, step, deadline=deadline + 2.0, **more)

    monkeypatch.setattr(Lane, "submit", late)
    verdict = await frozen_run.frozen(SHORT)
    assert any("after its timeout" in failure for failure in verdict.failures)
    assert not verdict.valid


@pytest.mark.timeout(120)
async def test_a_wrong_error_and_a_lost_message_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgotten(*_: object) -> None:
        return None

    monkeypatch.setattr(frozen_run, "_status", forgotten)
    monkeypatch.setattr(frozen_run, "_AWAY", ())
    verdict = await frozen_run.frozen(SHORT)
    assert verdict.lost > 0
    assert any("enqueue: Unavailable" in failure for failure in verdict.failures)


def test_a_verb_of_many_steps_has_an_end() -> None:
    for fault in ("slow", "full", "read-only", "restarted"):
        row = frozen_run.Row(fault)
        frozen_run._weigh(row, [("purge", 4.9, None), ("dead.replay", 12.9, None), ("maintain", 24.9, None)])
        assert not row.late
        frozen_run._weigh(row, [("purge", 5.1, None), ("dead.replay", 13.1, None), ("maintain", 60.0, TimeoutError())])
        assert [each.split()[0] for each in row.late] == ["purge", "dead.replay", "maintain"]
        assert row.wrong == ["maintain: TimeoutError: "]
    row = frozen_run.Row("stopped")
    frozen_run._weigh(row, [("maintain", 4.9, None), ("dead.replay", 5.1, None)])
    assert [each.split()[0] for each in row.late] == ["dead.replay"]


async def _ticked(work: Callable[[], None]) -> frozen_run.Row:
    """What the run says of an event loop in which this is done."""
    row = frozen_run.Row("stopped")
    ticking = asyncio.create_task(frozen_run._tick(row))
    await asyncio.sleep(0.05)
    work()
    await asyncio.sleep(0.05)
    ticking.cancel()
    return row


@pytest.mark.parametrize("how", ["waits", "works"])
async def test_a_loop_that_is_held_up_is_found(how: str) -> None:
    row = await _ticked(lambda: _burn(0.5) if how == "works" else time.sleep(0.5))
    assert 0.45 < row.held < 5.0
    late, in_time = frozen_run.TIMEOUT_SECONDS + row.starved + 1.1, frozen_run.TIMEOUT_SECONDS + row.starved + 0.9
    frozen_run._weigh(row, [("enqueue", late, None), ("dequeue", in_time, None)])
    assert [each.split()[0] for each in row.late] == ["enqueue"], "what the store's own code held up is no excuse"


@pytest.mark.skipif(sys.platform != "linux", reason="how long a thread could not run")
async def test_others_who_run_are_no_hold_up() -> None:
    """Three processes share this thread's processor."""
    chosen = os.sched_getaffinity(0)
    busy = f"import os; os.sched_setaffinity(0, {{{min(chosen)}}})\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(3)]  # noqa: ASYNC220 - it takes a moment
    try:
        os.sched_setaffinity(threading.get_native_id(), {min(chosen)})
        await asyncio.sleep(1)
        row = await _ticked(lambda: _burn(0.2))
    finally:
        os.sched_setaffinity(threading.get_native_id(), chosen)
        for each in others:
            each.kill()
            each.wait()
    assert row.starved > 0.2, "four share one processor"
    assert row.held < 0.5


def _burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.timeout(60)
def test_the_wire_outlives_those_who_hang_up_at_once() -> None:
    """Or a store looks away long after its server is back."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.closing(Wire(server.getsockname()[1])) as wire:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", wire.port), timeout=10) as caller:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # hang up with a reset
        with socket.create_connection(("127.0.0.1", wire.port), timeout=10) as caller:
            caller.sendall(b"still there?")
            assert caller.recv(100) == b"still there?"


def _echo(server: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed
        while True:
            caller, _ = server.accept()
            with caller, contextlib.suppress(OSError):
                caller.sendall(caller.recv(100))


def _coroutines(kind: type, prefix: str = "") -> set[str]:
    public = [name for name in dir(kind) if not name.startswith("_")]
    return {prefix + name for name in public if inspect.iscoroutinefunction(getattr(kind, name))}


def test_every_verb_is_tried() -> None:
    """What a user can await is in the run, or here with the reason why not."""
    kinds = {"": Queue, "dead.": DeadLetters, "archive.": Archive, "schedules.": Schedules}
    verbs = set().union(*(_coroutines(kind, prefix) for prefix, kind in kinds.items()))
    tried = {name.split(" ")[0] for name in [*VERBS, *BROKER_VERBS]} | {"connect", "close"}
    ends_the_run = {"uninstall"}
    of_several = {"schedules.declare", "schedules.declare_file"}  # one `put` after the other
    assert verbs | _coroutines(holdfast.Broker) <= tried | ends_the_run | of_several
