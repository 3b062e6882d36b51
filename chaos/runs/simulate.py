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
    seconds: float = 0.0
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
        ("policy", "seeds", "twice", "seeds/s", "calls", "delivered", "faults that hit", "violations")
    ]
    for policy in policies:
        progress = _run(settings, policy)
        verdict.attempted += progress.calls
        verdict.acknowledged += progress.delivered
        rate = f"{progress.seeds / progress.seconds:.1f}" if progress.seconds else "-"
        faults = sum(progress.hits.values())
        rows.append(
            (
                policy,
                *map(
                    str,
                    (progress.seeds, progress.twice, rate, progress.calls, progress.delivered, faults, progress.bad),
                ),
            )
        )
        for kind, count in sorted(progress.hits.items()):
            verdict.notes[f"{policy}: {kind}"] = count
        for failure in progress.failures[:EXAMPLES]:
            verdict.expect(False, f"{policy} seed {failure.seed}: {failure.violations[0]}")
        verdict.expect(not progress.bad, f"{policy}: {progress.bad} of {progress.seeds} seeds break a promise")
    print(table(rows), flush=True)
    return verdict


def _run(settings: Settings, policy: str) -> Progress:
    progress = Progress.of(policy, code_of())
    chunks = [chunk for chunk in range(-(-settings.seeds // _CHUNK)) if chunk not in progress.chunks]
    tasks = (Task(policy=policy, first=1 + chunk * _CHUNK, count=_CHUNK) for chunk in chunks)
    before, begun, told, fresh = progress.seconds, time.monotonic(), 0.0, 0
    for done in played(tasks) if chunks else ():
        progress.add(done)
        fresh += done.count
        progress.seconds = before + time.monotonic() - begun
        progress.save()
        if not settings.quiet and time.monotonic() > told + 5.0:
            told = time.monotonic()
            rate = fresh / (told - begun)
            sys.stderr.write(f"simulate {policy}: {progress.seeds:,} seeds, {rate:.1f} a second, {progress.bad} bad\n")
            sys.stderr.flush()
    return progress


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
