"""What does not match its sum: named, never delivered, and out of the way of everything else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import admin
from holdfast.errors import Damaged
from holdfast.stores import formats
from holdfast.stores.base import DEAD
from holdfast.stores.nats import damage, sums
from holdfast.stores.nats.reading import Found
from holdfast.stores.nats.store import NatsStore
from holdfast.v1.task_pb2 import Record, Task
from tests.servers.nats import Server

LARGE = 3 << 20  # bytes: through the object store


def flipped(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


WAYS: dict[str, Callable[[bytes], bytes]] = {
    "flipped": flipped,
    "cut": lambda data: data[:-9],
    "without a sum": lambda data: data[:-6],
    "zeroed": lambda data: bytes(len(data)),
    "rubbish": lambda data: os.urandom(len(data)),
    "empty": lambda data: b"",
}


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


async def last(broker: holdfast.Broker, stream: str, subject: str) -> Found:
    found = await store_of(broker).reader.last_exact(stream, subject)
    assert found is not None
    return found


async def put(broker: holdfast.Broker, subject: str, data: bytes) -> None:
    """As another program would, past our sums."""
    reply = await store_of(broker).connection.request(subject, data)
    assert b'"error"' not in reply.data


async def spoil(broker: holdfast.Broker, stream: str, subject: str, way: Callable[[bytes], bytes] = flipped) -> None:
    found = await last(broker, stream, subject)
    assert found.has_sum
    await put(broker, subject, way(found.stored))


async def spoil_record(broker: holdfast.Broker, id: str, queue: str = "jobs") -> str:
    names = store_of(broker).register.names(queue)
    await spoil(broker, names.done_stream, names.done + id)
    return names.done + id


async def drained(queue: holdfast.Queue[Any], *, most: int = 100) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(20):
        while deliveries := await queue.dequeue_many(most):
            found += [each.value for each in deliveries]
            await queue.complete_many(deliveries)
    return found


async def wrong(broker: holdfast.Broker, *, quarantine: bool = False) -> dict[str, str]:
    return {each.key: each.problem for each in (await admin.scrub(broker, quarantine=quarantine)).wrong}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("delay", [0.0, 0.05], ids=["waiting", "delayed"])
async def test_a_damaged_task_ends_as_dead_and_holds_nothing_up(
    broker: holdfast.Broker, way: str, delay: float
) -> None:
    queue = await broker.queue("jobs")
    [bad] = await queue.enqueue_many(["bad"], delay=delay)
    await queue.enqueue_many([f"good {n}" for n in range(20)])
    names = store_of(broker).register.names("jobs")
    subject = names.task_of(0, bad, later=delay > 0)
    whole = await last(broker, names.task_stream, subject)
    spoiled = WAYS[way](whole.stored)
    await put(broker, subject, spoiled)
    assert subject in await wrong(broker)
    assert await drained(queue) == [f"good {n}" for n in range(20)]
    assert await drained(queue) == []
    assert await queue.status(bad) == "dead"
    [record] = await queue.dead.list()
    assert record.id == bad
    assert subject in (record.error or "")
    assert "damaged" in (record.error or "")
    assert record.headers[damage.HEADER] == subject
    kept = await store_of(broker).blobs.get(bad + damage.KEPT)
    assert kept == spoiled
    assert await queue.dead.delete([bad]) == 1
    with pytest.raises(Damaged, match="gone"):
        await store_of(broker).blobs.get(bad + damage.KEPT)


async def test_what_lies_under_another_subject_does_not_match(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    one, two = await queue.enqueue_many(["one", "two"])
    names = store_of(broker).register.names("jobs")
    other = await last(broker, names.task_stream, names.task_of(0, two))
    await put(broker, names.task_of(0, one), other.stored)
    assert await drained(queue) == ["two"]
    assert await queue.status(one) == "dead"


async def test_a_record_that_cannot_be_read_ends_its_message(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs", retry=holdfast.Fixed(0.01), max_attempts=9)
    bad, good = await queue.enqueue_many(["bad", "good"])
    for each in await queue.dequeue_many(2):
        await each.fail("once more")
    subject = await spoil_record(broker, bad)
    assert (await queue.get(bad)).error  # type: ignore[union-attr]  # it is there
    async with asyncio.timeout(10):
        while not (found := await drained(queue)):
            await asyncio.sleep(0.02)
    assert found == ["good"]
    assert await queue.status(good) == "completed"
    assert await queue.status(bad) == "dead"
    [record] = await queue.dead.list()
    assert (record.id, record.value) == (bad, "bad")
    assert subject in (record.error or "")


async def test_a_holder_whose_record_is_damaged_has_lost_its_lease(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs", lease=1.0)
    await queue.enqueue("bad")
    delivery = await queue.dequeue()
    assert delivery is not None
    await spoil_record(broker, delivery.id)
    with pytest.raises(holdfast.LeaseLost):
        await delivery.complete()
    async with asyncio.timeout(10):
        while await queue.status(delivery.id) != "dead":
            assert await queue.dequeue(wait=0.2) is None


async def test_an_archived_record_that_cannot_be_read_hides_no_other(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    ids = await queue.enqueue_many(["a", "b", "c"])
    await drained(queue)
    subject = await spoil_record(broker, ids[1])
    with pytest.raises(Damaged, match=ids[1]) as said:
        await queue.get(ids[1])
    assert (said.value.queue, said.value.key) == ("jobs", subject)
    assert [each.id for each in await queue.archive.list()] == [ids[0], ids[2]]
    assert await wrong(broker) == {subject: "its bytes do not match its sum"}
    [line] = [line for line in await broker.check() if line.name == "scrub"]
    assert line.state == "fail"
    assert subject in line.detail
    await broker.maintain()
    assert list(await wrong(broker, quarantine=True)) == [subject]
    assert await wrong(broker) == {}
    assert await queue.get(ids[1]) is None
    [line] = [line for line in await broker.check() if line.name == "scrub"]
    assert line.state == "ok"


async def test_the_record_of_a_dead_letter_is_made_anew(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    [id] = await queue.enqueue_many(["dead"])
    for each in await queue.dequeue_many(1):
        await each.kill("why")
    subject = await spoil_record(broker, id)
    [record] = await queue.dead.list()
    assert (record.id, record.value, record.status) == (id, "dead", "dead")
    assert subject in (record.error or "")
    assert (await broker.store.claim("jobs" + DEAD, 1, 5.0)).messages == []
    assert list(await wrong(broker, quarantine=True)) == [subject]
    assert await wrong(broker) == {}
    assert await queue.dead.replay([id]) == 1
    assert await drained(queue) == ["dead"]


async def test_a_damaged_letter_is_handed_out_as_its_record_has_it(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    [id] = await queue.enqueue_many(["dead"])
    for each in await queue.dequeue_many(1):
        await each.kill("why")
    names = store_of(broker).register.names("jobs")
    await spoil(broker, names.dead_stream, f"{names.dead}0.{id}")
    [claimed] = (await broker.store.claim("jobs" + DEAD, 1, 5.0)).messages
    assert (claimed.id, claimed.payload) == (id, b'"dead"')


async def _spoil_chunk(broker: holdfast.Broker, name: str) -> None:
    """Bytes of an object, where they lie."""
    store = store_of(broker)
    info = await store.blobs._find(name)
    assert info is not None
    stream, subject = f"OBJ_{store.prefix}-blobs", f"$O.{store.prefix}-blobs.C.{info.nuid}"
    pieces = await store.reader.run(stream, subject, 1, 1000)
    await store.connection.api(f"STREAM.PURGE.{stream}", {"filter": subject})
    for piece in pieces[:-1]:
        await put(broker, subject, piece.stored)
    await put(broker, subject, flipped(pieces[-1].stored))


async def test_a_damaged_payload_in_the_object_store_ends_its_message(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs", max_message_size=2 * LARGE)
    bad = await queue.enqueue("x" * LARGE)
    await queue.enqueue("good")
    await _spoil_chunk(broker, bad)
    assert len(await wrong(broker)) == 1
    assert await drained(queue) == ["good"]
    assert await drained(queue) == []
    stored = await broker.store.get("jobs", [bad])
    assert stored[0] is not None
    assert stored[0].status == "dead"
    assert "digest" in (stored[0].error or "")
    assert stored[0].payload == b""


async def test_a_damaged_result_is_not_given_out(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs", max_message_size=2 * LARGE)
    id = await queue.enqueue("v")
    [delivery] = await queue.dequeue_many(1)
    await delivery.complete("r" * LARGE)
    await _spoil_chunk(broker, f"{id}.result")
    [stored] = await broker.store.get("jobs", [id])
    assert stored is not None
    assert stored.result is None
    assert "digest" in (stored.error or "")


async def test_a_damaged_dedup_key_lets_nothing_in_twice(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue("once", dedup_key="k")
    names = store_of(broker).register.names("jobs")
    await spoil(broker, names.task_stream, names.key_of("k"))
    with pytest.raises(Damaged, match=names.key_of("k")):
        await queue.enqueue("once", dedup_key="k")
    await queue.enqueue("twice", dedup_key="other")
    assert (await queue.stats()).pending == 2
    assert list(await wrong(broker, quarantine=True)) == [names.key_of("k")]
    await queue.enqueue("again", dedup_key="k")
    assert await drained(queue) == ["once", "twice", "again"]


async def test_damaged_options_are_those_of_one_queue(broker: holdfast.Broker) -> None:
    queue, other = await broker.queue("jobs"), await broker.queue("other")
    await queue.enqueue(1)
    prefix = store_of(broker).prefix
    await spoil(broker, f"{prefix}=queues", f"{prefix}._.queue.jobs")
    await other.enqueue(2)
    assert await drained(other) == [2]
    assert [info.name for info in await broker.queues()] == ["other"]
    store_of(broker).register.forget("jobs")
    with pytest.raises(Damaged, match=r"_\.queue\.jobs"):
        await queue.enqueue(3)
    assert list(await wrong(broker)) == [f"{prefix}._.queue.jobs"]


async def test_no_backup_leaves_out_a_queue_with_damaged_options(broker: holdfast.Broker, tmp_path: Path) -> None:
    for name in ("jobs", "others"):
        await (await broker.queue(name)).enqueue(1)
    prefix = store_of(broker).prefix
    await spoil(broker, f"{prefix}=queues", f"{prefix}._.queue.others")
    assert [info.name for info in await broker.queues()] == ["jobs"]
    with pytest.raises(Damaged, match="others"):
        await holdfast.backup(broker, tmp_path / "target")
    assert not (tmp_path / "target").exists()


async def test_damaged_counts_are_lost_and_nothing_else(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue_many(range(5))
    await drained(queue)
    names = store_of(broker).register.names("jobs")
    for subject in await store_of(broker).reader.subjects(names.done_stream, f"{names.tally}*"):
        await spoil(broker, names.done_stream, subject)
    stats = await queue.stats()
    assert (stats.completed, stats.archived) == (0, 5)
    await broker.maintain()
    assert len(await wrong(broker, quarantine=True)) >= 1
    await queue.enqueue(5)
    assert await drained(queue) == [5]


async def test_a_store_from_before_sums_is_read_and_gets_them_after_the_raise(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"t{os.urandom(6).hex()}"
    with monkeypatch.context() as before:
        before.setattr(formats, "NATS", 2)
        async with holdfast.connect(server.url, prefix=prefix) as broker:
            queue: holdfast.Queue[int] = await broker.queue("jobs")
            await queue.enqueue_many(range(3))
            assert (await admin.scrub(broker)).without_sums > 3
    async with holdfast.connect(server.url, prefix=prefix) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(3)
        names = store_of(broker).register.names("jobs")
        stored = await store_of(broker).reader.run(names.task_stream, f"{names.task}*.*", 1, 10)
        assert [one.has_sum for one in stored] == [False] * 4
        await broker.install(raise_format=True)
        assert store_of(broker).format.number == formats.NATS
        await queue.enqueue(4)
        stored = await store_of(broker).reader.run(names.task_stream, f"{names.task}*.*", 1, 10)
        assert [one.has_sum for one in stored] == [False] * 4 + [True]
        assert await drained(queue) == [0, 1, 2, 3, 4]
        assert await wrong(broker) == {}
        await broker.uninstall()


async def test_who_opened_before_the_store_was_made_writes_sums(server: Server) -> None:
    prefix = f"t{os.urandom(6).hex()}"
    async with (
        holdfast.connect(server.url, prefix=prefix) as early,
        holdfast.connect(server.url, prefix=prefix) as late,
    ):
        await late.queue("jobs")
        queue = await early.queue("jobs", create=False)
        await queue.enqueue(1)
        assert await drained(await late.queue("jobs")) == [1]
        assert (await admin.scrub(late)).without_sums == 0
        assert await wrong(late) == {}
        await late.uninstall()


async def _filled(server: Server) -> list[str]:
    async with holdfast.connect(server.url) as broker:
        queue = await broker.queue("jobs")
        ids = await queue.enqueue_many([f"v{n:03}" + "x" * 200 for n in range(200)])
        await broker.maintain()
    return ids


def _flip_in_block(server: Server, text: bytes) -> None:
    [block] = server.folder.rglob("holdfast=jobs=tasks/msgs/*.blk")
    data = bytearray(block.read_bytes())
    data[data.find(text) + 50] ^= 4
    block.write_bytes(data)


async def test_a_message_that_the_server_cannot_read_is_named_and_can_end(own: Server) -> None:
    """The server verifies what it reads, and passes over what does not match."""
    ids = await _filled(own)
    own.stop()
    _flip_in_block(own, b"v100")
    own.start()
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        assert [value[:4] for value in await drained(queue)] == [f"v{n:03}" for n in range(200) if n != 100]
        subject = f"holdfast.jobs.0.{ids[100]}"
        assert await wrong(broker) == {subject: "the server has it, and cannot read it"}
        assert list(await wrong(broker, quarantine=True)) == [subject]
        assert await wrong(broker) == {}
        [record] = await queue.dead.list()
        assert record.id == ids[100]
        assert "the server cannot read it" in (record.error or "")


async def test_a_stream_that_the_server_cut_off_is_named(own: Server) -> None:
    """A server that was killed verifies its blocks when it starts, and cuts a stream off at what does not match."""
    await _filled(own)
    own.kill()
    _flip_in_block(own, b"v100")
    own.start()
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        assert [value[:4] for value in await drained(queue)] == [f"v{n:03}" for n in range(100)]
        [line] = [line for line in await broker.check() if line.name == "ends"]
        assert line.state == "fail"
        assert "up to 100 messages are lost" in line.detail
        await broker.maintain()
        [problem] = (await wrong(broker)).values()
        assert problem in line.detail
        await wrong(broker, quarantine=True)
        assert await wrong(broker) == {}


def test_a_sum_is_a_field_that_others_need_not_know() -> None:
    made = sums.Sums()
    made.set(formats.NATS, formats.NATS)
    task = Task(id="x", data=b"data")
    stored = made.sealed("p.q.0.x", task.SerializeToString())
    assert Task.FromString(stored).data == b"data"
    record = Record.FromString(made.sealed("p._.done.q.x", Record(task=task, attempts=2).SerializeToString()))
    assert (record.task.id, record.attempts) == ("x", 2)
    assert made.opened("p.q.0.x", stored) == task.SerializeToString()


@pytest.mark.parametrize("place", range(60))
def test_every_flipped_bit_is_seen(place: int) -> None:
    made = sums.Sums()
    made.set(formats.NATS, formats.NATS)
    stored = made.sealed("p.q.0.x", bytes(range(54)))
    assert len(stored) == 60
    for bit in range(8):
        changed = bytearray(stored)
        changed[place] ^= 1 << bit
        with pytest.raises(Damaged, match="damaged"):
            made.opened("p.q.0.x", bytes(changed))
