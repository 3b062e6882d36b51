"""The log engine on a bucket against the rules of the protocol: what goes wrong there at the wrong moment.

Each test is one schedule, told step by step. `tests/protocol` has the rules and says why they are needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from holdfast.config import QueueOptions
from holdfast.errors import HoldfastError, QueueNotFound, Unavailable, UnknownOutcome
from holdfast.stores.base import DEAD
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.log.flush import Flusher
from holdfast.stores.log.head import repeat
from holdfast.stores.log.head.state import Expire, Freeze
from holdfast.stores.records import Change, Envelope, Settlement
from holdfast.testing.clock import ManualClock
from tests.stores.log.bucket.far_bucket import Door, FarBucket, process

R = 15.0
DAY = 86400.0
OVER = R + repeat.MARGIN + 3.0  # seconds after which nothing that was born now can be created any more


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time() // DAY * DAY + 6 * 3600)  # hours before midnight: files are merged by day


@pytest.fixture
def bucket(clock: ManualClock) -> FarBucket:
    return FarBucket(clock)


@pytest.fixture
async def open_store(bucket: FarBucket) -> AsyncIterator[object]:
    opened: list[LateStore] = []

    async def open_one(timeout: float = 5.0) -> tuple[LateStore, Door]:
        store, door = await process(bucket, timeout=timeout)
        opened.append(store)
        return store, door

    yield open_one
    for store in opened:
        await store.close()


def message(text: str = "a", **more: object) -> Envelope:
    return Envelope(payload=text.encode(), **more)


async def complete(store: LateStore, queue: str, claims) -> list[str]:
    return await store.settle(queue, [Settlement(each.id, each.token, "complete") for each in claims.messages])


async def test_a_purge_leaves_what_is_held_alone(open_store, clock: ManualClock, bucket: FarBucket) -> None:
    """A4: a block older than the purge is deleted, unless the head holds it."""
    store, _ = await open_store()
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    (id,) = await store.append("q", [message()])
    held = await store.claim("q", 1, 600.0)
    clock.advance(60.0)
    await store.append("q", [message("b")])
    assert await store.purge("q") == 1
    await store.claim("q", 10, 600.0)
    await store._log("q").window.undertaker.bury()
    assert bucket.named("/inbox/"), "its payload is still needed"
    assert await complete(other, "q", held) == ["ok"]
    await other._log("q").flusher.flush_all()
    (found,) = await other.get("q", [id])
    assert found is not None
    assert found.status == "completed"


async def test_a_purge_of_what_nobody_has_absorbed(open_store, clock: ManualClock) -> None:
    store, _ = await open_store()
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    await store.append("q", [message()])
    clock.advance(60.0)
    assert await store.purge("q") == 1
    assert (await other.stats("q")).pending == 0
    assert (await other.claim("q", 10, 5.0)).messages == []
    await store.append("q", [message("b")])
    assert len((await other.claim("q", 10, 5.0)).messages) == 1


async def die(store: LateStore, queue: str, attempts: int = 1) -> None:
    """Every message of the queue fails for good."""
    claims = await store.claim(queue, 100, 60.0)
    await store.settle(queue, [Settlement(each.id, each.token, "dead", error="no") for each in claims.messages])


async def test_a_dead_letter_that_was_written_too_late_is_written_again(open_store, clock, bucket: FarBucket) -> None:
    """F4: the flusher's request arrives after the window of the freeze: nobody will absorb it."""
    store, door = await open_store(timeout=1.0)
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    (id,) = await store.append("q", [message()])
    door.fate = lambda kind, key: "late" if kind == "create" and "/dead/inbox/" in key else "ok"
    await die(store, "q")
    with pytest.raises(HoldfastError):
        await store._log("q").flusher.flush_all()
    door.is_shut = True
    clock.advance(OVER)
    assert bucket.deliver() > 0
    await other.maintain("q")
    clock.advance(OVER)
    await other.claim("q" + DEAD, 0, 1.0)
    assert [each.id for each in await other.scan("q", "dead")] == [id]
    assert [each.id for each in (await other.claim("q" + DEAD, 5, 60.0)).messages] == [id]


