"""The simulation finds what it must find, says the same twice, and makes what fails smaller.

The engine as it is runs through its short form in `test_chaos.py`: some two hundred seeds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from chaos.runs.simulate import table
from chaos.simulation.baton import EPOCH, Bell, Hang, Process, World
from chaos.simulation.bugs import BUGS
from chaos.simulation.plan import plan_of
from chaos.simulation.policies import POLICIES
from chaos.simulation.worker import Task, ask, start

# Those that show within a few seeds; the others take a hundred and more: `make chaos RUN=simulate ARGS="--bug all"`.
QUICK = {
    "If-Match ignored": "bucket",
    "client clock in leases": "bucket",
    "503 taken as done": "bucket",
    "released too early": "folder",
    "no token check": "folder",
    "attempt counted at failure": "slatedb",
    "archive misses one": "folder",
    "settle before durable": "slatedb",
    "newest first": "slatedb",
    "enqueue loses every nth": "slatedb",
}


@pytest.fixture(scope="module")
def worker() -> Iterator[subprocess.Popen[str]]:
    process = start()
    yield process
    process.stdin.close()
    process.wait(60)


@pytest.mark.timeout(180)
def test_seeded_bugs_are_found(worker: subprocess.Popen[str]) -> None:
    rows: list[tuple[str, ...]] = [("bug", "policy", "seeds until found", "by")]
    for bug, policy in QUICK.items():
        done = ask(worker, Task(policy=policy, first=1, count=40, bug=bug))
        assert done.found, bug
        rows.append((bug, policy, str(done.found), done.failures[0].violations[0][:80]))
    print(table(rows))


@pytest.mark.timeout(120)
def test_dates_that_decide_over_deletion_are_found(worker: subprocess.Popen[str]) -> None:
    done = ask(worker, Task(policy="bucket", first=1, count=40, bug="dates decide over deletion", rewrites=2))
    assert done.found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_seed_runs_in_the_same_way_twice(worker: subprocess.Popen[str], policy: str) -> None:
    done = ask(worker, Task(policy=policy, first=100, count=1))
    assert (done.twice, done.failures) == (1, [])


@pytest.mark.timeout(120)
def test_what_fails_is_made_smaller(worker: subprocess.Popen[str]) -> None:
    found = ask(worker, Task(policy="slatedb", first=1, count=20, bug="newest first"))
    plan = plan_of("slatedb", found.failures[0].seed)
    smaller = ask(worker, Task(policy="slatedb", first=plan.seed, count=1, bug="newest first", shrinks=True))
    text = smaller.failures[0].smaller
    assert "priority" in text
    assert f"steps={plan.steps}" not in text


def test_every_bug_names_what_is_there() -> None:
    for bug in BUGS.values():
        for where, name, _ in bug.changes:
            assert name in vars(where), (where, name)


def test_threads_run_one_by_one_in_virtual_time() -> None:
    world, seen = World(1), []
    process = Process("p", 1)
    bell = Bell(world)

    def sleeper(seconds: float) -> None:
        world.sleep(seconds)
        seen.append((seconds, round(world.now)))
        if len(seen) == 3:
            bell.ring()

    for seconds in (3600.0, 1.0, 60.0):
        world.spawn(process, lambda seconds=seconds: sleeper(seconds))
    assert bell.wait(7200.0)
    assert seen == [(1.0, 1), (60.0, 60), (3600.0, 3600)]
    assert world.time() >= EPOCH + 3600.0
    world.end()


def test_a_wait_that_nothing_can_end_is_told() -> None:
    world = World(1)
    with pytest.raises(Hang):
        Bell(world).wait()
    world.end()


def test_a_killed_process_does_nothing_more_and_a_frozen_one_comes_back() -> None:
    world, seen = World(1), []
    dead, frozen = Process("dead", 1), Process("frozen", 1)

    def work(name: str) -> None:
        for _ in range(3):
            world.sleep(1.0)
            seen.append((name, round(world.now)))

    for process in (dead, frozen):
        world.spawn(process, lambda name=process.name: work(name))
    world.sleep(1.5)
    dead.is_alive, frozen.frozen_until = False, 10.0
    world.sleep(20.0)
    assert sorted(seen) == [("dead", 1), ("frozen", 1), ("frozen", 10), ("frozen", 11)]
    world.end()
    assert world.stuck == 0
