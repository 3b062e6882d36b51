"""Whose turn it is among several queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from holdfast.errors import ConfigError
from holdfast.worker.choice import Turns, checked


def served(turns: Turns, rounds: int, *, each: int = 1, busy: Iterable[str]) -> list[str]:
    """Who is served when these always have more."""
    order = []
    for _ in range(rounds):
        turns.add(busy)
        (queue,) = turns.pick(1)
        turns.took(queue, each, is_empty=False)
        order.append(queue)
    return order


def test_order_of_a_list_is_strict() -> None:
    turns = Turns(["high", "low"])
    assert served(turns, 5, busy=["low", "high"]) == ["high"] * 5
    turns.took("high", 0, is_empty=True)
    assert turns.pick(10) == ["low"]


def test_queues_of_a_pattern_take_turns() -> None:
    turns = Turns(["tenant-*"])
    assert Counter(served(turns, 30, busy=["tenant-1", "tenant-2", "tenant-3"])) == {
        f"tenant-{n}": 10 for n in (1, 2, 3)
    }


def test_several_are_picked_of_one_entry_only() -> None:
    turns = Turns(["a", "tenant-*"])
    turns.add(["tenant-1", "a", "tenant-2"])
    assert turns.pick(10) == ["a"]
    turns.took("a", 1, is_empty=True)
    assert turns.pick(10) == ["tenant-1", "tenant-2"]


@pytest.mark.parametrize("each", [1, 7, 100])
def test_weights_give_shares_of_messages(each: int) -> None:
    counts = Counter(served(Turns({"high": 4, "low": 1}), 1000, each=each, busy=["high", "low"]))
    assert counts == {"high": 800, "low": 200}


def test_queues_of_a_pattern_share_its_weight() -> None:
    turns = Turns({"high": 1, "tenant-*": 1})
    counts = Counter(served(turns, 100, busy=["high", "tenant-1", "tenant-2"]))
    assert counts == {"high": 50, "tenant-1": 25, "tenant-2": 25}


def test_who_was_empty_has_no_claim_on_what_it_did_not_use() -> None:
    turns = Turns({"high": 1, "low": 1})
    served(turns, 1000, busy=["low"])
    assert abs(Counter(served(turns, 100, busy=["high", "low"]))["high"] - 50) <= 1


def test_what_fits_nothing_is_nobodys() -> None:
    turns = Turns(["a", "b-*"])
    turns.add(["c", "ab"])
    assert turns.is_idle
    assert turns.pick(10) == []


@pytest.mark.parametrize(
    "wanted", ["jobs", b"jobs", [], {}, [1], ["no good"], {"a": 0}, {"a": float("inf")}, {"a": True}]
)
def test_bad_choices_are_refused(wanted: object) -> None:
    with pytest.raises(ConfigError):
        checked(wanted)
