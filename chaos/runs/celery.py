"""Celery on a folder: children of its prefork pool and main processes are killed while tasks of every kind run."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..settings import Settings
from ..verdict import EXAMPLES, Verdict

if TYPE_CHECKING:
    from ..celery.sending import Load, Results
    from ..celery.site import Site

_LONG_LEASES = 2.5  # that a long task takes
_LOOK_S = 0.5  # between two looks at results
_LOOK_AGAIN_S = 0.02  # at notes: a child that is busy shall still be so when it is killed


async def celery(settings: Settings) -> Verdict:
    """`workers` main processes with `concurrency` children; `kills` children and `stops` mains get SIGKILL.

    First as the guide recommends: acknowledged late, given back when a child is lost. Then a tenth with the defaults
    of Celery.
    """
    return await asyncio.to_thread(_run, settings)  # kombu blocks


def _run(settings: Settings) -> Verdict:
    verdict = Verdict(run="celery")
    root = Path(tempfile.mkdtemp(prefix="holdfast-celery-")) if settings.folder is None else settings.folder / "celery"
    try:
        _recommended(settings, root / "late", verdict)
        _defaults(settings, root / "defaults", verdict)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)
    return verdict


def _recommended(settings: Settings, folder: Path, verdict: Verdict) -> None:
    from ..celery.sending import Load, Results
    from ..celery.site import Site

    with Site(folder, lease=settings.lease, concurrency=settings.concurrency, is_late=True) as site:
        load = Load(site.app, work=settings.work, long=_LONG_LEASES * settings.lease, seed=settings.seed)
        results, faults = Results(site.app), ["child"] * settings.kills + ["main"] * settings.stops
        began = time.monotonic()
        _hurt(site, settings, lambda: load.send(settings.messages), load, faults=faults, tasks=settings.messages)
        left = _drained(site, results, load, settings)
        verdict.notes["seconds"] = round(time.monotonic() - began, 1)
        late = site.stop()
        verdict.expect(not late, f"{len(late)} main processes did not stop within their grace")
        site.notes.look()
        _judge(verdict, site, load, results, left)


def _defaults(settings: Settings, folder: Path, verdict: Verdict) -> None:
    """What is lost is what a kill has hit; it is counted, and nothing else may be lost."""
    from ..celery.sending import Load, Results
    from ..celery.site import Site

    count = max(settings.messages // 10, 50)
    with Site(folder, lease=settings.lease, concurrency=settings.concurrency, is_late=False) as site:
        load = Load(site.app, work=settings.work, long=0.0, seed=settings.seed + 1)
        results, faults = Results(site.app), ["child"] * max(settings.kills // 4, 1) + ["main"]

        def send() -> None:
            for number in range(count):
                load.plain(number)

        _hurt(site, settings, send, load, faults=faults, tasks=count)
        _until(lambda: not site.live(), seconds=settings.deadline, what="the queue of the defaults is empty")
        site.stop()  # warm: what runs ends
        results.look(list(load.sent))
        site.notes.look()
        missing = [load.sent[id][0] for id in load.sent if results.found.get(id, {}).get("status") != "SUCCESS"]
        failed = sum(meta["status"] == "FAILURE" for meta in results.found.values())
        unexcused = [key for key in missing if site.notes.executions.get(key) and not _excused(site, key)]
        verdict.expect(not unexcused, f"defaults: lost although no kill hit them: {', '.join(unexcused[:EXAMPLES])}")
        never = sum(key not in site.notes.executions for key in missing)
        handed = sum(settings.concurrency if kill.is_main else 1 for kill in site.kills)
        verdict.expect(never <= handed, f"defaults: {never} lost tasks never began, {handed} can have been handed over")
        verdict.notes["with Celery's defaults"] = (
            f"{count:,} tasks, {len(site.kills)} kills, {site.notes.hits(site.kills)} of them hit a task: "
            f"{len(missing)} tasks lost ({failed} with WorkerLostError as result, {len(missing) - failed} without any)"
        )


def _hurt(site: Site, settings: Settings, send: Any, load: Load, *, faults: list[str], tasks: int) -> None:
    """Send, and kill somebody each time that a further share of the tasks is done."""
    chance = random.Random(settings.seed)
    chance.shuffle(faults)
    for _ in range(settings.workers):
        site.start()
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(send)
        try:
            _strike(site, settings, chance, faults=faults, tasks=tasks)
            sending.result(settings.deadline)
        finally:
            load.stopped.set()


def _strike(site: Site, settings: Settings, chance: random.Random, *, faults: list[str], tasks: int) -> None:
    for number, fault in enumerate(faults, 1):
        share = tasks * number // (len(faults) + 2)
        _until(lambda share=share: _ended(site) >= share, seconds=settings.deadline, what="tasks are done")  # type: ignore[misc] # mypy cannot see the default
        kill = site.kill_child if fault == "child" else site.kill_main
        _until(lambda kill=kill: kill(chance), seconds=settings.deadline, what="somebody is busy")  # type: ignore[misc] # the same
        _tell(settings, f"{number} of {len(faults)} kills, {site.notes.ended:,} executions")


def _ended(site: Site) -> int:
    site.check()
    site.notes.look()
    return site.notes.ended


def _drained(site: Site, results: Results, load: Load, settings: Settings) -> int:
    """Until every result is there and the queue is empty; how many messages are left at the deadline."""
    deadline = time.monotonic() + settings.deadline
    while True:
        site.check()
        missing, live = results.look(list(load.sent)), site.live()
        if (not missing and not live) or time.monotonic() > deadline:
            return live
        _tell(settings, f"{missing:,} results missing, {live:,} messages left")
        time.sleep(_LOOK_S)


def _judge(verdict: Verdict, site: Site, load: Load, results: Results, left: int) -> None:
    notes = site.notes
    verdict.attempted = verdict.acknowledged = len(load.sent)
    missing = [key for id, (key, _) in load.sent.items() if id not in results.found]
    wrong = [
        key for id, (key, value) in load.sent.items() if id in results.found and not _is_right(results.found[id], value)
    ]
    verdict.completed = len(load.sent) - len(missing) - len(wrong)
    verdict.dead = site.dead()
    verdict.lost, verdict.unexpected, verdict.unfinished = len(missing), len(wrong), left
    verdict.kills, verdict.effective_kills = len(site.kills), notes.hits(site.kills)
    repeated = notes.repeated()
    verdict.duplicate_executions = sum(len(found) - 1 for found in repeated.values())
    stolen = [key for key in repeated if not _excused(site, key) and not _of_a_chord(site, load, key)]
    verdict.early_steals = len(stolen)
    verdict.examples = {"lost": missing[:EXAMPLES], "unexpected": wrong[:EXAMPLES], "early_steals": stolen[:EXAMPLES]}
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    mains = [kill for kill in site.kills if kill.is_main]
    verdict.notes["kills of children"] = f"{len(site.kills) - len(mains)}, of main processes {len(mains)}"
    unhurt = [key for key in load.long if not _excused(site, key)]
    once = sum(len(notes.executions[key]) == 1 for key in unhurt)
    verdict.notes["tasks longer than the lease"] = f"{len(load.long)}, {len(unhurt)} not hit: {once} of these ran once"
    verdict.expect(bool(unhurt), "every long task was hit by a kill: nothing is shown of them")
    verdict.expect(verdict.effective_kills > 0, "no kill has hit a task")


def _is_right(meta: dict[str, Any], value: Any) -> bool:
    return bool(meta["status"] == "SUCCESS" and meta["result"] == value)


def _excused(site: Site, key: str) -> bool:
    """A kill may have hit one of its executions, or one of the tries before: each of these sends the next try."""
    task, _, tries = key.partition("#")
    keys = [f"{task}#{number}" for number in range(int(tries) + 1)] if tries else [key]
    found = [each for name in keys for each in site.notes.executions.get(name, [])]
    return any(kill.excuses(each) for kill in site.kills for each in found)


def _of_a_chord(site: Site, load: Load, key: str) -> bool:
    """A body is called again when the part that called it was killed."""
    return any(_excused(site, part) for part in load.chords.get(key, []))


def _until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(_LOOK_AGAIN_S)


def _tell(settings: Settings, text: str) -> None:
    if not settings.quiet:
        sys.stderr.write(f"celery: {text}\n")
        sys.stderr.flush()
