"""A bucket whose objects have new dates: copied, restored, touched. Nothing is deleted on the word of a date.

What could be pending is delivered or set aside; what is set aside comes back exactly once. `tests/protocol` has the
rules (A3, F4) and says why they are needed; `tests/stores/log/bucket/test_quarantine_s3.py` does the same on a server.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.config import QueueOptions
from holdfast.errors import HoldfastError, UnknownOutcome
from holdfast.stores.base import DEAD
from holdfast.stores.log.bucket import identity, orphans, quarantine
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.log.head import repeat
from holdfast.stores.records import Envelope, Settlement
from holdfast.testing.clock import ManualClock
from tests.stores.log.bucket.far_bucket import Door, FarBucket, process

R = 15.0
OVER = R + repeat.MARGIN + 3.0  # seconds after which nothing that was born now can be created any more
PENDING = 501
Open = Callable[..., Awaitable[tuple[LateStore, Door]]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bucket(clock: ManualClock) -> FarBucket:
    return FarBucket(clock)


@pytest.fixture
async def open_store(bucket: FarBucket) -> AsyncIterator[Open]:
    opened: list[LateStore] = []

    async def open_one(other: FarBucket | None = None, **terms) -> tuple[LateStore, Door]:
        store, door = await process(other or bucket, **terms)
        opened.append(store)
        return store, door

    yield open_one
    for store in opened:
        await store.close()


def blocks(bucket: FarBucket) -> list[str]:
    """What a claim lists, not parts of calls or copies."""
    return [key for key in bucket.named() if key.partition("/")[2].startswith(("inbox/", "later/"))]


def message(text: str = "a", **more: object) -> Envelope:
    return Envelope(payload=text.encode(), **more)


async def fill(store: LateStore) -> list[str]:
    """501 messages: a large block, single ones, and a call over two blocks."""
    await store.create_queue("q", QueueOptions())
    ids = await store.append("q", [message(str(number)) for number in range(490)])
    for number in range(490, 495):
        ids += await store.append("q", [message(str(number))])
    ids += await store.append("q", [message(str(number), priority=number % 2) for number in range(495, 499)])
    ids += await store.append("q", [message(str(number), delay=5.0) for number in range(499, PENDING)])
    return ids


async def drain(store: LateStore, clock: ManualClock, queue: str = "q") -> Counter[str]:
    """Complete what comes until nothing does, also not after what is done meanwhile."""
    done: Counter[str] = Counter()
    empty = 0
    async with asyncio.timeout(60.0):
        while empty < 3:
            claims = await store.claim(queue, 1000, 60.0)
            answers = await store.settle(queue, [Settlement(x.id, x.token, "complete") for x in claims.messages])
            done.update(x.id for x, answer in zip(claims.messages, answers, strict=True) if answer == "ok")
            empty = 0 if claims.messages else empty + 1
            if empty:
                await settled(store, queue)
                clock.advance(1.0)
    return done


async def settled(store: LateStore, queue: str = "q") -> None:
    """Until what a claim has begun to set aside is set aside, and what it brings back has come."""
    setting_aside = store._log(queue).window.quarantine._task
    begun = {*store._fetching, *([setting_aside] if setting_aside is not None else [])}
    if begun:
        await asyncio.wait(begun, timeout=30.0)


async def set_aside(store: LateStore) -> int:
    return (await store.stats("q")).set_aside


@pytest.mark.parametrize("place", ["elsewhere", "far"], ids=["another prefix", "restored in place"])
async def test_a_copied_bucket_delivers_its_backlog(open_store: Open, clock, bucket: FarBucket, place: str) -> None:
    store, _ = await open_store()
    ids = await fill(store)
    clock.advance(3600.0)
    copied = bucket.copy()
    clock.advance(60.0)
    copy, _ = await open_store(copied, place=place)
    assert (await copy.stats("q")).pending == PENDING
    assert await drain(copy, clock) == Counter(ids)
    stats = await copy.stats("q")
    assert (stats.archived, stats.total, stats.set_aside) == (PENDING, PENDING, 0)


async def test_a_bucket_touched_in_place_keeps_its_backlog(open_store: Open, clock, bucket: FarBucket) -> None:
    """The process is running and knows no other epoch; the identity was rewritten with the rest."""
    store, _ = await open_store()
    ids = await fill(store)
    clock.advance(3600.0)
    bucket.rewrite(bucket.named())
    clock.advance(identity.REWRITE_SECONDS + 5.0)
    await store.maintain("q")
    assert await drain(store, clock) == Counter(ids)
    assert await set_aside(store) == 0


async def test_a_rewrite_in_place_may_reach_the_identity_first(open_store: Open, clock, bucket: FarBucket) -> None:
    """Object by object, while a process is at work: what is reached later must not count as written after the copy."""
    store, _ = await open_store()
    ids = await fill(store)
    clock.advance(3600.0)
    bucket.rewrite([identity.KEY])
    clock.advance(20.0)
    await store.maintain("q")
    bucket.rewrite(blocks(bucket))
    assert await drain(store, clock) == Counter()
    assert await set_aside(store) == PENDING
    clock.advance(identity.REWRITE_SECONDS)
    await store.maintain("q")
    assert await drain(store, clock) == Counter(ids)
    assert await set_aside(store) == 0


async def test_a_tool_that_goes_by_keys_comes_to_the_identity_last(open_store: Open, clock, bucket: FarBucket) -> None:
    """However long it takes, and whoever looks meanwhile: nothing is rewritten after the bucket knows."""
    store, _ = await open_store()
    await store.create_queue("z" * 128, QueueOptions())
    await store.append("z" * 128, [message()])
    ids = await fill(store)
    clock.advance(3600.0)
    for key in bucket.named():
        if key in bucket.objects:  # else it was set aside meanwhile
            bucket.rewrite([key])
        clock.advance(identity.REWRITE_SECONDS)
        await store.maintain("q")
    assert await set_aside(store) > 0
    clock.advance(5.0)
    await store.maintain("q")
    assert await drain(store, clock) == Counter(ids)
    assert await set_aside(store) == 0
    assert bucket.named()[-1] == identity.KEY


async def test_touched_blocks_are_set_aside_and_come_back_once(open_store: Open, clock, bucket, monkeypatch) -> None:
    """Only the blocks were rewritten: nobody can tell them from late ones. They are kept, shown, and brought back."""
    monkeypatch.setattr(quarantine, "_NAMED_MOST", 3)  # a head names some at a time
    store, _ = await open_store()
    other, _ = await open_store()
    ids = await fill(store)
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    assert await drain(store, clock) == Counter()
    assert (await set_aside(store), await set_aside(other)) == (PENDING, PENDING)
    assert (await store.stats("q")).total == 0
    clock.advance(OVER)
    await store.maintain("q")
    assert blocks(bucket) == [], "they lie under `late/`, and nowhere else"
    assert await set_aside(store) == PENDING
    both = await asyncio.gather(store.recover("q"), other.recover("q"))
    assert sum(each.recovered for each in both) == PENDING
    assert (await store.recover("q")).recovered == 0
    assert await drain(store, clock) == Counter(ids)
    assert bucket.named("/late/") == []
    assert await set_aside(store) == 0


async def test_what_was_set_aside_before_the_identity_was_rewritten_comes_back(open_store: Open, clock, bucket) -> None:
    """A tool that rewrites a prefix object by object reaches the blocks first."""
    store, _ = await open_store()
    ids = await fill(store)
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    assert await drain(store, clock) == Counter()
    clock.advance(10.0)
    bucket.rewrite([identity.KEY])
    clock.advance(identity.REWRITE_SECONDS + 5.0)
    assert (await store.maintain("q"))["recovered"] == PENDING
    assert await drain(store, clock) == Counter(ids)
    assert await set_aside(store) == 0


async def test_who_opens_a_rewritten_bucket_needs_no_maintenance(open_store: Open, clock, bucket: FarBucket) -> None:
    """It was rewritten while others were at work; then they ended. A program that only claims gets it all."""
    store, _ = await open_store()
    ids = await fill(store)
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    assert await drain(store, clock) == Counter()
    bucket.rewrite([identity.KEY])
    clock.advance(5.0)
    opened, _ = await open_store()
    assert await drain(opened, clock) == Counter(ids)
    assert await set_aside(opened) == 0


async def late_write(bucket: FarBucket, clock: ManualClock) -> tuple[str, bytes]:
    """The key and bytes of the only block; a sleeping producer will write it again."""
    (key,) = blocks(bucket)
    return key, bucket.objects[key][0]


async def finish(store: LateStore, clock: ManualClock) -> list[str]:
    """Complete what there is, and wait until it is deleted and forgotten."""
    claims = await store.claim("q", 10, 60.0)
    await store.settle("q", [Settlement(each.id, each.token, "complete") for each in claims.messages])
    await store._log("q").flusher.flush_all()
    for _ in range(3):
        clock.advance(OVER)
        await store.maintain("q")
    return [each.id for each in claims.messages]


@pytest.mark.parametrize("is_copy", [False, True], ids=["as ever", "slept through a copy"])
async def test_a_sleepers_write_is_not_delivered_again_but_shown(open_store: Open, clock, bucket, is_copy) -> None:
    """Finished, deleted and forgotten: then the producer's request arrives."""
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    (id,) = await store.append("q", [message()])
    key, data = await late_write(bucket, clock)
    assert await finish(store, clock) == [id]
    assert blocks(bucket) == []
    if is_copy:
        bucket.rewrite(bucket.named())
        clock.advance(60.0)
        store, _ = await open_store()
        clock.advance(60.0)
    bucket.write(key, data, "create")
    assert await drain(store, clock) == Counter(), "it was completed before"
    assert await set_aside(store) == 1
    clock.advance(OVER)
    await store.maintain("q")
    assert blocks(bucket) == []
    recovered = await store.recover("q")
    assert (recovered.recovered, recovered.known) == (0, 1), "the archive has it"
    assert await drain(store, clock) == Counter()
    assert await set_aside(store) == 0


