"""What a process remembers of its settlements: how long, what it costs, and what counts as a repeat."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import LeaseLost, MessageNotFound
from holdfast.repeats import REMEMBERED_SETTLEMENTS, Marks, Repeats
from holdfast.stores.records import Settlement


def test_at_least_so_many_are_known_and_not_many_more():
    marks = Marks(least=100)
    for mark in range(1000):
        marks.add([mark])
        assert all(known in marks for known in range(max(0, mark - 99), mark + 1))
        assert mark - 160 not in marks
    assert 1000 not in marks


def test_marks_are_found_however_they_came():
    marks = Marks(least=100)
    marks.add([])
    assert 7 not in marks
    marks.add([7, -7, sys.maxsize, -sys.maxsize - 1])
    assert all(mark in marks for mark in (7, -7, sys.maxsize, -sys.maxsize - 1))
    marks.add([8])
    assert 8 in marks


def test_a_hundred_thousand_cost_a_few_megabytes():
    tracemalloc.start()
    try:
        marks = Marks()
        most = 0
        for start in range(0, 3 * REMEMBERED_SETTLEMENTS, 1000):
            marks.add([hash((start, number)) for number in range(1000)])
            assert start not in marks
            most = max(most, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert most < 5_000_000
    assert all(hash((start, 999)) in marks for start in range(200_000, 300_000, 1000)), "what the contract says"


def test_a_repeat_is_the_same_decision_over_the_same_message_by_the_same_token():
    repeats = Repeats("store", "jobs", Marks())
    done = Settlement("id", "token", "complete", keep=False)
    repeats.note([done])
    others = [
        done,
        Settlement("id", "token", "complete", result=b"1"),  # whatever it says besides
        Settlement("id", "token", "dead"),
        Settlement("id", "other", "complete"),
        Settlement("other", "token", "complete"),
        Settlement("token", "id", "complete"),
    ]
    assert repeats.among(others, ["lost"] * 6) == {0, 1}


def test_in_one_call_the_second_is_a_repeat_only_of_a_success():
    repeats = Repeats("store", "jobs", Marks())
    done = Settlement("id", "token", "complete")
    assert repeats.among([done, done], ["ok", "ok"]) == {1}
    assert repeats.among([done, done], ["lost", "lost"]) == set()


async def test_brokers_of_one_process_on_one_store_know_each_others_settlements(tmp_path: Path):
    async with holdfast.connect(tmp_path / "store") as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(range(50))
        deliveries = [each for _ in range(50) if (each := await queue.dequeue()) is not None]
        assert await queue.complete_many(deliveries, keep=False) == [True] * 50
    async with holdfast.connect(tmp_path / "store") as broker:
        again = await broker.queue("jobs")
        assert await again.complete_many([each.receipt for each in deliveries], keep=False) == [True] * 50


async def test_a_settlement_in_another_store_is_no_repeat():
    async with holdfast.connect("memory://") as one, holdfast.connect("memory://") as other:
        queue, stranger = await one.queue("jobs"), await other.queue("jobs")
        await queue.enqueue(1)
        delivery = await queue.dequeue()
        assert delivery is not None
        await delivery.complete(keep=False)
        with pytest.raises((LeaseLost, MessageNotFound)):
            await stranger.complete(delivery.receipt, keep=False)


async def test_what_a_worker_settled_is_known_too():
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs", archive=False)
        heard: list[str] = []
        broker.on("message.completed", lambda event: heard.append(event["id"]))
        receipts: list[str] = []
        await queue.enqueue_many(range(50))
        async with queue.worker(lambda n: n, concurrency=1, on_complete=lambda each, _: receipts.append(each.receipt)):
            while len(receipts) < 50:
                await queue.store.watch("jobs", 0.05)
        assert await queue.complete_many(receipts) == [True] * 50
        assert len(heard) == 50
