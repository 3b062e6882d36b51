"""R17: stores are copied, put back and touched, at rest and under load; nothing acknowledged before is lost by it."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast import admin
from holdfast.sync import Queue

from ..restoring.load import LEASE, QUEUE, Load
from ..restoring.places import Place, opened
from ..settings import Settings
from ..verdict import EXAMPLES, Verdict

STORES = ("file", "postgres", "s3", "azure", "nats", "slatedb")
_ATTEMPTS = 50  # this run is about losing nothing, not about poison
_DRAIN = 120.0  # seconds in which everything must come out
_MANY = 200
_PAUSE = 0.02  # seconds at most between two calls of a thread
_PACE = 0.3  # the same where messages have to age, so that not too many wait


async def restore(settings: Settings) -> Verdict:
    """One store, or all of them; every way in which it can be copied and touched."""
    stores = STORES if settings.store == "all" else (settings.store,)
    verdict = Verdict(run="restore")
    for store in stores:
        await asyncio.to_thread(_on_store, store, settings, verdict)
    return verdict


def _on_store(store: str, settings: Settings, verdict: Verdict) -> None:
    logging.getLogger("holdfast").setLevel("CRITICAL")  # thousands of leases expire here
    for under_load in (False, True):
        root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
        try:
            with opened(store, root) as place:
                _Trial(f"{store}, {'under load' if under_load else 'at rest'}", place, settings, verdict).play(
                    under_load=under_load
                )
        finally:
            shutil.rmtree(root, ignore_errors=True)


class Found(msgspec.Struct):
    """What came out of a store, and what it keeps as ended."""

    drained: set[str]
    ended: set[str]
    errors: list[str]
    left: int  # live messages that did not come out
    set_aside: int = 0  # kept, but delivered only after `holdfast recover`

    @property
    def all(self) -> set[str]:
        return self.drained | self.ended


class _Trial:
    """One store that is filled, copied, touched and put back."""

    def __init__(self, name: str, place: Place, settings: Settings, verdict: Verdict) -> None:
        self._name = name
        self._place = place
        self._settings = settings
        self._verdict = verdict

    def play(self, *, under_load: bool) -> None:
        with holdfast.sync.connect(self._place.url) as broker:
            broker.create_queue(QUEUE, lease=LEASE, max_attempts=_ATTEMPTS, retry=holdfast.Fixed(0.2))
        if under_load:
            self._under_load()
        else:
            self._at_rest()

    def _at_rest(self) -> None:
        load = self._filled()
        self._tell("is copied")
        copy = self._place.copy()
        self._place.copy()  # nobody opens this one before it is put back
        touched = self._place.touch()
        self._note("touched", touched)
        self._judge("the copy", _drained(copy), must=set(load.sent))
        original = _drained(self._place.url)
        self._judge("the original, touched", original, must=set(load.sent))
        self._judge_returned("the original, touched", original, done=set(load.ended))
        self._tell("is put back")
        self._place.put_back()
        self._judge("the copy, put back", _drained(self._place.url), must=set(load.sent))

    def _under_load(self) -> None:
        with holdfast.sync.connect(self._place.url) as broker:
            with Load(broker, seed=self._settings.seed, pause=_PACE if self._place.ages else _PAUSE) as load:
                time.sleep(self._settings.seconds + self._place.ages)
                began, copy = time.monotonic(), self._place.copy_under_load()
                copied = time.monotonic()
                self._note("touched", self._place.touch_under_load())
                time.sleep(self._settings.seconds)
            self._verdict.acknowledged += len(load.sent)
        if copy is None:
            self._note("copied", "not allowed by its page")
        else:
            must = {id for id, at in load.sent.items() if at < began}
            if not self._place.is_one_moment:  # what was ended meanwhile may be between two places
                must -= {id for id, at in load.asked.items() if at < copied}
            self._judge("the copy", _drained(copy), must=must)
        original = _drained(self._place.url)
        self._judge("the original", original, must=set(load.sent))
        self._judge_returned("the original", original, done=set(load.ended))
        again = [id for id, at in load.taken if load.ended.get(id, float("inf")) < at]
        self._fail("given out after its end, in the original", set(again))

    def _filled(self) -> Load:
        """Some messages in every state; whoever wrote them is gone."""
        with holdfast.sync.connect(self._place.url) as broker:
            with Load(broker, seed=self._settings.seed, pause=_PACE if self._place.ages else _PAUSE) as load:
                time.sleep(self._settings.seconds)
            for error in (*load.errors, *load.unanswered):
                self._verdict.failures.append(f"{self._name}: while it was filled: {error}")
        time.sleep(self._place.ages)
        self._verdict.acknowledged += len(load.sent)
        return load

    # ------------------------------------------------------------------ judging

    def _judge(self, what: str, found: Found, *, must: set[str]) -> None:
        lost = must - found.all
        self._verdict.lost += len(lost)
        self._fail(f"acknowledged before, and not in {what}", lost)
        self._verdict.unfinished += found.left
        if found.left:
            self._verdict.failures.append(f"{self._name}: {found.left} messages do not come out of {what}")
        for error in found.errors[:1]:
            self._verdict.failures.append(f"{self._name}: {what} raises {error}")
        self._note(f"{what}, must be there", len(must))
        self._note(f"{what}, drained", len(found.drained))
        if found.set_aside:
            self._note(f"{what}, set aside until recover", found.set_aside)

    def _judge_returned(self, what: str, found: Found, *, done: set[str]) -> None:
        returned = found.drained & done
        self._verdict.duplicate_completions += len(returned)
        self._fail(f"ended, and given out again by {what}", returned)

    def _fail(self, what: str, ids: set[str]) -> None:
        if ids:
            self._verdict.failures.append(f"{self._name}: {len(ids)} {what}, e.g. {sorted(ids)[:EXAMPLES]}")

    def _note(self, what: str, value: int | str) -> None:
        self._verdict.notes[f"{self._name}: {what}"] = value

    def _tell(self, text: str) -> None:
        if not self._settings.quiet:
            sys.stderr.write(f"restore: {self._name} {text}\n")
            sys.stderr.flush()


def _drained(url: str) -> Found:
    """Everything comes out, after maintenance had its chance to remove what it should not."""
    found = Found(set(), set(), [], 0)
    with holdfast.sync.connect(url) as broker:
        queue: Queue[Any] = broker.queue(QUEUE, create=False)
        broker.maintain()
        _drain(queue, found)
        found.set_aside = queue.stats().set_aside
        if found.set_aside:
            asyncio.run(_recover(url))
            _drain(queue, found)
        for letters in (queue.dead, queue.archive):
            last = None
            while page := letters.list(_MANY, last):
                found.ended |= {record.id for record in page}
                last = page[-1].id
    return found


def _drain(queue: Queue[Any], found: Found) -> None:
    deadline = time.monotonic() + _DRAIN
    while (left := _live(queue)) and time.monotonic() < deadline and len(found.errors) < EXAMPLES:
        try:
            deliveries = queue.dequeue_many(_MANY, lease=60.0, wait=1.0)
            queue.complete_many(deliveries)
            found.drained |= {delivery.id for delivery in deliveries}
        except holdfast.HoldfastError as error:
            found.errors.append(repr(error)[:300])
    found.left = left


async def _recover(url: str) -> None:
    """What an operator does about messages that are set aside."""
    async with holdfast.connect(url) as broker:
        await admin.recover(broker, [QUEUE])


def _live(queue: Queue[Any]) -> int:
    stats = queue.stats()
    return stats.pending + stats.delayed + stats.processing + stats.retry
