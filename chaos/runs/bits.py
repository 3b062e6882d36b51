"""R18: flip, cut, zero, swap or delete one object of a store: nothing wrong comes out, and every damage is named."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from ..bits import story
from ..bits.judging import Judged, judge
from ..bits.places import KILLED, Place, kind_of, place
from ..bits.spoiling import WAYS, spoiled
from ..settings import Settings
from ..verdict import Verdict

STORES = ("file", KILLED, "slatedb", "s3", "nats")


async def bits(settings: Settings) -> Verdict:
    """`stops` trials for each store, every kind of object and way in turn."""
    verdict = Verdict(run="bits")
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # each trial would tell of its damage
    for store in _stores(settings.store):
        root = Path(tempfile.mkdtemp(prefix="holdfast-bits-"))
        try:
            with place(store, root) as where:
                await _trials(verdict, settings, store, where)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return verdict


def _stores(asked: str) -> tuple[str, ...]:
    """A folder is tried as it was closed, and as a killed process left it."""
    if asked == "all":
        return STORES
    return ("file", KILLED) if asked == "file" else (asked,)


async def _trials(verdict: Verdict, settings: Settings, store: str, where: Place) -> None:
    chance = Random(settings.seed)
    kept = await story.make(where.url)
    if store == KILLED:
        more = await story.add_more(where.url)
        kept.waiting |= more.waiting
        kept.finished |= more.finished
    verdict.acknowledged += len(kept.waiting) + len(kept.finished) + len(kept.dead)
    where.keep()
    before = judge(kept, await story.look(where.url), "")
    verdict.expect(not before.effective, f"{store}: untouched, it shows {before}")
    where.reset()
    kinds = {kind: keys for kind, keys in _by_kind(where.objects()).items() if settings.fault in ("", kind)}
    table: Counter[tuple[str, str]] = Counter()
    if not kinds:  # of one kind alone, which this store has not
        return
    for number in range(settings.stops):
        kind = sorted(kinds)[number % len(kinds)]
        way = WAYS[number // len(kinds) % len(WAYS)]
        keys = kinds[kind]
        key = chance.choice(keys)
        other = chance.choice([each for each in keys if each != key] or [key])
        where.reset()
        objects = where.objects()
        now = spoiled(objects[key], way, chance, objects[other])
        if now == objects[key] or (now is None and not where.can_vanish(key)):
            continue
        where.write(key, now)
        _count(verdict, table, store, kind, f"{way} {key}", judge(kept, await story.look(where.url), kind))
        if not settings.quiet and number % 50 == 49:
            print(f"{store}: {number + 1} of {settings.stops}", flush=True)
    for kind in sorted(kinds):
        names = ("trials", "effective", "said", "silent", "wrong")
        verdict.notes[f"{store}, {kind}"] = ", ".join(f"{name} {table[kind, name]}" for name in names)


def _by_kind(objects: dict[str, bytes]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for key in sorted(objects):
        if (kind := kind_of(key)) is not None:
            kinds.setdefault(kind, []).append(key)
    return kinds


def _count(verdict: Verdict, table: Counter[tuple[str, str]], store: str, kind: str, what: str, judged: Judged) -> None:
    table[kind, "trials"] += 1
    table[kind, "effective"] += judged.effective
    table[kind, "said"] += judged.effective and judged.said
    table[kind, "silent"] += judged.silent
    table[kind, "wrong"] += bool(judged.wrong)
    verdict.expect(not judged.silent, f"{store}, {kind}, {what}: nobody said so")
    verdict.expect(not judged.wrong, f"{store}, {kind}, {what}: {'; '.join(judged.wrong[:3])}")