async def test_a_copy_that_is_written_again_does_not_bring_it_back_twice(open_store: Open, clock, bucket) -> None:
    """Whoever slept while it copied a late block to `late/` wakes up after `recover`."""
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions(archive=False))
    (id,) = await store.append("q", [message()])
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    await drain(store, clock)
    (copy,) = bucket.named("/late/")
    data = bucket.objects[copy][0]
    assert (await store.recover("q")).recovered == 1
    assert await drain(store, clock) == Counter([id])
    bucket.write(copy, data, "create")
    assert (await store.recover("q")).recovered == 0
    assert await drain(store, clock) == Counter()
    assert bucket.named("/late/") == []


async def test_recover_leaves_out_what_its_producer_has_repeated(open_store: Open, clock, bucket) -> None:
    """The request arrives late, after `UnknownOutcome.retry` has added the message under the same id."""
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "late" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await store.append("q", [message()])
    clock.advance(OVER)
    door.fate = lambda kind, key: "ok"
    assert await lost.value.retry() == lost.value.ids
    assert bucket.deliver() > 0
    assert (await store.stats("q")).pending == 1
    assert await set_aside(store) == 1
    recovered = await store.recover("q")
    assert (recovered.recovered, recovered.known) == (0, 1)
    assert await drain(store, clock) == Counter(lost.value.ids)


