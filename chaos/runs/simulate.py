"""R16: the shipped log engine on a virtual clock and a seeded scheduler, over spaces that fail."""

from __future__ import annotations

import hashlib
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..settings import Settings
from ..simulation.policies import POLICIES
from ..simulation.worker import Done, Failure, Task, ask, start
from ..verdict import EXAMPLES, Verdict

_ROOT = Path(__file__).resolve().parents[2]
_RESULTS = _ROOT / "chaos-results"
_CHUNK = 25  # seeds of one task
_BUG_SEEDS = 5000  # after which a known bug counts as not found
_SMALLER = 2  # seeds of a policy that are made smaller
_FAILURES = 50  # kept in the progress file


class Progress(msgspec.Struct):
    """What a policy has behind it; a run that was interrupted goes on from here while the code is the same."""

    policy: str
    code: str
    chunks: set[int] = set()
    seeds: int = 0
    twice: int = 0
    calls: int = 0
    delivered: int = 0
    bad: int = 0  # seeds with violations
    seconds: float = 0.0  # of processor time
    hits: dict[str, int] = {}
    failures: list[Failure] = []

    @property
    def path(self) -> Path:
        return _RESULTS / f"simulate-{self.policy}.json"

    @classmethod
    def of(cls, policy: str, code: str) -> Progress:
        progress = cls(policy, code)
        try:
            known = msgspec.json.decode(progress.path.read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            return progress
        return known if known.code == code else progress

    def add(self, done: Done) -> None:
        self.chunks.add((done.first - 1) // _CHUNK)
        self.seeds += done.count
        self.twice += done.twice
        self.calls += done.calls
        self.delivered += done.delivered
        self.bad += len(done.failures)
        self.seconds += done.seconds
        self.hits = dict(Counter(self.hits) + Counter(done.hits))
        self.failures = (self.failures + done.failures)[:_FAILURES]

    def save(self) -> None:
        _RESULTS.mkdir(exist_ok=True)
        unfinished = self.path.with_suffix(".tmp")
        unfinished.write_bytes(msgspec.json.encode(self))
        unfinished.replace(self.path)


def code_of() -> str:
    """A name for the code as it is: figures of another do not count."""
    digest = hashlib.blake2b(digest_size=12)
    for folder in ("src/holdfast", "chaos/simulation"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def played(tasks: Iterator[Task], *, workers: int | None = None) -> Iterator[Done]:
    """The answers as they come, from one worker for each core."""
    answers: queue.Queue[Done | BaseException | None] = queue.Queue()
    lock = threading.Lock()

    def run() -> None:
        worker = start()
        try:
            while True:
                with lock:
                    task = next(tasks, None)
                if task is None:
                    break
                answers.put(ask(worker, task))
        except BaseException as error:  # noqa: BLE001  it is raised where the answers are read
            answers.put(error)
        finally:
            worker.stdin.close()  # type: ignore[union-attr]
            worker.wait()
            answers.put(None)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(workers or os.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    left = len(threads)
    while left:
        answer = answers.get()
        if answer is None:
            left -= 1
        elif isinstance(answer, BaseException):
            raise answer
        else:
            yield answer


async def simulate(settings: Settings) -> Verdict:
    """`--seeds` a policy, `--policy` one alone; `--seed N` replays one; `--bug NAME` puts a known bug in."""
    policies = (settings.policy,) if settings.policy else POLICIES
    if settings.bug:
        return _hunt(settings, policies)
    if settings.seed:
        return _replay(settings, policies)
    verdict = Verdict(run="simulate")
    rows: list[tuple[str, ...]] = [
        ("policy", "seeds", "twice", "seeds/s a core", "calls", "delivered", "faults that hit", "violations")
    ]
    rows += [_judged(progress, verdict) for progress in _run(settings, policies)]
    print(table(rows), flush=True)
    return verdict


def _judged(progress: Progress, verdict: Verdict) -> tuple[str, ...]:
    """A row of the table, and what the run has to say."""
    policy = progress.policy
    verdict.attempted += progress.calls
    verdict.acknowledged += progress.delivered
    for kind, count in sorted(progress.hits.items()):
        verdict.notes[f"{policy}: {kind}"] = count
    for failure in progress.failures[:EXAMPLES]:
        verdict.expect(False, f"{policy} seed {failure.seed}: {failure.violations[0]}")
    for line in _made_smaller(progress):
        verdict.expect(False, line)
    verdict.expect(not progress.bad, f"{policy}: {progress.bad} of {progress.seeds} seeds break a promise")
    rate = f"{progress.seeds / progress.seconds:.1f}" if progress.seconds else "-"
    counts = progress.calls, progress.delivered, sum(progress.hits.values()), progress.bad
    return policy, str(progress.seeds), str(progress.twice), rate, *map(str, counts)


def _made_smaller(progress: Progress) -> list[str]:
    """The first seeds that fail, with as little as makes them fail."""
    some = [failure.seed for failure in progress.failures[:_SMALLER]]
    tasks = [Task(policy=progress.policy, first=seed, count=1, shrinks=True) for seed in some]
    found = [failure for done in played(iter(tasks)) for failure in done.failures] if tasks else []
    return [f"{progress.policy} seed {each.seed}, made smaller: {each.smaller}" for each in found]


def _run(settings: Settings, policies: tuple[str, ...]) -> list[Progress]:
    is_kept = not settings.quiet  # a test runs all of its seeds each time
    code = code_of() if is_kept else ""
    all_of = {policy: Progress.of(policy, code) if is_kept else Progress(policy, code) for policy in policies}
    tasks = [
        Task(policy=policy, first=1 + chunk * _CHUNK, count=_CHUNK)
        for policy, progress in all_of.items()
        for chunk in range(-(-settings.seeds // _CHUNK))
        if chunk not in progress.chunks
    ]
    begun, told, fresh = time.monotonic(), 0.0, 0
    for done in played(iter(tasks)) if tasks else ():
        progress = all_of[done.policy]
        progress.add(done)
        fresh += done.count
        if is_kept:
            progress.save()
        if is_kept and time.monotonic() > told + 5.0:
            told = time.monotonic()
            rate = fresh / (told - begun)
            said = f"{progress.seeds:,} seeds, {rate:.1f} a second, {progress.bad} bad"
            sys.stderr.write(f"simulate {progress.policy}: {said}\n")
            sys.stderr.flush()
    return list(all_of.values())


def _replay(settings: Settings, policies: tuple[str, ...]) -> Verdict:
    """One seed again, with its calls, and made smaller when it fails."""
    verdict = Verdict(run="simulate")
    tasks = [Task(policy=policy, first=settings.seed, count=1, shrinks=True, shows=True) for policy in policies]
    for done in played(iter(tasks), workers=1):
        print("\n".join(done.shown))
        for failure in done.failures:
            for each in failure.violations:
                verdict.expect(False, f"{done.policy} seed {failure.seed}: {each}")
            print(f"made smaller: {failure.smaller}")
    return verdict


def _hunt(settings: Settings, policies: tuple[str, ...]) -> Verdict:
    """How many seeds each known bug takes."""
    from ..simulation.bugs import BUGS

    verdict = Verdict(run="simulate")
    bugs = list(BUGS) if settings.bug == "all" else [settings.bug]
    tasks = [
        Task(policy=policy, first=1, count=settings.seeds if settings.seeds < _BUG_SEEDS else _BUG_SEEDS, bug=bug)
        for bug in bugs
        for policy in policies
        if policy in BUGS[bug].policies
    ]
    rows: list[tuple[str, ...]] = [("bug", "policy", "seeds until found", "by")]
    for done in played(iter(tasks)):
        by = done.failures[0].violations[0].partition("\n")[0] if done.failures else ""
        rows.append((done.bug, done.policy, str(done.found or "not found"), by[:100]))
        verdict.expect(bool(done.found), f"{done.bug} is not found on {done.policy} in {done.count} seeds")
        verdict.notes[f"{done.bug} on {done.policy}"] = done.found
    print(table(rows), flush=True)
    return verdict


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
