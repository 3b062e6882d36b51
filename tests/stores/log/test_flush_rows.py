"""What a flush writes: the same rows for the same set, everything once, and retries at the right time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import ids
from holdfast.config import QueueOptions
from holdfast.stores.log import archive, flush_rows, names, queues, rows
from holdfast.stores.log.cache import BlockCache
from holdfast.stores.log.edit import Seen
from holdfast.stores.log.flush_rows import Leaving, Written
from holdfast.stores.log.head.state import Block, Frozen, Head, Settled
from holdfast.stores.log.memory import MemorySpace
from holdfast.stores.log.names import BlockName
from holdfast.stores.log.repeat_window import Home
from holdfast.stores.log.rows import Rows
from holdfast.stores.log.space import Found
from holdfast.stores.records import Stored

T0 = 1_700_000_000.0
BLOCK = ids.Ids().block(T0 - 60.0)
FLUSH = f"{ids.Ids().block(T0):032x}"
ADDRESS = queues.address("q")
ROOT = "q@01234567/"


async def none_of(wanted: Sequence[str]) -> list[bool]:
    return [False] * len(wanted)


WINDOW = MemorySpace().repeat_window(Home(ADDRESS, BlockCache(), ids.Ids(), 5.0, none_of))


def seen(**options: Any) -> Seen:
    """A log with a frozen set, as the flusher sees it."""
    config = queues.Config(incarnation="01234567", created_at=0.0, options=QueueOptions(**options))
    head = Head(now=T0, frozen=Frozen(FLUSH, T0, [], []))
    return Seen(config, ADDRESS.rules(config), ADDRESS.root(config), head, head.ticket(), WINDOW)


def row(place: int, ending: str, *, due: float = 0.0, own: int = 0, crashed: bool = False, **said: Any) -> Leaving:
    """One leaving message."""
    status = {"moved": "failed", "waiting": "retry"}.get(ending, ending)
    fields: dict[str, Any] = {
        "payload": b"%d" % place,
        "content_type": "text/plain",
        "headers": None,
        "priority": 0,
        "attempts": 1,
        "max_attempts": own or 3,
        "enqueued_at": T0 - 60.0,
        "error": None if ending == "completed" else "why",
        "finished_at": None if ending == "waiting" else T0 - 1.0,
        "worker": "w",
    }
    stored = Stored(ids.text(BLOCK + place), status, **fields | said)
    return Leaving(stored, ending, f"t{place}", None, own, crashed, due, stored.attempts)


def later(written: Written) -> list[tuple[float, BlockName, Rows]]:
    """The blocks of spilled retries."""
    assert all(key.startswith(ROOT + "later/") for key, _ in written.blocks)
    return [(names.due_of(key), names.parse_block(key), rows.decode(bytes(data))) for key, data in written.blocks]


MIXED = [
    *(row(place, "completed", result=b"r" * place) for place in range(20)),
    *(row(place, "dead", headers={"k": "v"}, priority=place) for place in range(20, 40)),
    *(row(place, "waiting", due=T0 + place) for place in range(40, 80)),
    *(row(place, "failed") for place in range(80, 83)),
]


def test_the_same_set_is_the_same_bytes():
    one, other = flush_rows.encode(ADDRESS, seen(), MIXED), flush_rows.encode(ADDRESS, seen(), list(MIXED))
    assert one.archive is not None
    assert other.archive is not None
    assert (one.archive[0], bytes(one.archive[1])) == (other.archive[0], bytes(other.archive[1]))
    assert [(key, bytes(data)) for key, data in one.blocks] == [(key, bytes(data)) for key, data in other.blocks]
    assert len({key for key, _ in one.blocks}) == len(one.blocks) > 2


def test_nothing_is_written_for_nothing():
    assert flush_rows.encode(ADDRESS, seen(), []) == Written(None, [], None, [])


@pytest.mark.parametrize(
    ("options", "endings", "archived"),
    [
        ({}, ["completed", "failed", "moved", "dead"], ["completed", "failed", "moved"]),
        ({"archive": False}, ["completed", "failed", "moved", "dead"], ["completed", "failed"]),
        ({}, ["dead", "waiting"], []),
    ],
)
def test_what_is_archived(options: Any, endings: list[str], archived: list[str]):
    found = [row(place, ending) for place, ending in enumerate(endings)]
    written = flush_rows.encode(ADDRESS, seen(**options), found)
    if not archived:
        assert written.archive is None
        return
    assert written.archive is not None
    key, data = written.archive
    kept = [each for each in found if each.ending in archived]
    assert archive.decode(bytes(data)) == ([each.stored for each in kept], [each.token for each in kept])
    name = names.parse_archive(key)
    assert key.startswith(ROOT + "archive/date=2023-11-14/")
    assert (name.first, name.last) == (names.plain(kept[0].stored.id), names.plain(kept[-1].stored.id))
    assert (name.rows, name.flush) == (len(archived), FLUSH)


@pytest.mark.parametrize("count", [1, 15, 16, 1000, 1001])
def test_dead_letters_keep_everything(count: int):
    found = [
        row(place, "dead", priority=place % 9, headers={"n": str(place)} if place % 2 else None, attempts=place % 3)
        for place in range(count)
    ]
    written = flush_rows.encode(ADDRESS, seen(), found)
    assert written.archive is None
    assert len(written.blocks) == (count + 999) // 1000
    carried: list[tuple[Any, ...]] = []
    for key, data in written.blocks:
        assert key.startswith(ROOT + "dead/inbox/255/")
        name, block = names.parse_block(key), rows.decode(bytes(data))
        assert (name.count, name.attempts, name.max_attempts, name.crashed) == (len(block), 0, 0, False)
        assert block.id is not None
        assert (name.first, name.last) == (block.id[0], block.id[-1])
        assert block.priority is not None
        assert block.attempts is not None
        headers = block.headers or [None] * len(block)
        carried += zip(block.id, block.payload, headers, block.priority, block.attempts, block.token or (), strict=True)
    assert carried == [
        (
            names.plain(each.stored.id),
            each.stored.payload,
            each.stored.headers,
            each.stored.priority,
            each.stored.attempts,
            each.token,
        )
        for each in found
    ]


RETRIES = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.001, 0.049, 0.051, 1.0, 1.5, 60.0, 61.3, 3600.0, 3660.0, 86400.0])
        | st.floats(0.0, 100_000.0),
        st.sampled_from([0, 0, 0, 7]),
        st.sampled_from([0, 0, 5]),
        st.sampled_from([1, 1, 2]),
        st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(retries=RETRIES)
def test_spilled_retries_are_never_early_and_hardly_late(retries: list[tuple[float, int, int, int, bool]]):
    found = [
        row(place, "waiting", due=T0 + delay, priority=priority, own=own, attempts=attempts, crashed=crashed)
        for place, (delay, priority, own, attempts, crashed) in enumerate(retries)
    ]
    wanted = {names.plain(each.stored.id): each for each in found}
    came: list[str] = []
    for due, name, block in later(flush_rows.encode(ADDRESS, seen(), found)):
        assert block.id == sorted(block.id or [])
        assert (name.first, name.last, name.count) == (block.id[0], block.id[-1], len(block))
        came += block.id
        for id in block.id:
            retry = wanted[id]
            asked = retry.due - T0
            assert -1e-6 <= due - retry.due <= max(0.05, 0.02 * asked) + 0.0011
            kind = (retry.stored.priority, retry.max_attempts, retry.stored.attempts, retry.crashed)
            assert (name.priority, name.max_attempts, name.attempts, name.crashed) == kind
    assert sorted(came) == sorted(wanted)


def test_neighbours_share_blocks():
    """A burst of failures does not become a block a message."""
    found = [row(place, "waiting", due=T0 + 3600.0 + place * 0.01) for place in range(3000)]
    assert len(flush_rows.encode(ADDRESS, seen(), found).blocks) == 3


def test_blocks_are_bounded():
    """By rows, and by bytes; what is too large for any block has one to itself."""
    small = [row(place, "waiting", due=T0 + 9.0) for place in range(2500)]
    assert [name.count for _, name, _ in later(flush_rows.encode(ADDRESS, seen(), small))] == [1000, 1000, 500]
    sizes = [3 << 20, 1 << 20, 1, 9 << 20, 1, 1]
    large = [row(place, "waiting", due=T0 + 9.0, payload=b"x" * size) for place, size in enumerate(sizes)]
    blocks = [block for _, _, block in later(flush_rows.encode(ADDRESS, seen(), large))]
    assert [[len(payload) for payload in block.payload] for block in blocks] == [
        [3 << 20, 1 << 20],
        [1],
        [9 << 20],
        [1, 1],
    ]


def test_ranges_of_blocks_follow_each_other():
    found = [row(place, "waiting", due=T0 + 9.0) for place in range(2500)]
    ranges = [(name.first, name.last) for _, name, _ in later(flush_rows.encode(ADDRESS, seen(), found))]
    assert all(one[1] < other[0] for one, other in pairwise(ranges))


def test_messages_for_another_queue_say_where_they_come_from():
    found = [
        row(0, "moved", priority=3, headers={"k": "v", "dead_from": "before"}),
        row(1, "moved", error=None),
        row(2, "dead"),
    ]
    written = flush_rows.encode(ADDRESS, seen(dead_letter="graves"), found)
    assert written.moved is not None
    assert written.moved.queue == "graves"
    moved = {names.parse_block(key).priority: rows.decode(bytes(data)) for key, data in written.moved.blocks}
    assert sorted(moved) == [0, 3]
    old = found[0].stored.id
    assert moved[3].headers == [{"k": "v", "dead_from": "q", "dead_id": old, "dead_reason": "why"}]
    assert moved[3].payload == [b"0"]
    assert moved[3].id == [f"{ids.derived(ids.number(old) or 0, 'moved'):032x}"]
    assert moved[0].headers == [{"dead_from": "q", "dead_id": found[1].stored.id, "dead_reason": ""}]
    assert moved[0].attempts is None


def test_results_outside_the_head_are_named_for_deletion():
    found = [row(0, "completed"), row(1, "completed")]
    found[1] = Leaving(found[1].stored, "completed", "t", "results/t.1.1")
    assert flush_rows.encode(ADDRESS, seen(), found).results == ["results/t.1.1"]


class Results:
    """The view of a flush, as far as results of their own are read through it."""

    now = T0

    def get(self, key: str) -> Found | None:
        return Found(b"large " + key.encode(), 1)


COUNT = 100
PLAIN = Rows([b"%d" % place for place in range(COUNT)], "text/plain")
MANY = Rows(
    [bytes(place) for place in range(COUNT)],
    [f"text/{place % 3}" for place in range(COUNT)],
    [[None, {}, {"a": "b", "c": str(place)}][place % 3] for place in range(COUNT)],
)
CARRIED = flush_rows.carried(
    [row(place * 7, "waiting", priority=place % 9, attempts=place % 5, claimed_at=T0 - place) for place in range(COUNT)]
)


def block_of(held: Rows, no: int = 1, **said: Any) -> Block:
    fields = {"priority": 3, "max_attempts": 0, "attempts": 0, "crashed": False} | said
    ends = (held.id[0], held.id[-1]) if held.id else ()
    return Block.of(no, BlockName(f"{BLOCK + (no << 24):032x}", len(held), *fields.values(), *ends).inbox_key())


def group(mask: int, no: int = 1, status: Any = "completed", **said: Any) -> Settled:
    fields = {"at": T0 - 0.1, "attempts": 2, "error": None, "worker": "w", "token": f"t{no}", "results": None} | said
    return Settled(no, mask, status, **fields)


def written_both_ways(blocks: dict[int, tuple[Block, Rows]], groups: list[Settled]) -> tuple[Written, Written]:
    """Message by message, and as columns."""
    view: Any = Results()
    found: list[Leaving] = []
    for each in groups:
        found += flush_rows.rows_of(each, *blocks[each.block], seen(), view)
    found.sort(key=lambda row: row.stored.id)
    wholes = []
    for each in groups:
        block, held = blocks[each.block]
        wholes.append(flush_rows.whole(each, block, bytes(rows.encode(held)), seen(), view, "q"))
    return flush_rows.encode(ADDRESS, seen(), found), flush_rows.encode(ADDRESS, seen(), [], wholes)


ALL = (1 << COUNT) - 1
SOME = sum(1 << place for place in range(0, COUNT, 3))


@pytest.mark.parametrize(
    ("held", "groups"),
    [
        (PLAIN, [group(ALL)]),
        (PLAIN, [group(ALL, claimed=T0 - 5.000001)]),
        (PLAIN, [group(ALL, status="failed", error="why", worker=None)]),
        (PLAIN, [group(ALL & ~SOME, token="u"), group(SOME, at=T0 + 1.5)]),
        (MANY, [group(SOME, results=[[None, b"=r"][k % 2] for k in range(SOME.bit_count())])]),
        (CARRIED, [group(ALL, status="failed", error="why")]),
        (CARRIED, [group(SOME)]),
    ],
)
def test_columns_are_the_rows_that_messages_one_by_one_are(held: Rows, groups: list[Settled]):
    one_by_one, as_columns = written_both_ways({1: (block_of(held), held)}, groups)
    assert one_by_one.archive is not None
    assert as_columns.archive is not None
    assert as_columns.archive[0] == one_by_one.archive[0]
    tables = [pq.read_table(pa.BufferReader(each.archive[1])) for each in (one_by_one, as_columns) if each.archive]
    assert tables[0].schema.equals(tables[1].schema, check_metadata=True)
    assert tables[1].to_pylist() == tables[0].to_pylist()
    assert archive.decode(bytes(as_columns.archive[1])) == archive.decode(bytes(one_by_one.archive[1]))
    assert sorted(as_columns.results) == sorted(one_by_one.results)


def test_blocks_in_any_order_and_single_messages_leave_in_the_order_of_their_ids():
    blocks = {no: (block_of(PLAIN, no, max_attempts=no), PLAIN) for no in (1, 2, 3)}
    groups = [group(ALL, 3), group(SOME, 1), group(ALL, 2)]
    one_by_one, as_columns = written_both_ways(blocks, groups)
    assert as_columns.archive is not None
    assert one_by_one.archive is not None
    records, tokens = archive.decode(bytes(as_columns.archive[1]))
    assert (records, tokens) == archive.decode(bytes(one_by_one.archive[1]))
    assert [each.id for each in records] == sorted(each.id for each in records)
    assert {each.max_attempts for each in records} == {1, 2, 3}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (group(ALL), True),
        (group(ALL, status="failed"), True),
        (group(ALL, status="dead"), False),
        (group(ALL, status="moved"), False),
        (group(ALL, status="replayed"), False),
        (group(0b111), False),
        (group(ALL, results=[b"@results/x"] * ALL.bit_count()), False),
    ],
)
def test_what_leaves_as_columns(one: Settled, expected: bool):
    """Only what goes nowhere but to the archive, and is worth it."""
    assert flush_rows.may_leave_whole(one, Head()) is expected
