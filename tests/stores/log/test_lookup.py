"""Finding messages: pages in id order over whatever overlaps, every state by id, and counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ids
from holdfast.errors import MessageNotFound
from holdfast.stores.log import lookup, names
from holdfast.stores.log.head.state import Block, Freeze
from holdfast.stores.records import Envelope, Settlement, Stats, Stored
from tests.stores.log.log_bench import Bed

LIVE_VIEWS = ("ready", "delayed", "processing", "retry")


def stored(number: int) -> Stored:
    return Stored(ids.text(number), "pending", b"", "", None, 0, 0, 3, 0.0)


def source(numbers: set[int]) -> lookup.Source:
    texts = sorted(names.plain(ids.text(number)) for number in numbers)
    return texts[0], texts[-1], lambda: [stored(number) for number in sorted(numbers)]


# Sets of ids that overlap in every way; an id lies in one of them.
SOURCES = st.lists(st.sets(st.integers(0, 200), min_size=1, max_size=12), max_size=8).map(
    lambda sets: [rest for n, each in enumerate(sets) if (rest := each.difference(*sets[:n]))]
)


@given(sets=SOURCES, after=st.none() | st.integers(0, 200), limit=st.integers(1, 30))
def test_a_page_is_the_first_of_all_in_order(sets: list[set[int]], after: int | None, limit: int):
    found = lookup.page(
        lookup.in_order([source(each) for each in sets]), None if after is None else ids.text(after), limit
    )
    expected = sorted(number for each in sets for number in each if after is None or number > after)[:limit]
    assert [each.id for each in found] == [ids.text(number) for number in expected]


@given(sets=SOURCES, limit=st.integers(1, 10))
def test_pages_follow_each_other(sets: list[set[int]], limit: int):
    sources = lookup.in_order([source(each) for each in sets])
    came: list[str] = []
    while page := lookup.page(sources, came[-1] if came else None, limit):
        came += [each.id for each in page]
    assert came == [ids.text(number) for number in sorted(number for each in sets for number in each)]


def test_a_page_loads_no_more_than_it_needs():
    loaded: list[str] = []

    def counted(lowest: int) -> lookup.Source:
        first, last, load = source(set(range(lowest, lowest + 10)))

        def loading() -> list[Stored]:
            loaded.append(first)
            return load()

        return first, last, loading

    sources = [counted(lowest) for lowest in range(0, 200, 10)]
    assert len(lookup.page(sources, ids.text(34), 10)) == 10
    assert len(loaded) == 2


def test_a_page_of_none():
    assert lookup.page([source({1}), source({2})], None, 0) == []


async def populated(bed: Bed) -> dict[str, list[str]]:
    """Messages in every state, by status; outcomes are partly written and partly still in the head."""
    found: dict[str, list[str]] = {"pending": [], "completed": [], "failed": [], "dead": []}
    for written in (True, False):
        found["completed"] += await bed.end(20, result=b"r", worker="w")
        found["dead"] += await bed.end(20, "dead", error="why")
        found["failed"] += await bed.append(2, delay=99.0)
        for id in found["failed"][-2:]:
            assert await bed.store.cancel("q", id)
        if written:
            await bed.flush()
    found["retry"] = await bed.end(2, "retry", delay=60.0, error="not yet")
    found["delayed"] = [*await bed.append(3, delay=60.0), *await bed.append(1, delay=70.0, priority=9)]
    released = await bed.end(1, "release", delay=60.0)
    found["delayed"] += released
    expired = await bed.append(2)
    assert len(await bed.claim(2, 1.0)) == 2
    bed.clock.advance(2.0)
    held = await bed.claim(2, 500.0)
    assert await bed.settle(held[1:], "retry") == ["ok"]
    found["processing"], found["pending"] = expired[:1], expired[1:]
    found["pending"] += [*await bed.append(17), *await bed.append(2, priority=3, headers={"k": "v"})]
    return {status: sorted(ids) for status, ids in found.items()}


async def test_every_message_is_found_by_its_id():
    bed = await Bed.made()
    expected = await populated(bed)
    for status, members in expected.items():
        records = await bed.store.get("q", members)
        assert [each and (each.id, each.status) for each in records] == [(id, status) for id in members]
    completed, dead, failed, retry = [
        [each for each in await bed.store.get("q", expected[name]) if each]
        for name in ("completed", "dead", "failed", "retry")
    ]
    assert {(each.result, each.worker, each.error, each.attempts) for each in completed} == {(b"r", "w", None, 1)}
    assert {(each.error, each.attempts, each.finished_at is None) for each in dead} == {("why", 1, False)}
    assert {(each.error, each.attempts) for each in failed} == {("cancelled", 0)}
    assert {(each.error, each.attempts, each.visible_at) for each in retry} == {("not yet", 1, bed.clock() + 58.0)}


async def test_nobody_knows_other_ids():
    bed = await Bed.made()
    (id,) = await bed.append()
    neighbour = ids.text((ids.number(id) or 0) + 1)
    foreign = ids.text(ids.Ids().block(bed.clock(), carried=True))
    assert await bed.store.get("q", [neighbour, foreign, "", "x", id.upper()]) == [None] * 5
    for unknown in (neighbour, foreign, "x"):
        with pytest.raises(MessageNotFound):
            await bed.store.cancel("q", unknown)


@pytest.mark.parametrize("page", [1, 7, 1000])
async def test_views_show_what_they_say(page: int):
    bed = await Bed.made()
    expected = await populated(bed)
    views = {"ready": "pending", "delayed": "delayed", "processing": "processing", "retry": "retry", "dead": "dead"}
    for view, status in views.items():
        found = await bed.all(view, page=page)
        assert [each.id for each in found] == expected[status]
        assert {each.status for each in found} == {status}
    ended = await bed.all("archive", page=page)
    assert [each.id for each in ended] == sorted(expected["completed"] + expected["failed"])
    for record in ended[::7]:
        assert await bed.get(record.id) == record


async def test_counts_are_what_there_is():
    bed = await Bed.made()
    expected = {status: len(members) for status, members in (await populated(bed)).items()}
    for _ in range(2):
        counted = await bed.store.stats("q")
        assert {name: getattr(counted, name) for name in LIVE_VIEWS if name != "ready"} == {
            name: expected[name] for name in LIVE_VIEWS if name != "ready"
        }
        assert counted.pending == expected["pending"]
        assert (counted.dead, counted.archived) == (expected["dead"], expected["completed"] + expected["failed"])
        assert (counted.completed, counted.failed) == (expected["completed"], expected["failed"])
        assert counted.total == sum(expected.values())
        await bed.flush()


async def test_the_age_of_the_oldest():
    bed = await Bed.made()
    assert await bed.store.stats("q") == Stats()
    await bed.append(1, delay=5.0)
    bed.clock.advance(3.0)
    assert (await bed.store.stats("q")).oldest_age is None
    bed.clock.advance(3.0)
    assert (await bed.store.stats("q")).oldest_age == pytest.approx(1.0, abs=0.002)
    await bed.append(1)
    bed.clock.advance(2.0)
    assert (await bed.store.stats("q")).oldest_age == pytest.approx(3.0, abs=0.002)
    assert len(await bed.claim(1)) == 1
    assert (await bed.store.stats("q")).oldest_age == pytest.approx(2.0, abs=0.002)


async def test_messages_are_found_wherever_they_have_been():
    """Through retries that leave the head, death and replay."""
    bed = await Bed.made(max_attempts=2)
    ids = await bed.append(400, delay=1.0)
    bed.clock.advance(2.0)
    assert set(await bed.settle(await bed.claim(400), "retry", delay=60.0)) == {"ok"}
    await bed.spill()
    assert [each.id for each in await bed.all("retry")] == ids
    bed.clock.advance(62.0)
    assert [each.id for each in await bed.all("ready")] == ids
    held = await bed.claim(400)
    assert await bed.status(ids[399]) == "processing"
    assert set(await bed.settle(held, "retry", error="why")) == {"ok"}
    for _ in range(2):
        record = await bed.get(ids[123])
        assert record is not None
        assert (record.status, record.attempts, record.payload, record.error) == ("dead", 2, b"123", "why")
        await bed.flush()


async def test_mixed_calls_keep_order_and_kind():
    """One call with messages of several kinds: each keeps its own, ids come in input order."""
    bed = await Bed.made()
    sent = [
        Envelope(
            b"%d" % n, "a/b" if n % 2 else "c/d", {"n": str(n)} if n % 3 else None, n % 4, delay=(n % 5 == 4) * 9.0
        )
        for n in range(60)
    ]
    made = await bed.store.append("q", sent)
    for id, envelope in zip(made, sent, strict=True):
        record = await bed.get(id)
        assert record is not None
        assert (record.payload, record.content_type, record.headers) == (
            envelope.payload,
            envelope.content_type,
            envelope.headers,
        )
        assert (record.priority, record.status) == (envelope.priority, "delayed" if envelope.delay else "pending")
    claimed = [each.payload for each in await bed.claim()]
    expected = sorted((each for each in sent if not each.delay), key=lambda each: -each.priority)
    assert claimed == [each.payload for each in expected]


async def test_due_messages_come_by_priority():
    bed = await Bed.made()
    await bed.append(1, delay=1.0)
    (urgent,) = await bed.append(1, delay=2.0, priority=9)
    bed.clock.advance(5.0)
    assert [each.id for each in await bed.claim(1)] == [urgent]


async def test_a_page_looks_at_the_names_that_it_reaches(monkeypatch: pytest.MonkeyPatch):
    """Of a backlog of many blocks and priorities; those that came back carry ids that are older than their names."""
    bed = await Bed.made()
    made = sorted([id for n in range(40) for id in await bed.append(2, priority=n % 3)])
    looked: list[str] = []
    parse = Block.of
    monkeypatch.setattr(Block, "of", lambda no, key, **rest: looked.append(key) or parse(no, key, **rest))
    pages: list[str] = []
    while found := await bed.store.scan("q", "ready", after=pages[-1] if pages else None, limit=8):
        pages += [each.id for each in found]
        assert len(looked) < 20
        looked.clear()
    assert pages == made


async def test_what_waits_for_its_time_is_not_looked_at_for_what_is_ready(monkeypatch: pytest.MonkeyPatch):
    bed = await Bed.made()
    for n in range(300):
        await bed.append(1, delay=60.0 + n)
    soon = [id for n in range(3) for id in await bed.append(1, delay=1.0 + n, priority=n)]
    made = [id for _ in range(300) for id in await bed.append(1)]
    bed.clock.advance(10.0)
    looked: list[str] = []
    parse = Block.of
    monkeypatch.setattr(Block, "of", lambda no, key, **rest: looked.append(key) or parse(no, key, **rest))
    peeked = [each.id for each in await bed.store.peek("q", 10)]
    assert len(looked) < 50
    looked.clear()
    assert [each.id for each in await bed.store.scan("q", "ready", limit=10)] == sorted([*soon, *made])[:10]
    assert await bed.store.scan("q", "processing", limit=10) == []
    assert len(looked) < 50
    assert peeked == [*soon[:0:-1], soon[0], *made[:7]]
    assert [each.id for each in await bed.claim(10)] == peeked


async def test_many_blocks_that_give_nothing_do_not_end_a_peek():
    """Messages that have expired lie before those that have not, more than are looked at at once."""
    bed = await Bed.made()
    for _ in range(200):
        await bed.append(1, lifetime=1.0)
    last = await bed.append(1)
    bed.clock.advance(5.0)
    assert [each.id for each in await bed.store.peek("q", 3)] == last
    assert [each.id for _ in range(200) for each in await bed.claim(3)] == last


async def test_a_message_whose_lease_is_over_can_be_cancelled():
    bed = await Bed.made()
    (id,) = await bed.append()
    await bed.claim(1, 5.0)
    bed.clock.advance(6.0)
    assert await bed.status(id) == "pending"
    assert await bed.store.cancel("q", id)


FORGED: dict[str, Any] = {
    "negative": "t.1.-1.{end}",
    "huge": "t.1.99999999999999.{end}",
    "text": "t.1.x.{end}",
    "none": "",
}


@pytest.mark.parametrize("kind", FORGED)
async def test_a_forged_token_is_just_lost(kind: str):
    bed = await Bed.made()
    (id,) = await bed.append()
    await bed.claim()
    token = FORGED[kind].format(end=id[-12:])
    assert await bed.store.extend("q", [(id, token)], 60.0) == [None]
    assert await bed.store.settle("q", [Settlement(id, token, "complete")]) == ["lost"]
    assert await bed.status(id) == "processing"


async def test_a_block_of_a_producer_is_seen_while_a_flush_of_the_same_millisecond_is_under_way():
    """Its number may follow that of the flush by chance; only blocks of a flush name their messages' ids."""
    bed = await Bed.made()
    await bed.end(1)
    (id,) = await bed.append()
    (key,) = [names.parse_block(key) for key in await bed.keys("inbox/")][-1:]
    flush = f"{int(key.block, 16) - (1 << 20):032x}"
    await bed.store._log("q").committer.ask(Freeze(flush))
    assert await bed.is_frozen()
    assert [each is not None for each in await bed.store.get("q", [id])] == [True]
    assert (await bed.store.stats("q")).pending == 1
