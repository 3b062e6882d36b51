"""The simulation finds what it must find, says the same twice, and makes what fails smaller.

The engine as it is runs through its short form in `test_runs.py`: some two hundred seeds.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from chaos.simulation.baton import EPOCH, Bell, Hang, Process, World
from chaos.simulation.bugs import BUGS
from chaos.simulation.plan import plan_of
from chaos.simulation.policies import POLICIES
from chaos.simulation.worker import Task, ask, start

SEARCH_S = 90.0  # where a seed does something else than it did, those after it are tried

# The policy and a seed at which each shows: change what a seed does, and they are others. How many seeds that takes
# from the first on says `make chaos RUN=simulate ARGS="--bug all"`.
FOUND_AT = {
    "an old list is judged by a newer head": ("bucket", 297),
    "dates decide over deletion": ("bucket", 38),
    "a used list hides better blocks": ("bucket", 4),
    "409 taken as taken": ("bucket", 17),
    "503 taken as done": ("bucket", 10),
    "lost replies are failures": ("bucket", 154),
    "the head is read again after earlier attempts": ("bucket", 1664),
    "If-Match ignored": ("bucket", 3),
    "client clock in leases": ("bucket", 2),
    "the graveyard forgets at once": ("bucket", 154),
    "no fence against late writes": ("bucket", 10),
    "released too early": ("folder", 2),
    "no token check": ("folder", 4),
    "settle before durable": ("folder", 1),
    "acknowledge before durable": ("slatedb", 1),
    "repeat not recognised": ("folder", 1),
    "enqueue loses every nth": ("folder", 1),
    "attempt counted at failure": ("slatedb", 2),
    "archive misses one": ("slatedb", 1),
    "dead without trace": ("slatedb", 1),
    "payload spoiled": ("folder", 1),
    "newest first": ("folder", 1),
    "no poll fallback": ("folder", 1),
    "second completion accepted": ("slatedb", 2),
}


@pytest.fixture(scope="module")
def worker() -> Iterator[subprocess.Popen[str]]:
    process = start()
    yield process
    process.stdin.close()
    process.wait(60)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("bug", FOUND_AT)
def test_seeded_bugs_are_found(worker: subprocess.Popen[str], bug: str) -> None:
    policy, first = FOUND_AT[bug]
    end, seed = time.monotonic() + SEARCH_S, first
    while not ask(worker, Task(policy=policy, first=seed, count=1, bug=bug)).found:
        assert time.monotonic() < end, f"not found at the seeds {first} to {seed}"
        seed += 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_seed_runs_in_the_same_way_twice(worker: subprocess.Popen[str], policy: str) -> None:
    done = ask(worker, Task(policy=policy, first=100, count=1))
    assert (done.twice, done.failures) == (1, [])


@pytest.mark.timeout(120)
def test_what_was_delayed_does_not_go_before_urgent_messages_that_are_not_listed(worker: subprocess.Popen[str]) -> None:
    assert ask(worker, Task(policy="bucket", first=477, count=1)).failures == []


@pytest.mark.timeout(120)
def test_what_fails_is_made_smaller(worker: subprocess.Popen[str]) -> None:
    policy, seed = FOUND_AT["newest first"]
    plan = plan_of(policy, seed)
    smaller = ask(worker, Task(policy=policy, first=seed, count=1, bug="newest first", shrinks=True))
    text = smaller.failures[0].smaller
    assert "order" in text or "priority" in text
    assert f"steps={plan.steps}" not in text


def test_every_bug_names_what_is_there() -> None:
    assert set(FOUND_AT) == set(BUGS)
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