async def test_what_arrived_and_was_rewritten_is_not_delivered_beside_its_repeat(
    open_store: Open, clock, bucket
) -> None:
    """Its producer takes it for late, and whoever opens the bucket then for copied: one of them decides."""
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    fates = iter(["lose"])  # the first arrives, and no repeat is answered
    door.fate = lambda kind, key: next(fates, "down") if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await store.append("q", [message(), message("b")])
    door.fate = lambda kind, key: "ok"
    clock.advance(OVER)
    bucket.rewrite(bucket.named())
    assert await lost.value.retry() == lost.value.ids
    clock.advance(5.0)
    other, _ = await open_store()
    assert await drain(other, clock) == Counter(lost.value.ids)
    await other.maintain("q")
    assert await drain(other, clock) == Counter()


async def test_what_arrived_late_and_was_not_repeated_can_be_brought_back(open_store: Open, clock, bucket) -> None:
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "late" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await store.append("q", [message(headers={"a": "b"}, priority=7)])
    clock.advance(OVER)
    door.fate = lambda kind, key: "ok"
    assert bucket.deliver() > 0
    assert await drain(store, clock) == Counter()
    assert (await store.recover("q")).recovered == 1
    (found,) = await store.get("q", lost.value.ids)
    assert found is not None
    assert (found.status, found.headers, found.priority) == ("pending", {"a": "b"}, 7)
    assert await drain(store, clock) == Counter(lost.value.ids)


