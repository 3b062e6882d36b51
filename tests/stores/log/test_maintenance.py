"""Maintenance: retention, merging, forgetting, one at a time; and queues that are deleted and made anew."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from holdfast import ids as id_bits
from holdfast.config import QueueOptions
from holdfast.errors import QueueExists, QueueNotEmpty, QueueNotFound
from holdfast.stores.log import archive, maintenance, names
from holdfast.stores.log.names import ArchiveName
from holdfast.stores.records import Envelope
from tests.stores.log.log_bench import T0, Bed, Crash, Sleeper, dies_at

DAY = 86400.0


async def flushed(bed: Bed, times: int, count: int = 3) -> list[str]:
    """Messages in so many archive files."""
    ids: list[str] = []
    for _ in range(times):
        ids += await bed.end(count, result=b"r", worker="w")
        await bed.flush()
        bed.clock.advance(1.0)
    return ids


# Retention.


async def test_archived_messages_are_kept_for_their_days():
    bed = await Bed.made(archive_days=2.0)
    old = await flushed(bed, 1)
    bed.clock.advance(DAY)
    new = await flushed(bed, 1)
    assert (await bed.store.maintain("q"))["expired_files"] == 0
    bed.clock.advance(DAY - 2.0)
    assert (await bed.store.maintain("q"))["expired_files"] == 0
    bed.clock.advance(2.0)
    assert (await bed.store.maintain("q"))["expired_files"] == 1
    assert [each.id for each in await bed.all("archive")] == new
    assert [await bed.get(id) for id in old] == [None] * len(old)
    assert (await bed.store.stats("q")).completed == 6, "counted since creation"


async def test_a_changed_retention_counts_at_once():
    bed = await Bed.made(archive_days=2.0)
    await flushed(bed, 1)
    bed.clock.advance(DAY)
    await bed.store.configure("q", QueueOptions(archive_days=0.5))
    assert (await bed.store.maintain("q"))["expired_files"] == 1


async def test_dead_letters_have_no_retention():
    bed = await Bed.made(archive_days=0.001)
    ids = await bed.end(3, "dead")
    await bed.flush()
    bed.clock.advance(1000 * DAY)
    await bed.store.maintain("q")
    assert [each.id for each in await bed.all("dead")] == ids


# Merging.


async def test_small_files_are_merged():
    bed = await Bed.made()
    ids = await flushed(bed, 20)
    before = await bed.all("archive")
    assert len(await bed.keys("archive/")) == 20
    assert (await bed.store.maintain("q"))["merged_files"] == 20
    assert len(await bed.keys("archive/")) == 1
    assert [each.id for each in await bed.archived()] == ids, "every record once, in order"
    assert await bed.all("archive") == before
    stats = await bed.store.stats("q")
    assert (stats.archived, stats.total, stats.completed) == (60, 60, 60)
    assert (await bed.store.maintain("q"))["merged_files"] == 0
    more = await flushed(bed, 16)
    assert (await bed.store.maintain("q"))["merged_files"] == 17
    assert [each.id for each in await bed.archived()] == ids + more


async def test_merging_and_deleting_leave_the_event_loop_alone(monkeypatch):
    bed = await Bed.made()
    ids = await flushed(bed, 20)
    seen = set()

    def noticed(function):
        def call(*args, **kwargs):
            seen.add(threading.current_thread())
            return function(*args, **kwargs)

        return call

    for name in ("_columns", "joined", "written"):
        monkeypatch.setattr(archive, name, noticed(getattr(archive, name)))
    assert (await bed.store.maintain("q"))["merged_files"] == 20
    assert await bed.store.discard("q", "archive", ids[:2]) == 2
    assert await bed.store.discard("q", "archive", before=bed.clock() + DAY) == len(ids) - 2
    assert seen
    assert threading.current_thread() not in seen


async def test_a_file_beside_those_it_was_made_of_counts_once():
    """A crash leaves both, and they are merged again."""
    bed = await Bed.made()
    ids = await flushed(bed, 4)
    keys = await bed.space.read(lambda view: view.list("q@", limit=1000))
    found = await bed.space.read(lambda view: [view.get(key) for key in keys if "/archive/" in key])
    files = [archive.columns(each.data) for each in found]
    whole = archive.joined(files)
    assert archive.joined([files[2], whole, files[0]])["id"].to_pylist() == ids


async def test_a_repeated_settlement_is_known_after_a_merge():
    bed = await Bed.made()
    await bed.append()
    held = await bed.claim()
    assert await bed.settle(held, "complete") == ["ok"]
    await bed.flush()
    await flushed(bed, 16)
    assert (await bed.store.maintain("q"))["merged_files"] == 17
    assert await bed.settle(held, "complete") == ["ok"]
    assert await bed.settle(held, "retry") == ["lost"]


async def test_merging_does_not_prolong_retention():
    bed = await Bed.made(archive_days=1.0)
    await flushed(bed, 16)
    bed.clock.advance(DAY - 100.0)
    assert (await bed.store.maintain("q"))["merged_files"] == 16
    bed.clock.advance(101.0)
    assert (await bed.store.maintain("q"))["expired_files"] == 1


async def test_two_mergers_and_a_deletion_lose_and_double_nothing():
    """Maintenance is taken from a sleeper after a minute; then both merge, while somebody deletes."""
    bed = await Bed.made()
    ids = await flushed(bed, 18)
    first, second = bed.another(), bed.another()
    merging = [asyncio.create_task(upkeep_of(bed, store)) for store in (first, second)]
    removed = await bed.store.discard("q", "archive", [ids[0], ids[30]])
    await asyncio.gather(*merging)
    for _ in range(3):
        removed += await bed.store.discard("q", "archive", [ids[0], ids[30]])
    assert removed == 2
    left = [id for id in ids if id not in (ids[0], ids[30])]
    assert Counter(each.id for each in await bed.archived()) == Counter(left)


async def upkeep_of(bed: Bed, store: object) -> None:
    await store.maintain("q")  # type: ignore[attr-defined]  # any store


def file(day: int, second: int, rows: int) -> ArchiveName:
    flush = f"{id_bits.Ids().block(T0 + day * DAY + second):032x}"
    return names.parse_archive(names.archive_key("a" * 32, "b" * 32, rows, flush))


@pytest.mark.parametrize(
    ("files", "groups"),
    [
        ([], []),
        ([file(0, second, 1) for second in range(15)], []),
        ([file(0, second, 1) for second in range(16)], [16]),
        ([file(day, second, 1) for day in (0, 1) for second in range(8)], []),
        ([file(day, second, 1) for day in (0, 1) for second in range(17)], [17, 17]),
        ([file(0, second, 20_000) for second in range(30)], []),
        ([file(0, second, 10_000) for second in range(5)], [2, 2]),
        ([file(0, second, 19_999) for second in range(4)], [2, 2]),
    ],
)
def test_which_files_are_merged(files: list[ArchiveName], groups: list[int]):
    """Small ones of one day: enough of them, or enough rows."""
    found = list(maintenance.mergeable(files[::-1]))
    assert [len(group) for group in found] == groups
    chosen = [each for group in found for each in group]
    assert len({each.key for each in chosen}) == len(chosen)
    assert all(len({each.key.split("/")[-2] for each in group}) == 1 for group in found)


# Forgetting.


async def test_dedup_keys_are_forgotten():
    bed = await Bed.made(dedup_window=100.0)
    (first,) = await bed.append(1, dedup_key="a")
    bed.clock.advance(60.0)
    (other,) = await bed.append(1, dedup_key="b")
    assert await bed.append(1, dedup_key="a") == [first]
    assert (await bed.store.maintain("q"))["forgotten_keys"] == 0
    bed.clock.advance(40.0)
    assert (await bed.store.maintain("q"))["forgotten_keys"] == 1
    assert len(await bed.keys("dedup/")) == 1
    (again,) = await bed.append(1, dedup_key="a")
    assert again != first
    assert await bed.append(1, dedup_key="b") == [other]
    bed.clock.advance(1000.0)
    assert (await bed.store.maintain("q"))["forgotten_keys"] == 2
    assert await bed.keys("dedup/") == []


async def test_a_dedup_key_is_over_at_its_time_also_without_maintenance():
    bed = await Bed.made(dedup_window=100.0)
    (first,) = await bed.append(1, dedup_key="a")
    bed.clock.advance(99.9)
    assert await bed.append(1, dedup_key="a") == [first]
    bed.clock.advance(0.2)
    (second,) = await bed.append(1, dedup_key="a")
    assert second != first
    assert (await bed.store.stats("q")).pending == 2


async def test_dedup_keys_within_one_call():
    bed = await Bed.made()
    keys = ["a", None, "b", "a", None, "b", "c", "a"]
    ids = await bed.store.append("q", [Envelope(b"%d" % n, dedup_key=key) for n, key in enumerate(keys)])
    assert ids[0] == ids[3] == ids[7]
    assert ids[2] == ids[5]
    assert len(set(ids)) == 5
    assert [each.payload for each in await bed.claim()] == [b"0", b"1", b"2", b"4", b"6"]
    assert (await bed.store.append("q", [Envelope(b"", dedup_key="c"), Envelope(b"", dedup_key="a")])) == [
        ids[6],
        ids[0],
    ]


async def test_dedup_keys_of_many_producers_at_once():
    bed = await Bed.made()
    stores = [bed.another() for _ in range(4)]
    answers = await asyncio.gather(
        *(store.append("q", [Envelope(b"", dedup_key=f"k{n}")]) for n in range(5) for store in stores for _ in range(3))
    )
    assert len({id for (id,) in answers}) == 5
    assert (await bed.store.stats("q")).pending == 5


# One at a time.


async def test_one_maintainer_at_a_time():
    sleeper = Sleeper("flush.frozen")
    bed = await Bed.made(steps=sleeper)
    await bed.end(1)
    first = asyncio.create_task(bed.store.maintain("q"))
    await sleeper.asleep.wait()
    other = bed.another()
    assert await other.maintain("q") == {}
    sleeper.wake.set()
    assert (await first)["flushed"] == 1
    assert set(await other.maintain("q")) == {
        "flushed",
        "expired_files",
        "merged_files",
        "forgotten_keys",
        "orphans",
        "released",
    }
    assert await bed.keys("maintain") == []


async def test_a_maintainer_that_never_returns_is_replaced():
    sleeper = Sleeper("flush.frozen")
    bed = await Bed.made(steps=sleeper)
    await bed.end(1)
    first = asyncio.create_task(bed.store.maintain("q"))
    await sleeper.asleep.wait()
    bed.clock.advance(59.0)
    assert await bed.another().maintain("q") == {}
    bed.clock.advance(2.0)
    assert await bed.another().maintain("q") != {}
    sleeper.wake.set()
    await first


async def test_a_maintainer_that_fails_lets_go():
    bed = await Bed.made(steps=dies_at("flush.written"))
    await bed.end(1)
    with pytest.raises(Crash):
        await bed.store.maintain("q")
    assert await bed.keys("maintain") == []


async def test_maintenance_ends_what_has_no_attempt_left():
    bed = await Bed.made(max_attempts=1)
    ids = await bed.append(3)
    await bed.claim(3, 5.0)
    bed.clock.advance(6.0)
    assert (await bed.store.maintain("q"))["flushed"] == 1
    assert len(await bed.keys("dead/inbox/")) == 1
    assert [(each.id, each.error) for each in await bed.all("dead")] == [(id, "lease expired") for id in ids]


# Queues come and go.


async def test_a_queue_made_anew_inherits_nothing():
    bed = await Bed.made()
    await bed.append(3)
    await bed.append(2, delay=60.0, dedup_key="a")
    held = await bed.claim(1)
    await bed.end_all("complete")
    old = await bed.end(2, "dead")
    await bed.flush()
    await bed.store.pause("q", True)
    await bed.store.delete_queue("q", force=True)
    assert await bed.keys() == []
    assert await bed.store.queue("q") is None
    await bed.store.create_queue("q", QueueOptions(max_attempts=7))
    stats = await bed.store.stats("q")
    assert (stats.total, stats.completed, stats.failed) == (0, 0, 0)
    assert await bed.claim() == []
    assert await bed.store.settle("q", []) == []
    assert await bed.settle(held, "complete") == ["unknown"]
    assert await bed.store.extend("q", [(held[0].id, held[0].token)], 60.0) == [None]
    assert [await bed.get(id) for id in old] == [None, None]
    (fresh,) = await bed.append(1, dedup_key="a")
    (claimed,) = await bed.claim()
    assert (claimed.id, claimed.max_attempts) == (fresh, 7)


async def test_others_notice_that_a_queue_was_made_anew():
    """Another process that had the old one open goes on with the new one."""
    bed = await Bed.made()
    other = bed.another()
    await bed.append(5)
    held = (await other.claim("q", 1, 30.0)).messages
    await bed.store.delete_queue("q", force=True)
    with pytest.raises(QueueNotFound):
        await other.claim("q", 1, 30.0)
    with pytest.raises(QueueNotFound):
        await other.append("q", [Envelope(b"")])
    await bed.store.create_queue("q", QueueOptions())
    assert (await other.claim("q", 9, 30.0)).messages == []
    assert (await other.stats("q")).total == 0
    (id,) = await other.append("q", [Envelope(b"new")])
    assert [each.id for each in await bed.claim()] == [id]
    assert held[0].id != id


async def test_only_an_empty_queue_is_deleted_without_force():
    bed = await Bed.made()
    with pytest.raises(QueueExists):
        await bed.store.create_queue("q", QueueOptions())
    await bed.end(2)
    dead = await bed.end(1, "dead")
    with pytest.raises(QueueNotEmpty, match="1 message"):
        await bed.store.delete_queue("q")
    assert await bed.store.discard("q", "dead", dead) == 1
    await bed.store.delete_queue("q")
    with pytest.raises(QueueNotFound):
        await bed.store.stats("q")
    with pytest.raises(QueueNotFound):
        await bed.store.delete_queue("q")


async def test_deleting_a_queue_spares_its_neighbours():
    bed = await Bed.made()
    for name in ("q2", "q-", "qq"):
        await bed.store.create_queue(name, QueueOptions())
        await bed.store.append(name, [Envelope(name.encode())])
    await bed.append(1)
    await bed.store.delete_queue("q", force=True)
    assert [info.name for info in await bed.store.queues()] == ["q-", "q2", "qq"]
    for name in ("q2", "q-", "qq"):
        assert [each.payload for each in await bed.claim(queue=name)] == [name.encode()]