async def test_what_was_replayed_and_finished_does_not_come_back(open_store, clock, bucket: FarBucket) -> None:
    """Killed between the block and the drop; the block lives its life before somebody finishes the flush."""
    store, door = await open_store(timeout=1.0)
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    (id,) = await store.append("q", [message()])
    await die(store, "q")
    await store._log("q").flusher.flush_all()
    door.fate = lambda kind, key: "kill" if kind == "create" and "/dead/" not in key and "/inbox/" in key else "ok"
    with pytest.raises(HoldfastError):
        await store.replay("q", "dead", [id])
    ran = await run_all(other, clock)
    await other.maintain("q")
    clock.advance(OVER)
    await other.maintain("q")
    ran += await run_all(other, clock)
    assert len(ran) == 1


async def run_all(store: LateStore, clock: ManualClock) -> list[str]:
    """Complete what there is, and wait until everything of it is gone."""
    claims = await store.claim("q", 10, 60.0)
    if claims.messages:
        await complete(store, "q", claims)
        await store._log("q").flusher.flush_all()
    for _ in range(3):
        clock.advance(OVER)
        await store._log("q").window.undertaker.bury()
        await store.claim("q", 10, 60.0)
    return [each.id for each in claims.messages]


async def claimed(store: LateStore) -> list[str]:
    return sorted(each.id for each in (await store.claim("q", 10, 60.0)).messages)


async def test_a_dedup_key_adds_one_message_although_its_block_comes_late(open_store, clock, bucket) -> None:
    """Who finds a promise must not judge it while its block may still arrive in time."""
    store, door = await open_store(timeout=1.0)
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "late" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome):
        await store.append("q", [message(dedup_key="k")])
    door.is_shut = True
    clock.advance(R - 3.0)
    second = asyncio.create_task(other.append("q", [message(dedup_key="k")]))
    await asyncio.wait([second], timeout=1.0)
    assert bucket.deliver() > 0
    clock.advance(OVER)
    ids = await asyncio.wait_for(second, 30.0)
    assert await claimed(other) == ids


async def test_a_lost_append_to_a_shard_can_be_repeated(open_store, clock) -> None:
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions(shards=2))
    store.home = 1
    door.fate = lambda kind, key: "fail" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await store.append("q", [message()])
    clock.advance(OVER)
    door.fate = lambda kind, key: "ok"
    assert await lost.value.retry() == lost.value.ids
    clock.advance(5.0)
    assert await claimed(store) == lost.value.ids


async def test_repeating_a_lost_append_twice_adds_one_message(open_store, clock, bucket) -> None:
    """P1 for `UnknownOutcome.retry`: the block it writes may be on its way, too."""
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "fail" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await store.append("q", [message()])
    clock.advance(OVER)
    door.fate = lambda kind, key: "late" if "/later/" in key else "ok"
    with pytest.raises(UnknownOutcome) as again:
        await lost.value.retry()
    assert again.value.ids == lost.value.ids
    door.fate = lambda kind, key: "ok"
    repeated = [asyncio.create_task(error.value.retry()) for error in (lost, again)]
    await asyncio.wait(repeated, timeout=0.5)
    bucket.deliver()
    clock.advance(OVER)
    assert await asyncio.wait_for(asyncio.gather(*repeated), 30.0) == [lost.value.ids] * 2
    (found,) = await store.get("q", lost.value.ids)
    assert found is not None
    assert await claimed(store) == lost.value.ids