async def test_two_late_writes_of_one_message_come_back_once(open_store: Open, clock, bucket: FarBucket) -> None:
    """The request and its repeat, under another name, were both too late, and are recovered together."""
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "late" if "/inbox/" in key or "/later/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await store.append("q", [message()])
    clock.advance(OVER)
    with pytest.raises(UnknownOutcome):
        await lost.value.retry()
    clock.advance(OVER)
    door.fate = lambda kind, key: "ok"
    assert bucket.deliver() > 1
    assert await set_aside(store) == 2
    recovered = await store.recover("q")
    assert (recovered.recovered, recovered.known) == (1, 1)
    assert await drain(store, clock) == Counter(lost.value.ids)


async def test_blocks_are_brought_back_together(open_store: Open, clock, bucket: FarBucket) -> None:
    """One after the other, a thousand blocks took ten minutes."""
    store, door = await open_store()
    await store.create_queue("q", QueueOptions())
    ids = [id for number in range(20) for id in await store.append("q", [message(str(number))])]
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    await drain(store, clock)
    pairs, told = threading.Barrier(2), []

    def meet(kind: str, key: str) -> str:
        if "/later/" in key:
            pairs.wait(10.0)  # raises when nobody else is creating a block
        return "ok"

    door.fate = meet
    done = await store.recover("q", on_progress=told.append)
    assert (done.recovered, sum(told)) == (20, 20)
    assert len(told) > 1
    assert await drain(store, clock) == Counter(ids)


async def test_what_nobody_set_aside_is_left_alone(open_store: Open, clock, bucket: FarBucket, caplog) -> None:
    store, _ = await open_store()
    ids = await fill(store)
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    await drain(store, clock)
    copy = bucket.named("/late/")[0]
    queue, _, name = copy.partition("/late/")
    written, _, block = name.partition("/")
    strange = [f"{queue}/late/{name}" for name in ("note.txt", f"soon/{block}", f"{written}/inbox")]
    for key in strange:
        bucket.write(key, b"mine", "create")
    assert await set_aside(store) == PENDING
    with caplog.at_level("ERROR"):
        done = await store.recover("q")
    assert (done.recovered, done.damaged) == (PENDING, len(strange))
    assert all(key in caplog.text for key in strange)
    assert bucket.named("/late/") == sorted(strange)
    assert await drain(store, clock) == Counter(ids)


async def test_recover_can_throw_it_away(open_store: Open, clock, bucket: FarBucket) -> None:
    store, _ = await open_store()
    await fill(store)
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    assert (await store.recover("q", delete=True)).deleted == PENDING
    assert (bucket.named("/late/"), await set_aside(store)) == ([], 0)
    assert await drain(store, clock) == Counter()


def killed_at(count: int) -> Callable[[str, str], str]:
    """The fates of a process whose so manieth write is its last."""
    left = [count]

    def fate(kind: str, key: str) -> str:
        left[0] -= not key.startswith("probe/")
        return "kill" if left[0] == 0 else "ok"

    return fate


async def test_whoever_is_killed_while_it_sets_aside_or_recovers_loses_nothing(open_store: Open, clock, bucket) -> None:
    """Killed at its first write, then at its second, ...: somebody else goes on."""
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    ids = await store.append("q", [message()])
    ids += await store.append("q", [message(str(number), priority=number) for number in range(2)])
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    for kills in range(1, 40):
        killed, door = await open_store(timeout=0.3)
        door.fate = killed_at(kills)
        try:
            await killed.recover("q")
            break
        except HoldfastError:
            clock.advance(1.0)
            stats = await store.stats("q")
            assert stats.set_aside + stats.pending >= len(ids)
    assert kills > 3
    assert await drain(store, clock) == Counter(ids)


