"""Keys say what they were made from, and lie in the order in which messages are claimed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ids
from holdfast.stores.log import names
from holdfast.stores.log.names import BlockName

HEX = st.integers(0, 2**128 - 1).map(lambda number: f"{number:032x}")
INSTANTS = st.floats(0, 4e9, allow_nan=False)
ROOTS = st.sampled_from(["", "q@0123abcd/", "q@0123abcd/dead/"])
PLAIN = st.builds(
    BlockName,
    block=st.integers(0, 2**108 - 1).map(lambda number: f"{number << 20:032x}"),
    count=st.integers(1, 1 << 20),
    priority=st.integers(0, 255),
    max_attempts=st.integers(0, 2**31 - 1),
    attempts=st.integers(0, 2**31 - 1),
    crashed=st.booleans(),
)
WITH_IDS = st.builds(
    lambda name, first, last: BlockName(
        name.block, name.count, name.priority, name.max_attempts, name.attempts, name.crashed, *sorted((first, last))
    ),
    PLAIN,
    HEX,
    HEX,
)


@given(name=PLAIN | WITH_IDS, due=INSTANTS, root=ROOTS)
def test_block_keys_say_everything(name: BlockName, due: float, root: str):
    inbox, later = root + name.inbox_key(), root + name.later_key(due)
    assert names.parse_block(inbox) == names.parse_block(later) == name
    assert names.due_of(inbox) == 0.0
    assert names.due_of(later) == names.milliseconds(due) / 1000


@given(due=INSTANTS)
def test_due_is_never_early_and_a_millisecond_late_at_most(due: float):
    shown = names.due_of(BlockName("0" * 32, 1, 0, 0, 0).later_key(due))
    assert due - 1e-6 <= shown <= due + 0.001 + 1e-6


@pytest.mark.parametrize(
    ("instant", "expected"), [(0.0, 0), (1.0, 1000), (1.0001, 1001), (1700000000.123, 1700000000123)]
)
def test_milliseconds(instant: float, expected: int):
    assert names.milliseconds(instant) == expected


@given(one=PLAIN, other=PLAIN, dues=st.tuples(INSTANTS, INSTANTS))
def test_keys_lie_in_order(one: BlockName, other: BlockName, dues: tuple[float, float]):
    """In the inbox by priority, then block; under `later/` by time."""
    if (one.priority, one.block) != (other.priority, other.block):
        before = (-one.priority, one.block) < (-other.priority, other.block)
        assert (one.inbox_key() < other.inbox_key()) == before
        assert (one.order < other.order) == before
    first, second = map(names.milliseconds, dues)
    if first != second:
        assert (one.later_key(dues[0]) < other.later_key(dues[1])) == (first < second)


@given(name=PLAIN)
def test_the_range_of_a_block_is_its_ids(name: BlockName):
    number = int(name.block, 16)
    assert (name.lowest, name.highest) == (name.block, f"{number + name.count - 1:032x}")
    assert ids.block_of(int(name.highest, 16)) == number


@given(name=WITH_IDS)
def test_the_range_of_a_block_with_ids_is_theirs(name: BlockName):
    assert (name.lowest, name.highest) == (name.first, name.last)


@given(name=PLAIN, place=st.integers(0, 1000), later=st.integers(1, 1000), other=PLAIN)
def test_what_comes_back_goes_before_the_rest_of_its_block(name: BlockName, place: int, later: int, other: BlockName):
    """Blocks with ids lie by the first of them, before the block that it came from and after those before that."""
    number = int(name.block, 16)
    one = with_ids(name, number + place)
    assert one.order < with_ids(name, number + place + later).order < name.order
    if (other.priority, other.block) != (name.priority, name.block):
        assert (other.order < one.order) == (other.order < name.order)


def with_ids(name: BlockName, first: int) -> BlockName:
    """A block of messages of the same priority that carries their ids."""
    return BlockName(f"{first + (1 << 90):032x}", 9, name.priority, 0, 1, False, f"{first:032x}", f"{first + 9:032x}")


@given(first=HEX, last=HEX, rows=st.integers(1, 10**9), now=st.floats(0, 4e9), root=ROOTS)
def test_archive_keys_say_everything(first: str, last: str, rows: int, now: float, root: str):
    flush = f"{ids.Ids().block(now):032x}"
    key = root + names.archive_key(first, last, rows, flush)
    name = names.parse_archive(key)
    assert (name.key, name.first, name.last, name.rows, name.flush) == (key, first, last, rows, flush)
    assert now - 0.001 <= name.frozen_at <= now


def test_archive_keys_lie_by_day():
    midnight = 1_700_006_400.0
    days = [
        names.archive_key("a", "b", 1, f"{ids.Ids().block(midnight + shift):032x}").split("/")[1]
        for shift in (-0.001, 0.0)
    ]
    assert days == ["date=2023-11-14", "date=2023-11-15"]


@given(number=st.integers(0, 2**128 - 1))
def test_plain_and_dashed_are_inverse(number: int):
    text = ids.text(number)
    assert names.plain(text) == f"{number:032x}"
    assert names.dashed(names.plain(text)) == text


def test_configs_lie_together():
    assert names.config_key("jobs") == "queues/jobs"
    assert names.config_key("jobs").startswith(names.CONFIGS)
