"""R20: backups under load, killed in the middle and run again; each is restored into a fresh store, and compared."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast
from holdfast.stores.records import Stored, View
from holdfast.testing.contract.backups import records

from ..restoring.load import LEASE, QUEUE, Load
from ..restoring.places import Bucket, Database, Folder, Place, Streams, opened
from ..settings import Settings
from ..verdict import EXAMPLES, Verdict

STORES = ("file", "postgres", "s3", "nats", "slatedb")
_ATTEMPTS = 50  # this run is about losing nothing, not about poison
_PAUSE = 0.2  # seconds at most between two calls of a thread
_LARGE = 5000  # bytes of every fourth message
_UNANSWERED = 3  # calls of the load, of thousands: a busy machine may leave one without an answer in time
_ENDED: tuple[View, ...] = ("archive", "dead")
_WORKER = """
import holdfast, sys, time
with holdfast.sync.connect(sys.argv[1]) as broker:
    queue = broker.queue(sys.argv[2], create=False)
    while True:
        for delivery in queue.dequeue_many(5, wait=1.0):
            queue.release(delivery)
        time.sleep(0.05)
"""


async def backup(settings: Settings) -> Verdict:
    """One store, or all of them."""
    stores = STORES if settings.store == "all" else (settings.store,)
    verdict = Verdict(run="backup")
    for store in stores:
        await asyncio.to_thread(_on_store, store, settings, verdict)
    return verdict


def _on_store(store: str, settings: Settings, verdict: Verdict) -> None:
    logging.getLogger("holdfast").setLevel("CRITICAL")  # many leases expire here
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    try:
        with opened(store, root) as place:
            _Trial(store, place, root, settings, verdict).play()
    finally:
        shutil.rmtree(root, ignore_errors=True)


class _Trial:
    """One store that is filled, worked on, and backed up again and again."""

    def __init__(self, name: str, place: Place, root: Path, settings: Settings, verdict: Verdict) -> None:
        self._name = name
        self._place = place
        self._root = root
        self._settings = settings
        self._verdict = verdict
        self._chance = random.Random(f"{settings.seed}/{name}")
        self._target = root / "backups"
        self._alone = name == "slatedb"  # the owner of a database is the one who backs it up
        self._killed = {"backups": 0, "restores": 0, "workers": 0}
        self._seconds = 3.0  # a backup takes about so long

    def play(self) -> None:
        with holdfast.sync.connect(self._place.url) as broker:
            queue = broker.create_queue(QUEUE, lease=LEASE, max_attempts=_ATTEMPTS, retry=holdfast.Fixed(0.2))
            filled = queue.enqueue_many([{"body": "y" * 200}] * self._settings.messages)
            with Load(broker, seed=self._settings.seed, pause=_PAUSE, large=_LARGE) as load:
                load.sent |= dict.fromkeys(filled, time.monotonic())
                for number in range(self._settings.stops):
                    self._round(broker, load, number)
            self._verdict.acknowledged += len(load.sent)
            self._verdict.notes[f"{self._name}: calls without an answer"] = len(load.unanswered)
            self._verdict.expect(len(load.unanswered) <= _UNANSWERED, f"{self._name}: {load.unanswered[:3]}")
            for error in load.errors[:1]:
                self._verdict.failures.append(f"{self._name}: while it was backed up: {error}")
        self._verdict.kills += self._killed["workers"]
        for what, count in self._killed.items():
            self._verdict.notes[f"{self._name}: {what} killed"] = count

    def _round(self, broker: holdfast.sync.Broker, load: Load, number: int) -> None:
        with self._worker():
            if self._alone:
                began = time.monotonic()
                holdfast.sync.backup(broker, self._target)
            else:
                if number % 3 == 1:
                    self._kill("backups", "backup", self._place.url, str(self._target))
                began = time.monotonic()
                self._command("backup", self._place.url, str(self._target))
                self._seconds = time.monotonic() - began
        url = _fresh(self._place, self._root, number)
        with load.resting():
            if number % 3 == 2:
                self._kill("restores", "restore", str(self._target), url)
            self._command("restore", str(self._target), url)
            self._compare(number, url, load, began)
        shutil.rmtree(self._root / f"fresh{number}", ignore_errors=True)

    # ------------------------------------------------------------------ processes

    def _command(self, *words: str) -> None:
        command = [sys.executable, "-m", "holdfast", *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=self._settings.deadline)
        except subprocess.TimeoutExpired:
            self._verdict.failures.append(f"{self._name}: {words[0]}: not done in {self._settings.deadline:g} s")
            return
        if done.returncode:
            self._verdict.failures.append(f"{self._name}: {words[0]}: {done.stderr[-300:]}")

    def _kill(self, what: str, *words: str) -> None:
        """Begin the command, and kill it somewhere in the middle."""
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(self._chance.uniform(0.3, 1.0) * self._seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            self._killed[what] += 1
        process.wait()

    @contextmanager
    def _worker(self) -> Iterator[None]:
        """A process that takes messages and gives them back, until it is killed with some in hand."""
        if self._alone:
            yield
            return
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, self._place.url, QUEUE],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()
            self._killed["workers"] += 1

    # ------------------------------------------------------------------ judging

    def _compare(self, number: int, url: str, load: Load, began: float) -> None:
        """Everything that was acknowledged before is there once, and what had ended has ended."""
        try:
            found, total = asyncio.run(_everything(url))
        except (AssertionError, holdfast.HoldfastError) as error:
            self._verdict.failures.append(f"{self._name}: backup {number}: {error!r:.300}")
            return
        must = {id for id, at in dict(load.sent).items() if at < began}
        ended = {id for id, at in dict(load.ended).items() if at < began}
        open_again = {id for id in ended & set(found) if found[id][0] not in _ENDED}
        lost = must - set(found)
        self._verdict.lost += len(lost)
        self._fail(number, "acknowledged before, and not in it", lost)
        self._verdict.duplicate_completions += len(open_again)
        self._fail(number, "ended before, and not ended in it", open_again)
        unheard = set(found) - set(dict(load.sent))
        time.sleep(2 * _PAUSE)  # what was stored and not acknowledged yet
        unheard -= set(dict(load.sent))
        self._fail(number, "in it, and never sent", unheard if len(unheard) > load.unclear else set())
        if total != len(found):
            self._verdict.unexpected += abs(total - len(found))
            self._verdict.failures.append(f"{self._name}: backup {number}: {total} counted, {len(found)} listed")
        self._verdict.notes[f"{self._name}: backup {number}, messages"] = len(found)

    def _fail(self, number: int, what: str, ids: set[str]) -> None:
        if ids:
            self._verdict.failures.append(
                f"{self._name}: backup {number}: {len(ids)} {what}, e.g. {sorted(ids)[:EXAMPLES]}"
            )


async def _everything(url: str) -> tuple[dict[str, tuple[View, Stored]], int]:
    async with holdfast.connect(url) as broker:
        found = await records(broker.store, QUEUE)
        return found, (await broker.store.stats(QUEUE)).total


def _fresh(place: Place, root: Path, number: int) -> str:
    """A store of the same kind that nobody has used; every second time a folder."""
    if number % 2 or isinstance(place, Folder):
        scheme = place.url.partition("://")[0] if isinstance(place, Folder) else "file"
        return f"{scheme}://{root}/fresh{number}"
    if isinstance(place, Bucket):
        return place.another(f"fresh{number}")
    if isinstance(place, Database):
        return place.another(f"fresh{number}")
    assert isinstance(place, Streams)
    return f"{place.url}?prefix=fresh{number}"