async def die(store: LateStore) -> None:
    """Every message of the queue fails for good."""
    claims = await store.claim("q", 1000, 60.0)
    await store.settle("q", [Settlement(each.id, each.token, "dead", error="no") for each in claims.messages])


async def test_dead_letters_come_back_to_who_opens_a_rewritten_bucket(open_store: Open, clock, bucket) -> None:
    """To who has only claimed from the queue itself."""
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    (id,) = await store.append("q", [message()])
    await die(store)
    await store._log("q").flusher.flush_all()
    clock.advance(3600.0)
    bucket.rewrite(bucket.named("/dead/inbox/"))
    await store.maintain("q")
    assert (await set_aside(store), await store.scan("q", "dead")) == (1, [])
    bucket.rewrite([identity.KEY])
    clock.advance(5.0)
    opened, _ = await open_store()
    assert await drain(opened, clock) == Counter()
    assert await set_aside(opened) == 0
    assert [each.id for each in await opened.scan("q", "dead")] == [id]


async def left_behind(open_store: Open) -> str:
    """A dead letter whose flush was killed after its block was written, and before its row was dropped."""
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    (id,) = await store.append("q", [message()])
    await die(store)
    door.fate = lambda kind, key: "kill" if "/dead/inbox/" in key else "ok"
    with pytest.raises(HoldfastError):
        await store._log("q").flusher.flush_all()
    return id


async def test_a_flush_that_a_copy_interrupts_writes_its_dead_letters_once(open_store: Open, clock, bucket) -> None:
    """F4: the block was written in time, the drop was not; in the copy its date is that of the copy."""
    id = await left_behind(open_store)
    clock.advance(3600.0)
    copied = bucket.copy()
    clock.advance(60.0)
    copy, _ = await open_store(copied, place="elsewhere")
    await copy.maintain("q")
    assert len(copied.named("/dead/inbox/")) == 1, "it counts as written"
    assert [each.id for each in await copy.scan("q", "dead")] == [id]
    assert await drain(copy, clock, "q" + DEAD) == Counter([id])


@pytest.mark.parametrize("looks_first", ["at the queue", "at the dead letters"])
async def test_a_flush_left_behind_and_rewritten_is_not_written_twice(
    open_store: Open, clock, bucket: FarBucket, looks_first: str
) -> None:
    """Its block was rewritten before the bucket's identity was: it looks late now, and will not look so later."""
    id = await left_behind(open_store)
    clock.advance(3600.0)
    bucket.rewrite(bucket.named("/dead/inbox/"))
    other, _ = await open_store()
    if looks_first == "at the dead letters":
        await other._log("q" + DEAD).window.quarantine.tend()
    await other.maintain("q")
    done = await drain(other, clock, "q" + DEAD)
    await other._log("q" + DEAD).flusher.flush_all()
    bucket.rewrite([identity.KEY])
    clock.advance(5.0)
    await other.maintain("q")
    assert done + await drain(other, clock, "q" + DEAD) == Counter([id])
    assert (await set_aside(other), bucket.named("/late/")) == (0, [])


async def test_a_sleeping_flusher_is_set_aside(open_store: Open, clock, bucket: FarBucket) -> None:
    """Its dead letters arrive after somebody else has written them, and after they were handled."""
    store, door = await open_store(timeout=1.0)
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    (id,) = await store.append("q", [message()])
    door.fate = lambda kind, key: "late" if kind == "create" and "/dead/inbox/" in key else "ok"
    await die(store)
    with pytest.raises(HoldfastError):
        await store._log("q").flusher.flush_all()
    door.is_shut = True
    clock.advance(OVER)
    await other.maintain("q")
    assert await drain(other, clock, "q" + DEAD) == Counter([id])
    clock.advance(OVER)
    assert bucket.deliver() > 0
    assert await drain(other, clock, "q" + DEAD) == Counter()
    assert await set_aside(other) == 1
    recovered = await other.recover("q")
    assert (recovered.recovered, recovered.known) == (0, 1)


async def test_a_purge_does_not_delete_what_is_late(open_store: Open, clock, bucket: FarBucket) -> None:
    """A call over two blocks, touched: a purge drops what waits, not what may be more than it saw."""
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    await store.append("q", [message(str(number), priority=number) for number in range(2)])
    clock.advance(3600.0)
    bucket.rewrite(blocks(bucket))
    assert await store.purge("q") == 0
    clock.advance(OVER)
    await store.maintain("q")
    assert await set_aside(store) == 2