async def test_an_append_that_hangs_is_not_called_unavailable(open_store) -> None:
    """P4: who is told `Unavailable` would send it again."""
    store, door = await open_store(timeout=0.5)
    await store.create_queue("q", QueueOptions())

    def hang(kind: str, key: str) -> str:
        if "/inbox/" in key:
            time.sleep(2.0)
        return "ok"

    door.fate = hang
    with pytest.raises(UnknownOutcome) as lost:
        await store.append("q", [message()])
    assert len(lost.value.ids) == 1
    await asyncio.sleep(2.0)  # it arrives
    assert await claimed(store) == list(lost.value.ids)


async def test_a_call_with_keys_can_be_repeated(open_store) -> None:
    store, door = await open_store(timeout=0.5)
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "fail" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await store.append("q", [message(dedup_key="k"), message(dedup_key="l")])
    door.fate = lambda kind, key: "ok"
    ids = await lost.value.retry()
    assert await lost.value.retry() == ids
    assert await claimed(store) == ids


async def test_what_is_no_append_has_nothing_to_repeat(open_store) -> None:
    """`UnknownOutcome` has ids and a `retry`: without them it is `Unavailable`, and says that it is unknown."""
    store, door = await open_store(timeout=0.5)
    await store.create_queue("q", QueueOptions())
    [id] = await store.append("q", [message()])
    door.fate = lambda kind, key: "fail" if kind == "create" else "ok"
    with pytest.raises(Unavailable, match="did not say whether"):
        await store.change("q", id, Change(priority=5))


@pytest.mark.parametrize(
    ("verb", "seconds"), [("create", 0.6), ("configure", 0.6), ("pause", 0.6), ("change", 1.5), ("cancel", 1.5)]
)
async def test_what_takes_several_steps_has_the_time_of_one(open_store, verb: str, seconds: float, monkeypatch) -> None:
    store, _ = await open_store(timeout=2.0)
    await store.create_queue("q", QueueOptions(shards=4))
    [id] = await store.append("q", [message()])
    passed = Door._pass

    def slowly(self: Door) -> None:
        time.sleep(seconds)
        passed(self)

    monkeypatch.setattr(Door, "_pass", slowly)
    calls = {
        "create": lambda: store.create_queue("new", QueueOptions(shards=4)),
        "configure": lambda: store.configure("q", QueueOptions(shards=4)),
        "pause": lambda: store.pause("q", True),
        "change": lambda: store.change("q", id, Change(priority=5)),
        "cancel": lambda: store.cancel("q", id),
    }
    began = time.monotonic()
    with pytest.raises(Unavailable):
        await calls[verb]()
    assert time.monotonic() - began < 3.2  # with half a second for what is on its way


async def archive_of(store: LateStore, count: int) -> list[str]:
    """So many messages, each in an archive file of its own."""
    ids = []
    for number in range(count):
        ids += await store.append("q", [message(str(number))])
        await complete(store, "q", await store.claim("q", 1, 60.0))
        await store._log("q").flusher.flush_all()
    return ids


async def test_rows_of_finished_blocks_do_not_stay_in_memory(open_store, clock) -> None:
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    await archive_of(store, 5)
    assert store._cache._blocks
    clock.advance(OVER)
    await store._log("q").window.undertaker.bury()
    assert not store._cache._blocks


async def test_files_are_merged_when_nobody_writes_them_any_more(open_store, clock, bucket: FarBucket) -> None:
    """A flusher that comes late writes its file again: archive files have no fence."""
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    ids = await archive_of(store, 20)
    clock.advance(OVER)
    assert (await store.maintain("q"))["merged_files"] == 0
    clock.advance(3600.0)
    late = bucket.named("/archive/")[3]
    data, _, _ = bucket.objects[late]
    assert (await store.maintain("q"))["merged_files"] == 20
    assert len(bucket.named("/archive/")) == 1
    bucket.write(late, data, "create")
    ids += await archive_of(store, 16)
    clock.advance(3700.0)
    await store.maintain("q")
    assert len(bucket.named("/archive/")) == 1
    assert [each.id for each in await store.scan("q", "archive", limit=100)] == sorted(ids)
    assert (await store.stats("q")).archived == 36, "the late one was not counted twice for ever"


