"""A real process that plays seeds: a task in JSON on each line of its input, an answer on each line of its output.

Texts have the same hashes in every worker, so that a seed runs in the same way wherever it runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO

import msgspec

from . import bugs
from .batch import ready, tidy
from .plan import Plan, plan_of
from .scene import Outcome, play
from .shrink import kind_of, shrink

_TWICE_EVERY = 100
_SOURCE = Path(__file__).resolve().parents[2]


class Task(msgspec.Struct, kw_only=True):
    policy: str
    first: int
    count: int
    bug: str = ""  # a seeded one: stop at the first seed that finds it
    shrinks: bool = False
    shows: bool = False  # the history of each seed, too


class Failure(msgspec.Struct):
    seed: int
    violations: list[str]
    smaller: str = ""  # the plan that was left after shrinking, and what it shows


class Done(msgspec.Struct):
    policy: str
    first: int
    count: int
    hits: dict[str, int]
    calls: int
    delivered: int
    failures: list[Failure]
    twice: int  # seeds that ran a second time
    seconds: float = 0.0  # of processor time
    bug: str = ""
    shown: list[str] = []  # the calls, where that was asked for
    found: int = 0  # with a bug: how many seeds that took; 0: not found


def work(task: Task) -> Done:
    hits: Counter[str] = Counter()
    begun = time.process_time()
    done = Done(task.policy, task.first, task.count, {}, 0, 0, [], 0, bug=task.bug)
    with bugs.seeded(task.bug):
        for seed in range(task.first, task.first + task.count):
            outcome = _played(task, seed, done)
            hits.update(outcome.hits)
            done.calls += outcome.calls
            done.delivered += outcome.delivered
            tidy(seed)
            if task.bug:
                if _is_found(task, outcome):
                    done.failures.append(Failure(seed, outcome.violations))
                    done.found = seed - task.first + 1
                    if task.shrinks:
                        done.failures[-1].smaller = _smaller(plan_of(task.policy, seed), outcome)
                    break
            elif outcome.violations:
                done.failures.append(Failure(seed, outcome.violations))
                if task.shrinks:
                    done.failures[-1].smaller = _smaller(plan_of(task.policy, seed), outcome)
    done.hits = dict(hits)
    done.seconds = time.process_time() - begun
    return done


def _is_found(task: Task, outcome: Outcome) -> bool:
    """Whether it is this bug that shows: by its own kind of violation, or since the seed is fine without it."""
    kinds = {kind_of(each) for each in outcome.violations}
    if shows := bugs.BUGS[task.bug].shows:
        return bool(kinds & set(shows))
    if not kinds:
        return False
    with bugs.honest():
        return bool(kinds - {kind_of(each) for each in play(plan_of(task.policy, outcome.seed)).violations})


def _played(task: Task, seed: int, done: Done) -> Outcome:
    plan = plan_of(task.policy, seed)
    outcome = play(plan, shown=done.shown if task.shows else None)
    if seed % _TWICE_EVERY == 0:
        done.twice += 1
        again = play(plan)
        if again.trace != outcome.trace:
            outcome.violations.append(f"not the same twice: {outcome.trace} {again.trace}")
    return outcome


def _smaller(whole: Plan, outcome: Outcome) -> str:
    plan, left = shrink(whole, outcome)
    kind = kind_of(outcome.violations[0])
    shown = next((each for each in left.violations if kind_of(each) == kind), left.violations[0])
    return f"{plan}: {shown}"


def start() -> subprocess.Popen[str]:
    """A worker; talk to it by `ask`."""
    paths = [str(_SOURCE / "src"), str(_SOURCE), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", "chaos.simulation.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_SOURCE,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


def ask(worker: subprocess.Popen[str], task: Task) -> Done:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(msgspec.json.encode(task).decode() + "\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"the worker ended in seeds {task.first} to {task.first + task.count - 1} of {task.policy}")
    return msgspec.json.decode(line, type=Done)


def main(tasks: IO[str], answers: IO[str]) -> None:
    with ready():
        for line in tasks:
            answer = work(msgspec.json.decode(line, type=Task))
            answers.write(msgspec.json.encode(answer).decode() + "\n")
            answers.flush()


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