async def test_what_a_purge_dropped_is_buried_before_it_is_deleted(open_store: Open, clock, bucket: FarBucket) -> None:
    """Rewritten in between, it looks younger than the purge: nobody takes in what somebody else is deleting."""
    store, door = await open_store()
    await store.create_queue("q", QueueOptions())
    await store.append("q", [message()])
    clock.advance(5.0)
    assert await store.purge("q") == 1
    door.fate = lambda kind, key: "late" if kind == "delete" else "ok"
    assert not (await store.claim("q", 1, 60.0)).messages
    bucket.rewrite(blocks(bucket))
    other, _ = await open_store()
    assert not (await other.claim("q", 1, 60.0)).messages
    clock.advance(OVER)
    await other.maintain("q")
    bucket.deliver()
    assert await drain(other, clock) == Counter()
    assert (await other.stats("q")).dead == 0


async def test_parts_are_not_swept_while_a_late_bundle_names_them(open_store: Open, clock, bucket: FarBucket) -> None:
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    ids = await store.append("q", [message(str(number), priority=number) for number in range(2)])
    bucket.rewrite(blocks(bucket))
    clock.advance(7200.0)
    bucket.rewrite(blocks(bucket))
    assert await orphans.sweep(store._space, store._log("q").committer, store._cache) == 0
    assert (await store.recover("q")).recovered == 2
    assert await drain(store, clock) == Counter(ids)


async def test_parts_that_were_just_copied_are_not_swept(open_store: Open, clock, bucket: FarBucket) -> None:
    """A copy under way: what names them is not there yet."""
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    await store.append("q", [message(str(number), priority=number) for number in range(2)])
    clock.advance(7200.0)
    bucket.rewrite(bucket.named("/parts/"))
    bucket.remove(blocks(bucket))
    assert await orphans.sweep(store._space, store._log("q").committer, store._cache) == 0
    clock.advance(7200.0)
    assert await orphans.sweep(store._space, store._log("q").committer, store._cache) == 2


async def test_a_store_of_an_earlier_version_gets_an_identity(open_store: Open, clock, bucket: FarBucket) -> None:
    """Its blocks pass whatever their dates: it may have been copied without anybody knowing."""
    store, _ = await open_store()
    ids = await fill(store)
    clock.advance(3600.0)
    bucket.remove([identity.KEY])
    bucket.rewrite(bucket.named())
    clock.advance(60.0)
    later, _ = await open_store()
    assert await drain(later, clock) == Counter(ids)


async def test_one_of_two_who_open_a_copy_says_since_when(open_store: Open, clock, bucket: FarBucket) -> None:
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    clock.advance(3600.0)
    copied = bucket.copy()
    clock.advance(5.0)
    stores = await asyncio.gather(*(open_store(copied, place="elsewhere") for _ in range(3)))
    assert {store._space.epoch for store, _ in stores} == {clock()}
    clock.advance(3600.0)
    again, _ = await open_store(copied, place="elsewhere")
    assert again._space.epoch == clock() - 3600.0, "it is no copy of a copy"
    assert store._space.epoch == 0.0


async def test_a_moved_dead_letter_that_is_done_with_is_not_moved_again(
    open_store: Open, clock, bucket: FarBucket
) -> None:
    """Who moved it was killed before it dropped it, and comes back after the other queue has forgotten it."""
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions(dead_letter="other"))
    await store.create_queue("other", QueueOptions(archive=False))
    await store.append("q", [message()])
    await die(store)
    door.fate = lambda kind, key: "kill" if key.startswith("other@") and "/inbox/" in key else "ok"
    with pytest.raises(HoldfastError):
        await store._log("q").flusher.flush_all()
    other, _ = await open_store()
    done = await drain(other, clock, "other")
    clock.advance(OVER)
    await other.maintain("other")
    clock.advance(OVER)
    await other.maintain("other")
    again, _ = await open_store()
    await again.maintain("q")
    done += await drain(again, clock, "other")
    assert sorted(done.values()) == [1]
