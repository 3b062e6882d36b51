"""Single calls that arrive together: one block and one commit, and each of them a call of its own to who made it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import ConfigError, InvalidPriority, MessageTooLarge, QueueFull, QueueNotFound
from holdfast.stores.log import append


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[holdfast.Broker]:
    async with holdfast.connect(f"file://{tmp_path / 'store'}") as broker:
        yield broker


@pytest.fixture
async def queue(broker: holdfast.Broker) -> holdfast.Queue[bytes]:
    return await broker.queue("q")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[list[list[bytes]]]:
    """The payloads of every commit, by call."""
    seen: list[list[list[bytes]]] = []
    step = append.Appender.step

    def watched(self, tx, entries):
        seen.append([[each.payload for each in call.messages] for call in entries])
        return step(self, tx, entries)

    monkeypatch.setattr(append.Appender, "step", watched)
    return seen


def text(number: int) -> bytes:
    return f"{number:04}".encode()


async def drained(queue: holdfast.Queue[bytes]) -> dict[str, bytes]:
    found = await queue.dequeue_many(5000)
    await queue.complete_many(found)
    return {delivery.id: delivery.value for delivery in found}


async def test_callers_together_share_a_write_and_have_an_id_each(queue: holdfast.Queue[bytes], written: list):
    ids = await asyncio.gather(*(queue.enqueue(text(number)) for number in range(1000)))
    assert len(set(ids)) == 1000
    assert len(written) <= 10  # the first go while others are still on their way
    assert max(len(call) for calls in written for call in calls) >= 500
    assert await drained(queue) == {id: text(number) for number, id in enumerate(ids)}


async def test_callers_that_go_on_together_stay_together(queue: holdfast.Queue[bytes], written: list):
    """Who was answered together comes again together; some may begin alone, or come while a commit begins."""

    async def caller(first: int) -> list[str]:
        return [await queue.enqueue(text(first + number)) for number in range(20)]

    ids = [id for some in await asyncio.gather(*(caller(20 * each) for each in range(50))) for id in some]
    assert len(set(ids)) == 1000
    assert len(written) <= 100  # of a thousand
    assert await drained(queue) == {id: text(number) for number, id in enumerate(ids)}


async def test_many_small_ones_together_become_a_file(queue: holdfast.Queue[bytes], tmp_path: Path):
    """A block is a file from a size on, whoever filled it: as a row of the database it would take twice as long."""
    sent = [number.to_bytes(4) * 256 for number in range(1000)]
    for _ in range(3):  # the first that fills a block says that there will be files
        ids = await asyncio.gather(*(queue.enqueue(each) for each in sent))
    assert len(set(ids)) == 1000
    large = [path for path in (tmp_path / "store").rglob("inbox/*/*") if path.stat().st_size > 500_000]
    assert 1 <= len(large) <= 3
    got: dict[str, bytes] = {}
    while some := await drained(queue):
        got |= some
    assert sorted(got.values()) == sorted(sent * 3)


async def test_other_calls_in_between_keep_the_order(queue: holdfast.Queue[bytes], written: list):
    """Calls begun one after the other in one turn lie in the queue as they were begun."""
    calls = [
        queue.enqueue(b"0"), queue.enqueue(b"1"), queue.enqueue(b"2", headers={"a": "b"}),
        queue.enqueue(b"3", headers={"a": "b"}), queue.enqueue_many([b"4", b"5"]), queue.enqueue(b"6"),
        queue.enqueue(b"7", dedup_key="k"), queue.enqueue(b"8"), queue.enqueue(b"9", max_attempts=7),
    ]  # fmt: skip
    await asyncio.gather(*calls)
    found = await queue.dequeue_many(20)
    assert [delivery.value for delivery in found] == [text(number)[-1:] for number in range(10)]
    assert [delivery.headers for delivery in found[1:4]] == [{}, {"a": "b"}, {"a": "b"}]
    assert [delivery.max_attempts for delivery in found[8:]] == [found[0].max_attempts, 7]


async def test_priorities_and_delays_are_of_the_call(queue: holdfast.Queue[bytes], written: list):
    ids = await asyncio.gather(
        *(queue.enqueue(b"low") for _ in range(3)),
        *(queue.enqueue(b"high", priority=9) for _ in range(3)),
        *(queue.enqueue(b"later", delay=3600) for _ in range(3)),
    )
    found = await queue.dequeue_many(20)
    assert [(delivery.value, delivery.priority) for delivery in found] == [(b"high", 9)] * 3 + [(b"low", 0)] * 3
    assert [await queue.status(id) for id in ids[6:]] == ["delayed"] * 3


async def test_a_caller_who_gives_up_harms_nobody(queue: holdfast.Queue[bytes]):
    callers = [asyncio.ensure_future(queue.enqueue(text(number))) for number in range(20)]
    await asyncio.sleep(0)
    for caller in callers[5:10]:
        caller.cancel()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in answers] == [5 <= n < 10 for n in range(20)]
    found = await drained(queue)
    for number, id in enumerate(answers):
        if isinstance(id, str):
            assert found[id] == text(number)


async def test_a_bad_one_is_refused_before_it_joins(queue: holdfast.Queue[bytes], written: list):
    large = b"x" * (queue.options.max_message_size + 1)
    answers = await asyncio.gather(
        queue.enqueue(b"a"), queue.enqueue(large), queue.enqueue(b"b"), return_exceptions=True
    )
    assert isinstance(answers[1], MessageTooLarge)
    assert await drained(queue) == {answers[0]: b"a", answers[2]: b"b"}


async def test_what_fails_fails_for_each(broker: holdfast.Broker, queue: holdfast.Queue[bytes]):
    await broker.delete_queue("q", force=True)
    answers = await asyncio.gather(*(queue.enqueue(b"x") for _ in range(50)), return_exceptions=True)
    assert {type(each) for each in answers} == {QueueNotFound}


async def test_a_queue_made_anew_is_written_to(broker: holdfast.Broker, queue: holdfast.Queue[bytes]):
    await queue.enqueue(b"old")
    await broker.delete_queue("q", force=True)
    await broker.queue("q")
    with contextlib.suppress(QueueNotFound):  # what is remembered of the old one may be asked first
        await queue.enqueue(b"new")
    id = await queue.enqueue(b"newer")
    assert (await drained(queue))[id] == b"newer"


async def test_a_closed_broker_says_so(tmp_path: Path):
    async with holdfast.connect(f"file://{tmp_path / 'other'}") as broker:
        queue: holdfast.Queue[bytes] = await broker.queue("q")
        await queue.enqueue(b"x")
    with pytest.raises(ConfigError, match="closed"):
        await queue.enqueue(b"x")


async def test_who_listens_hears_of_each(queue: holdfast.Queue[bytes]):
    heard: list[str] = []
    queue.events.on("message.enqueued", lambda event: heard.append(event.id))
    ids = await asyncio.gather(*(queue.enqueue(b"x") for _ in range(20)))
    assert sorted(heard) == sorted(ids)


async def test_who_begins_to_listen_hears_of_the_next(queue: holdfast.Queue[bytes]):
    heard: list[str] = []
    await queue.enqueue(b"x")
    off = queue.events.on("message.enqueued", lambda event: heard.append(event.id))
    second = await queue.enqueue(b"x")
    off()
    await queue.enqueue(b"x")
    assert heard == [second]


async def test_options_that_change_hold_for_the_next(broker: holdfast.Broker, queue: holdfast.Queue[bytes]):
    await queue.enqueue(b"long enough")
    await broker.queue("q", max_message_size=5)
    with pytest.raises(MessageTooLarge):
        await queue.enqueue(b"long enough")
    await broker.queue("q", max_messages=1)
    with pytest.raises(QueueFull):
        await queue.enqueue(b"x")


async def test_a_full_queue_takes_what_fits(broker: holdfast.Broker):
    queue: holdfast.Queue[bytes] = await broker.queue("small", max_messages=7)
    answers = await asyncio.gather(*(queue.enqueue(b"x") for _ in range(10)), return_exceptions=True)
    assert [type(each) for each in answers] == [str] * 7 + [QueueFull] * 3


@pytest.mark.parametrize("said", [{"priority": False}, {"delay": False}, {"delay": None}, {"priority": 0.0}])
async def test_what_only_looks_like_a_default_is_checked(queue: holdfast.Queue[bytes], said: dict):
    with pytest.raises((ConfigError, InvalidPriority)):
        await queue.enqueue(b"x", **said)
    assert await drained(queue) == {}
