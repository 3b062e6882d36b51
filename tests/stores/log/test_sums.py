"""Sums: what was stored comes back, and nothing else does."""

from __future__ import annotations

import io
import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zlib import crc32

import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.errors import Damaged
from holdfast.stores import formats
from holdfast.stores.log import archive, sums
from holdfast.stores.log.sums import Mismatch, Sums
from holdfast.stores.records import Stored

BLOCK = "q@00000000/inbox/255/1"
FILE = "q@00000000/archive/date=2026-01-01/1.parquet"


def file() -> bytes:
    records = [Stored(str(n), "completed", b"x" * n, "t", None, 0, 1, 1, 0.0, None, 1.0) for n in range(50)]
    return bytes(archive.encode("q", records, [None] * 50))


CONTENTS = [(BLOCK, b""), (BLOCK, b"x"), (BLOCK, bytes(range(256)) * 9), (FILE, b""), (FILE, b"rows"), (FILE, file())]


def strict() -> Sums:
    made = Sums()
    made.set(formats.SUMS, formats.SUMS)
    return made


@pytest.mark.parametrize(("key", "data"), CONTENTS)
def test_what_was_stored_comes_back(key: str, data: bytes) -> None:
    sealed = sums.seal(key, memoryview(data))
    assert (sums.is_sealed(key, sealed), sums.is_sealed(key, data)) == (True, False)
    assert strict().opened(key, sealed) == Sums().opened(key, sealed) == data


def test_a_large_block_is_not_copied_to_be_sealed() -> None:
    """Copying 1 MiB took longer than its sum, and halved the rate of `enqueue_many`."""
    data = b"x" * 1_000_000
    parts = strict().begin(BLOCK, data)
    assert next(iter(parts)) is data
    assert b"".join(parts) == strict().sealed(BLOCK, data)


def test_a_sum_is_worked_out_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread writes the bytes, another one sums them."""
    worked: list[int] = []
    parts = strict().begin(BLOCK, b"x" * 5_000_000)
    monkeypatch.setattr(sums, "crc32", lambda data, start=0: worked.append(len(data)) or crc32(data, start))
    with ThreadPoolExecutor(4) as pool:
        found = {pool.submit(parts.sum) for _ in range(8)}
    assert {each.result() for each in found} == {bytes(list(parts)[1])}
    assert worked.count(5_000_000) == 1


@pytest.mark.parametrize(("key", "data"), CONTENTS)
def test_every_flipped_bit_cut_and_zero_is_found(key: str, data: bytes) -> None:
    sealed = sums.seal(key, data)
    chance = random.Random(1)
    spoiled = {sealed[:size] for size in range(0, len(sealed), 1 + len(sealed) // 50)}
    for _ in range(500):
        bit = chance.randrange(8 * len(sealed))
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        zeroed = bytearray(sealed)
        start, size = chance.randrange(len(sealed)), chance.randint(1, len(sealed))
        zeroed[start : start + size] = bytes(len(zeroed[start : start + size]))
        spoiled |= {bytes(flipped), bytes(zeroed)}
    for each in spoiled - {sealed}:
        with pytest.raises(Mismatch) as caught:
            strict().opened(key, each)
        assert (caught.value.key, caught.value.queue, caught.value.left) == (key, "q", each)


@pytest.mark.parametrize("key", [BLOCK, FILE])
def test_a_sound_object_under_another_key_is_found(key: str) -> None:
    with pytest.raises(Damaged, match="do not match its sum"):
        Sums().opened(key.replace("1", "2"), sums.seal(key, file()))


def test_what_every_commit_reads_is_summed_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And again as soon as a single bit is different, or it was written by somebody else."""
    one, two, kept = strict(), strict(), sums.seal(BLOCK, b"1" * 100)
    assert (one.reopened(BLOCK, kept), two.reopened(BLOCK, kept)) == (b"1" * 100, b"1" * 100)
    theirs, ours = one.sealed(BLOCK, b"2" * 100), two.sealed(BLOCK, b"3" * 100)
    assert two.reopened(BLOCK, bytes(theirs)) == b"2" * 100
    assert two.reopened(BLOCK, bytes(ours)) == b"3" * 100
    with monkeypatch.context() as patched:
        patched.setattr(sums, "crc32", None)
        assert two.reopened(BLOCK, bytes(ours)) == b"3" * 100
    for place in range(0, len(ours), 7):
        flipped = bytearray(ours)
        flipped[place] ^= 1
        with pytest.raises(Mismatch):
            two.reopened(BLOCK, bytes(flipped))
        assert two.reopened(BLOCK, bytes(ours)) == b"3" * 100


def test_only_so_many_objects_are_known() -> None:
    one = strict()
    for n in range(1000):
        assert one.reopened(f"{BLOCK}{n}", sums.seal(f"{BLOCK}{n}", b"x")) == b"x"
    assert len(one._known) <= sums._KNOWN_MOST


def test_a_sealed_archive_file_is_a_parquet_file() -> None:
    sealed = sums.seal(FILE, file())
    assert pq.ParquetFile(io.BytesIO(sealed), page_checksum_verification=True).read().num_rows == 50


def test_a_store_from_before_is_read_without_and_a_newer_one_is_not() -> None:
    before, raised = Sums(), Sums()
    before.set(formats.SUMS - 1)
    raised.set(formats.SUMS, formats.SUMS - 1)
    assert (before.sealed(BLOCK, b"x"), raised.sealed(BLOCK, b"x")) == (b"x", sums.seal(BLOCK, b"x"))
    assert before.opened(BLOCK, b"x") == raised.opened(BLOCK, b"x") == b"x"
    with pytest.raises(Mismatch, match="its sum is gone"):
        strict().opened(BLOCK, b"x")


async def test_a_raised_folder_gets_sums_as_it_is_rewritten(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    async with holdfast.connect(url) as broker:
        await broker.queue("jobs")
    with sqlite3.connect(tmp_path / "holdfast.db") as database:
        database.execute("UPDATE meta SET value = 2 WHERE name = 'format'")
        database.execute("DELETE FROM meta WHERE name = 'born'")
        for key, data in database.execute("SELECT key, data FROM objects").fetchall():
            plain = strict().opened(key, data)
            database.execute("UPDATE objects SET data = ? WHERE key = ?", (plain, key))
    sealed = []
    for raises in (False, True):
        async with holdfast.connect(url) as broker:
            await broker.install(raise_format=raises)
            queue = await broker.queue("jobs")
            await queue.enqueue(1)
            message = await queue.dequeue()
            assert message is not None
            await message.complete()
        with sqlite3.connect(tmp_path / "holdfast.db") as database:
            found = database.execute("SELECT key, data FROM objects WHERE data IS NOT NULL").fetchall()
            sealed.append({key.partition("/")[2]: sums.is_sealed(key, data) for key, data in found})
    assert [each["head"] for each in sealed] == [False, True]
