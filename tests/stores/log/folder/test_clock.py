from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from holdfast.stores.log.folder import FolderSpace
from holdfast.stores.log.folder.clock import MARK_INTERVAL, SCHEMA, FolderClock
from holdfast.stores.log.machine_clock import boot_id, since_boot


class Machine:
    """A wall clock and a clock since boot that tests move."""

    def __init__(self):
        self.wall, self.ticks = 1_000_000.0, 50.0

    def pass_time(self, seconds: float):
        self.wall += seconds
        self.ticks += seconds

    def open(self, connection: apsw.Connection, boot: str) -> FolderClock:
        return FolderClock.anchored(connection, boot=boot, wall=lambda: self.wall, ticks=lambda: self.ticks)


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def connection():
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA)
    return connection


def test_steps_of_the_wall_clock_move_nothing(machine, connection):
    clock = machine.open(connection, "boot 1")
    assert clock.now() == 1_000_000.0
    machine.wall += 3600
    machine.pass_time(10)
    assert clock.now() == 1_000_010.0
    assert machine.open(connection, "boot 1").now() == 1_000_010.0


def test_a_boot_with_the_right_time(machine, connection):
    machine.open(connection, "boot 1")
    machine.pass_time(500)
    machine.ticks = 3.0
    assert machine.open(connection, "boot 2").now() == 1_000_500.0


def test_a_boot_with_a_lost_clock_goes_on_where_it_was(machine, connection):
    clock = machine.open(connection, "boot 1")
    machine.pass_time(MARK_INTERVAL + 1)
    clock.mark(connection, clock.now(), clock.calendar())
    machine.wall, machine.ticks = 0.0, 3.0
    assert machine.open(connection, "boot 2").now() == 1_000_000.0 + MARK_INTERVAL + 1


def test_marks_are_rare(machine, connection):
    clock = machine.open(connection, "boot 1")
    before = connection.total_changes()
    for _ in range(10):
        machine.pass_time(1)
        clock.mark(connection, clock.now(), clock.calendar())
    assert connection.total_changes() == before


def test_the_machine_tells():
    assert boot_id() == boot_id() != ""
    assert since_boot() <= since_boot()


async def test_everybody_has_the_same_time(tmp_path: Path):
    first = await FolderSpace.open(tmp_path)
    second = await FolderSpace.open(tmp_path)
    instants = [first.clock(), second.clock(), first.clock()]
    assert instants == sorted(instants)
    assert instants[-1] - instants[0] < 1
    await first.close()
    await second.close()
