"""Several heads of one queue: tokens, addresses, and the way of a consumer over the shards."""

from __future__ import annotations

from holdfast.config import QueueOptions
from holdfast.stores.log import queues
from holdfast.stores.log.bucket import sharding
from holdfast.stores.log.bucket.sharding import Busy, Round
from holdfast.stores.log.queues import Config


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


def test_a_consumer_stays_at_home_while_nobody_waits():
    turn = Round(8)
    turn.home = 5
    assert turn.order([Busy(1, 0.1), Busy(5, 0.1), Busy(6, 0.1)])[0] == 5


def test_neglected_shards_come_first_the_longest_waiting_before_the_others():
    turn = Round(8)
    turn.home = 5
    order = turn.order([Busy(1, 14.0), Busy(2, 60.0), Busy(5, 0.1), Busy(6, 0.1)])
    assert order == [2, 1, 5, 6]


def test_quiet_shards_are_tried_before_those_that_somebody_looks_after():
    turn = Round(8)
    turn.home = 5
    assert turn.order([Busy(1, 0.1), Busy(2, 4.0), Busy(3, 0.3)])[0] == 2


def test_a_home_is_left_when_others_are_there_and_another_shard_is_nobodys():
    turn = Round(8)
    turn.home = 5
    turn.seen([Busy(5, 0.1), Busy(6, 4.0)], shared=False)
    assert turn.pick() == 5
    turn.seen([Busy(5, 0.1), Busy(6, 0.2)], shared=True)
    assert turn.pick() == 5
    turn.seen([Busy(5, 0.1), Busy(6, 4.0)], shared=True)
    assert turn.pick() == 6


def test_neglected_shards_are_visited_once():
    turn = Round(8)
    turn.home = 5
    turn.seen([Busy(1, 14.0), Busy(2, 60.0), Busy(5, 0.1)], shared=False)
    assert [turn.pick() for _ in range(4)] == [2, 1, 5, 5]


def test_an_empty_home_is_left():
    turn = Round(8)
    turn.home = 5
    assert turn.order([Busy(3, 0.2)]) == [3]
    assert turn.order([]) == []
