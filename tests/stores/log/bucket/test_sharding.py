"""Several heads of one queue: tokens, addresses, and the way of a consumer over the shards."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.config import QueueOptions
from holdfast.stores.log import queues
from holdfast.stores.log.bucket import sharding
from holdfast.stores.log.bucket.sharding import Busy, Round
from holdfast.stores.log.queues import Config
from holdfast.testing.clock import ManualClock
from tests.stores.log.bucket.far_bucket import FarBucket, process


def config(count: int) -> Config:
    return Config(incarnation="1234abcd", created_at=0.0, options=QueueOptions(shards=count))


def test_a_shard_is_part_of_the_key():
    four = config(4)
    roots = [queues.address(queues.shard("jobs", number)).root(four) for number in range(4)]
    assert roots == [f"jobs@1234abcd/s{number:04d}/" for number in range(4)]
    assert queues.address("jobs/dead").root(four) == "jobs@1234abcd/dead/"
    assert queues.address("jobs#3").archive_root(four) == "jobs@1234abcd/"
    assert queues.address("jobs").root(config(1)) == "jobs@1234abcd/"


def test_who_believes_in_more_shards_than_there_are_writes_where_somebody_looks():
    assert queues.address("jobs#7").root(config(4)) == queues.address("jobs#3").root(config(4))
    assert queues.address("jobs#7").root(config(1)) == "jobs@1234abcd/"


def test_a_token_says_its_shard():
    assert sharding.shard_of(sharding.token("ab12cd341f", 0) + ".1.0.abc", 16) == 0
    assert sharding.shard_of(sharding.token("ab12cd341f", 13) + ".1.0.abc", 16) == 13
    for odd in ("", "x", "a-b.1.2.3", "a-.1", "-", "no-such-token", "-1-2-3.4"):
        assert 0 <= sharding.shard_of(odd, 16) < 16
    held = [("i", "a.1"), ("j", "b-2.1"), ("k", "c.1")]
    assert sharding.grouped(held, lambda each: each[1], 4) == {0: [0, 2], 2: [1]}


def round_at(home: int) -> Round:
    made = Round(8)
    made.home = home
    return made


def test_ones_own_comes_first_then_shards_that_nobody_looks_after():
    for _ in range(10):
        order = round_at(5).order([Busy(1, 0.1), Busy(2, 4.0), Busy(5, 0.1), Busy(3, 60.0), Busy(6, 0.3)])
        assert order[0] == 5
        assert set(order[1:3]) == {2, 3}
        assert set(order[3:]) == {1, 6}
    assert round_at(5).order([Busy(3, 0.2)]) == [3], "an empty home is left"
    assert round_at(5).order([]) == []


@pytest.mark.parametrize(
    ("busy", "shared", "picked"),
    [
        ([Busy(5, 0.1), Busy(6, 0.2)], False, [5, 5]),
        ([Busy(5, 0.1), Busy(6, 0.2)], True, [5, 5]),
        ([Busy(5, 0.1), Busy(1, 4.0), Busy(6, 60.0)], False, [6, 5, 5]),
        ([Busy(5, 0.1), Busy(6, 4.0)], True, [6, 6, 6]),
    ],
    ids=["others look after the rest", "nowhere to go", "the quietest is visited once", "a shared home is left"],
)
def test_where_a_consumer_claims_after_a_look(busy: list[Busy], shared: bool, picked: list[int]):
    round = round_at(5)
    round.seen(busy, shared=shared)
    assert [round.pick() for _ in picked] == picked


def test_all_shards_are_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    round = round_at(5)
    assert round.is_due(), "others may have begun with the same one"
    round.looking()
    assert not round.is_due()
    now += 1.1 * sharding.LOOK_ROUND_S
    assert round.is_due()
    round.looking()
    assert not round.is_due()


async def test_changed_options_show_on_every_shard_also_on_those_that_were_never_looked_at() -> None:
    bucket = FarBucket(ManualClock())
    maker, _ = await process(bucket)
    await maker.create_queue("q", QueueOptions(shards=3))
    store, _ = await process(bucket)
    await store.pause("q", True)
    hints = {key.partition("/")[2] for key in bucket.named("hint")}
    assert hints == {f"s{number:04d}/hint" for number in range(3)}
    await asyncio.gather(maker.close(), store.close())
