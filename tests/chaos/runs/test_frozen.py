"""The short form of the run `frozen` on every store but a folder, which is one of `test_runs.py`'s; and that it finds
what it looks for."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from importlib import import_module

import msgspec
import pytest

from chaos.frozen.wire import Wire
from chaos.runs import RUNS
from chaos.verdict import lines
from holdfast.stores.log.commit_queue import CommitQueue

frozen_run = import_module("chaos.runs.frozen")  # the name in the package is the function's
[SHORT] = [run.short for run in RUNS if run.name == "frozen"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("store", "fault"),
    [("postgres", "slow"), ("postgres", "stopped"), ("s3", "stopped"), ("slatedb", "stopped"), ("nats", "stopped")],
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
    put = CommitQueue.put
    monkeypatch.setattr(CommitQueue, "put", lambda self, entry, within: put(self, entry, within + 2.0))
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
