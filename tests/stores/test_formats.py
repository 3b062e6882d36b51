"""Stores of every released format are opened and found complete; a newer format is refused with a sentence.

`tests/formats/v<number>/` holds a small folder store with messages in every state, and what must be found in it;
`tests/formats/slate-v<number>/` a SlateDB store. Each was made by the version that brought the format, with

    python -m tests.stores.make_format [slate]

and is never made again once that version is released. A change of what is stored comes with a new number and a new
folder; the old ones stay and must still open.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.config import QueueOptions
from holdfast.errors import StoreError
from holdfast.retry import Fixed
from holdfast.stores import formats
from holdfast.stores.log import archive, queues, rows
from holdfast.stores.log.head import codec
from holdfast.stores.log.store import LogStore
from holdfast.stores.records import Envelope, Settlement
from holdfast.testing.clock import ManualClock
from tests.stores.log.log_bench import Bed
from tests.stores.make_format import FORMATS, QUIET, Expected, open_kept

RELEASED = sorted(path.name for path in FORMATS.glob("*v*"))


class Kept:
    """A copy of a stored store, open at the time it was made."""

    def __init__(self, name: str, store: LogStore, clock: ManualClock, expected: Expected) -> None:
        self.name = name
        self.store = store
        self.clock = clock
        self.expected = expected

    async def shown(self, view: str) -> list[str]:
        return [each.id for each in await self.store.scan("jobs", view, limit=1000)]  # type: ignore[arg-type]  # a view


@pytest.fixture(params=RELEASED)
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    source = FORMATS / request.param
    shutil.copytree(source / "store", tmp_path / "store")
    expected = msgspec.json.decode((source / "expected.json").read_bytes(), type=Expected)
    clock = ManualClock(expected.now)
    store = await open_kept(request.param, tmp_path / "store", clock=clock)
    yield Kept(request.param, store, clock, expected)
    await store.close()


def test_there_is_a_store_of_the_present_format():
    assert {f"v{formats.LOG}", f"slate-v{formats.LOG}"} <= {*RELEASED}
    size = sum(path.stat().st_size for path in FORMATS.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert size < 300 * 1024 * len(RELEASED)


async def test_every_record_is_found(kept: Kept):
    expected = kept.expected
    for status, ids in expected.ids.items():
        found = await kept.store.get("jobs", ids)
        assert [each and (each.id, each.status) for each in found] == [(id, status) for id in ids]
    assert await kept.store.get("jobs", [each.id for each in expected.records]) == expected.records
    assert await kept.store.stats("jobs") == expected.stats


async def test_every_view_is_complete(kept: Kept):
    ids = kept.expected.ids
    for view, status in {
        "ready": "pending",
        "delayed": "delayed",
        "processing": "processing",
        "retry": "retry",
    }.items():
        assert await kept.shown(view) == ids[status]
    assert await kept.shown("dead") == ids["dead"]
    assert await kept.shown("archive") == sorted(ids["completed"] + ids["failed"])


async def test_options_are_found(kept: Kept):
    infos = {info.name: info for info in await kept.store.queues()}
    assert sorted(infos) == ["jobs", "quiet"]
    assert (infos["jobs"].options.retry, infos["jobs"].options.max_attempts) == (Fixed(5.0), 4)
    assert (infos["jobs"].paused, infos["quiet"].paused) == (False, True)
    assert infos["quiet"].options == QUIET
    assert (await kept.store.claim("quiet", 1, 5.0)).messages == []
    await kept.store.pause("quiet", False)
    assert [each.payload for each in (await kept.store.claim("quiet", 1, 5.0)).messages] == [b"hush"]


async def test_leases_tokens_and_memory_still_hold(kept: Kept):
    store, expected = kept.store, kept.expected
    kept.clock.advance(10.0)
    ends = await store.extend("jobs", expected.held, 9000.0)
    assert ends == [expected.now + 9010.0] * 2
    assert await store.settle("jobs", [Settlement(*each, "complete") for each in expected.held]) == ["ok", "ok"]
    assert await store.settle("jobs", [Settlement(*expected.done, "complete")]) == ["ok"]
    assert await store.settle("jobs", [Settlement(*expected.done, "dead")]) == ["lost"]
    key, id = expected.dedup
    assert await store.append("jobs", [Envelope(b"again", dedup_key=key)]) == [id]
    assert await store.replay("jobs", "archive", [expected.replayed]) == 0


async def test_the_work_goes_on(kept: Kept):
    """The flush that was cut short is finished, everything is worked off, and nothing is lost or doubled."""
    store, ids = kept.store, kept.expected.ids
    came: list[str] = []
    for _ in range(2):
        while held := (await store.claim("jobs", 500, 60.0)).messages:
            came += [each.id for each in held]
            assert {*await store.settle("jobs", [Settlement(each.id, each.token, "complete") for each in held])} == {
                "ok"
            }
        kept.clock.advance(10_000.0)
    assert sorted(came) == sorted(id for status in ("pending", "processing", "retry", "delayed") for id in ids[status])
    await store.maintain("jobs")
    letters = (await store.claim("jobs/dead", 100, 60.0)).messages
    assert [each.id for each in letters] == ids["dead"]
    answers = await store.settle("jobs/dead", [Settlement(each.id, each.token, "complete") for each in letters])
    assert set(answers) == {"ok"}
    stats = await store.stats("jobs")
    ended = len(came) + len(letters) + len(ids["completed"]) + len(ids["failed"])
    assert (stats.archived, stats.total) == (ended, ended)
    files = await store.scan("jobs", "archive", limit=10_000)
    assert len({each.id for each in files}) == len(files) == ended


async def test_the_stores_own_clock_goes_on(kept: Kept, tmp_path: Path):
    """Opened as everybody opens it: years later everything is due."""
    await kept.store.close()
    store = await open_kept(kept.name, tmp_path / "store")
    try:
        assert abs(await store.clock() - time.time()) < 60
        stats = await store.stats("jobs")
        live = sum(len(kept.expected.ids[status]) for status in ("pending", "processing", "retry", "delayed"))
        assert (stats.pending, stats.total) == (live, kept.expected.stats.total)
    finally:
        await store.close()


# A newer format is refused, wherever it is met.


async def newer(bed: Bed, key: str, data: bytes) -> None:
    await bed.space.transact(lambda tx: tx.put(key, data))
    bed.store = bed.another()


async def test_a_newer_queue_is_refused():
    bed = await Bed.made()
    await newer(bed, "queues/q", msgspec.json.encode({"format": queues.WITH_SCHEDULES + 1, "all else": "is new"}))
    for call in (bed.claim(), bed.append(), bed.store.stats("q"), bed.store.queues(), bed.store.queue("q")):
        with pytest.raises(StoreError, match="upgrade holdfast"):
            await call


async def test_a_newer_head_is_refused():
    bed = await Bed.made()
    await bed.end(1)
    root = await bed.root()
    await newer(bed, root + "head", msgspec.msgpack.encode((codec.FORMAT + 1, "new")))
    for call in (bed.claim(), bed.store.stats("q"), bed.store.maintain("q")):
        with pytest.raises(StoreError, match="upgrade holdfast"):
            await call


async def test_a_newer_block_is_refused():
    bed = await Bed.made()
    ids = await bed.append(3)
    (key,) = await bed.space.read(lambda view: [key for key in view.list("q@") if "/inbox/" in key])
    wire = (rows.FORMAT + 1, {"payload": [b"x"], "content_type": "t"})
    await newer(bed, key, msgspec.msgpack.encode(wire))
    for call in (bed.claim(), bed.get(ids[0])):
        with pytest.raises(StoreError, match="upgrade holdfast"):
            await call


def test_a_newer_archive_file_is_refused():
    table = pq.read_table(pa.BufferReader(bytes(archive.encode("q", [], []))))
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({"holdfast": "2"}), sink)
    with pytest.raises(StoreError, match="upgrade holdfast"):
        archive.decode(sink.getvalue().to_pybytes())


def test_every_stored_thing_carries_its_format():
    config = queues.Config(incarnation="0", created_at=0.0, options=QueueOptions())
    assert msgspec.json.decode(msgspec.json.encode(config))["format"] == queues.FORMAT
    assert msgspec.msgpack.decode(codec.HeadWriter().encode(codec.Head()))[0] == codec.PLAIN
    assert msgspec.msgpack.decode(bytes(rows.encode(rows.Rows([b""], "t"))))[0] == rows.FORMAT
    schema = pq.read_schema(pa.BufferReader(bytes(archive.encode("q", [], []))))
    assert schema.metadata[b"holdfast"] == b"1"
