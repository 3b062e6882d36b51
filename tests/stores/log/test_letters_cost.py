"""What replay and delete of ended messages cost: what they are about, not what there is."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.stores.log import archive, lookup
from tests.stores.log.log_bench import Bed

LETTERS = 200


async def buried(bed: Bed, count: int) -> list[str]:
    ids = await bed.append(count)
    await bed.settle(await bed.claim(count), "dead", error="why")
    await bed.flush()
    return ids


async def test_a_replay_lists_the_dead_letters_once_and_not_for_each(monkeypatch: pytest.MonkeyPatch):
    bed = await Bed.made()
    ids = [id for _ in range(4) for id in await buried(bed, LETTERS // 4)]
    listed: Counter[str] = Counter()
    keys = lookup.Glance.keys

    def counted(self, prefix):
        listed["all"] += 1
        return keys(self, prefix)

    monkeypatch.setattr(lookup.Glance, "keys", counted)
    chosen = [*ids[10:20], ids[3], *ids[60:], "no id", ids[3]]
    assert await bed.store.replay("q", "dead", chosen) == 151
    assert listed["all"] < 10
    monkeypatch.undo()
    left = [*ids[:3], *ids[4:10], *ids[20:60]]
    assert [each.id for each in await bed.all("dead")] == left
    assert await bed.store.replay("q", "dead", chosen) == 0
    assert (await bed.store.stats("q")).pending == 151


async def test_a_letter_that_is_held_is_not_replayed():
    bed = await Bed.made()
    ids = await buried(bed, 10)
    held = await bed.claim(3, queue="q/dead")
    assert await bed.store.replay("q", "dead", ids) == 7
    assert [each.id for each in await bed.all("dead")] == [each.id for each in held]


async def test_a_delete_reads_only_files_that_can_hold_the_message(monkeypatch: pytest.MonkeyPatch):
    bed = await Bed.made()
    groups = []
    for _ in range(12):
        groups.append(await bed.end(5, result=b"r", worker="w"))
        await bed.flush()
    before = {each.id: each for each in await bed.all("archive")}
    read: Counter[str] = Counter()
    for name in ("decode", "without"):
        monkeypatch.setattr(archive, name, counting(read, name, getattr(archive, name)))
    gone = [groups[3][0], groups[3][4], *groups[7], "no id"]
    assert await bed.store.discard("q", "archive", gone) == 7
    assert read == {"without": 2}
    monkeypatch.undo()
    kept = [id for group in groups for id in group if id not in gone]
    assert [each.id for each in await bed.all("archive")] == kept
    assert await bed.all("archive") == [before[id] for id in kept], "everything of them is as it was"
    assert len(await bed.keys("archive/")) == 11
    assert await bed.store.discard("q", "archive", gone) == 0


def counting(read: Counter[str], name: str, call):
    def counted(*args, **options):
        read[name] += 1
        return call(*args, **options)

    return counted