async def test_a_merge_that_came_too_late_leaves_nothing(open_store, clock, bucket: FarBucket) -> None:
    """Somebody deletes archived messages while the union of their files is being written."""
    store, door = await open_store()
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    ids = await archive_of(store, 20)
    clock.advance(3700.0)
    first, *_ = bucket.named("/archive/")

    def interfere(kind: str, key: str) -> str:
        if "/archive/" in key and kind == "create":
            bucket.remove([first])  # as if deleted by another process
        return "ok"

    door.fate = interfere
    assert (await store.maintain("q"))["merged_files"] == 0
    assert len(await other.scan("q", "archive", limit=100)) == len(ids) - 1
    assert (await other.stats("q")).archived == len(ids) - 1


async def test_a_queue_is_deleted_when_everybody_knows(open_store, bucket: FarBucket) -> None:
    """What is appended after the answer is refused by every process; nothing is taken from what is left."""
    store, door = await open_store()
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    await store.append("q", [message()])
    await other.claim("q", 1, 60.0)
    deleted: list[str] = []

    def note(kind: str, key: str) -> str:
        deleted.extend([key] if kind == "delete" else [])
        return "ok"

    door.fate = note
    deleting = asyncio.create_task(store.delete_queue("q", force=True))
    refused = 0
    while not deleting.done():
        try:
            await other.append("q", [message("b")])
        except QueueNotFound:
            refused += 1
        await asyncio.sleep(0.05)
    await deleting
    assert refused > 0
    with pytest.raises(QueueNotFound):
        await other.append("q", [message("c")])
    with pytest.raises(QueueNotFound):
        await other.claim("q", 1, 60.0)
    assert bucket.named("@") == []
    assert deleted[-1].endswith("/head")


async def test_upkeep_buries_what_others_left(open_store, clock, bucket: FarBucket) -> None:
    """G1: anyone may, also a process that has nothing else to do there."""
    store, _ = await open_store()
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    await store.append("q", [message()])
    await complete(store, "q", await store.claim("q", 1, 60.0))
    await store._log("q").flusher.flush_all()
    clock.advance(OVER)
    await other.maintain("q")
    assert bucket.named("/inbox/") == []
    head = (await other._log("q").committer.ask(Expire())).head
    assert head.beyond.graveyard == ()


async def test_a_purge_reaches_retries_that_are_leaving_the_head(open_store, clock, monkeypatch) -> None:
    """They were frozen between the look and the purge, and would come back as a block of the flush."""
    monkeypatch.setattr("holdfast.stores.log.head.machine.NEAR_MOST", 0)
    monkeypatch.setattr("holdfast.stores.log.head.machine.NEAR_KEPT", 0)
    store, _ = await open_store()
    other, door = await open_store()
    await store.create_queue("q", QueueOptions())
    await other.append("q", [message()])
    (held,) = (await other.claim("q", 1, 60.0)).messages
    door.fate = lambda kind, key: "fail" if "/later/" in key else "ok"
    purge, thaw = store.purge, Flusher.thaw

    async def freeze_behind(flusher: Flusher) -> None:
        await thaw(flusher)
        if not clock_moved:
            await other.settle("q", [Settlement(held.id, held.token, "retry", delay=30.0)])
            await other._log("q").committer.ask(Freeze(f"{other._ids.block(clock()):032x}"))
            clock_moved.append(clock.advance(6.0))

    clock_moved: list[float] = []
    monkeypatch.setattr(Flusher, "thaw", freeze_behind)
    await purge("q")
    clock.advance(60.0)
    await store.maintain("q")
    assert (await store.claim("q", 1, 60.0)).messages == []
    assert (await store.stats("q")).total == 0
