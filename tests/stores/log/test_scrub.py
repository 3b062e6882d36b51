"""A scrub names everything that is wrong, and nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import admin
from holdfast.errors import Damaged
from tests.cli_runner import Cli
from tests.stores.log.damaged_places import Place, place

LARGE = "x" * 300_000


@pytest.fixture(params=["file", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, tmp_path) as made:
        yield made


async def filled(url: str) -> None:
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(range(3))
        for message in await queue.dequeue_many(2):
            await message.complete("y" * 5000)
        await broker.store.discard("jobs", "archive", [])
        await queue.enqueue(LARGE)
        await queue.enqueue_many(range(20), priority=9)
        await queue.enqueue(1, dedup_key="key")
        await queue.enqueue(2, priority=200)
        for message in await queue.dequeue_many(1):
            await message.complete("z" * 5000)  # an object of its own until the flush


async def scrubbed(url: str, **how: object) -> admin.ScrubReport:
    async with holdfast.connect(url) as broker:
        return await admin.scrub(broker, **how)  # type: ignore[arg-type]  # as the call says


async def test_a_sound_store_has_nothing_wrong(where: Place) -> None:
    await filled(where.url)
    report = await scrubbed(where.url)
    assert (report.wrong, report.without_sums) == ([], 0)
    assert report.objects >= len([key for key in where.objects() if not key.startswith(("~", "scrubbed"))])
    assert report.bytes > 300_000
    [line] = [check for check in await admin.doctor(where.url) if check.name == "scrub"]
    assert (line.state, "nothing was wrong" in line.detail) == ("ok", True)


@pytest.mark.parametrize("part", ["queues/", "/head", "/inbox/", "/archive/", "/results/", "/dedup/"])
async def test_one_flipped_bit_is_named(where: Place, part: str) -> None:
    await filled(where.url)
    key, data = next((key, data) for key, data in sorted(where.objects().items()) if part in key)
    where.write(key, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    report = await scrubbed(where.url)
    assert key in [each.key for each in report.wrong]
    assert next(each for each in report.wrong if each.key == key).queue == "jobs"
    lines = {check.name: check for check in await admin.doctor(where.url)}
    assert lines["scrub"].state == "fail"


async def test_what_is_named_and_missing_is_told(tmp_path: Path) -> None:
    with place("file", tmp_path) as where:
        await filled(where.url)
        file = next(path for path in (tmp_path / "store").rglob("*-1-0-0-0") if path.is_file())
        os.unlink(file)
        where.write(next(key for key in where.objects() if "/results/" in key), None)
        told = [(each.key, each.problem) for each in (await scrubbed(where.url)).wrong]
        assert [("/inbox/" in key, "/results/" in key) for key, _ in told] == [(True, False), (False, True)]
        assert "gone" in told[0][1]
        assert "missing" in told[1][1]


async def test_objects_of_no_queue_are_told(tmp_path: Path) -> None:
    with place("file", tmp_path) as where:
        await filled(where.url)
        where.write("queues/jobs", None)
        [told] = (await scrubbed(where.url)).wrong
        assert (told.queue, "options of the queue are not there" in told.problem) == ("jobs", True)


async def test_the_name_of_a_schedule_that_is_gone_is_told(where: Place) -> None:
    async with holdfast.connect(where.url) as broker:
        await broker.queue("jobs")
        for name in ("daily", "weekly"):
            await broker.schedules.put(holdfast.Schedule(name=name, queue="jobs", value=1, every=86_400))
        await broker.schedules.delete("weekly")
    assert (await scrubbed(where.url)).wrong == []
    where.write("schedules/daily", None)
    [told] = (await scrubbed(where.url)).wrong
    assert (told.key, told.problem) == ("schedules/daily", "it is missing, queues/jobs names it")


async def test_quarantine_moves_what_nobody_can_read(where: Place) -> None:
    await filled(where.url)
    for part in ("/dedup/", "/archive/"):
        where.spoil(part, "flipped")
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        with pytest.raises(Damaged):
            await queue.enqueue(1, dedup_key="key")
    assert len((await scrubbed(where.url, quarantine=True)).wrong) == 2
    assert len([key for key in where.objects() if "/damaged/" in key]) == 2
    assert (await scrubbed(where.url)).wrong == []
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(1, dedup_key="key")
        assert len(await queue.archive.list()) == 1  # it was in no file yet


async def test_a_folder_with_files_and_no_database_is_no_new_store(tmp_path: Path) -> None:
    await filled(f"file://{tmp_path}")
    os.unlink(tmp_path / "holdfast.db")
    os.unlink(tmp_path / "lock")  # as it was in earlier versions: it does not say that this is a store
    with pytest.raises(Damaged, match="no database: put holdfast"):
        await holdfast.connect(f"file://{tmp_path}")


async def test_a_result_that_cannot_be_read_is_said_so_and_holds_up_nothing(where: Place) -> None:
    await filled(where.url)
    where.spoil("/results/", "flipped")
    async with holdfast.connect(where.url) as broker:
        await broker.store.discard("jobs", "archive", [])
        queue = await broker.queue("jobs")
        [told] = [each for each in await queue.archive.list(100) if each.error]
        assert (told.status, told.result) == ("completed", None)
        assert "do not match" in (told.error or "")


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "store")
    asyncio.run(filled(f"file://{tmp_path / 'store'}"))
    assert "nothing is wrong" in cli.out("scrub", "--rate", "1000")
    [file] = (tmp_path / "store").rglob("*.parquet")
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    told = cli("scrub", "--queue", "jobs", code=1).stdout
    assert "do not match" in told
    assert file.name in told, "nothing is cut"
    file.unlink()
    assert "taken off the store's list: its bytes are gone" in cli("scrub", "--quarantine", code=1).stdout
    assert "no queue 'jbos'" in cli.error("scrub", "--queue", "jbos")
    assert "there is no store at" in Cli(tmp_path / "stroe").error("scrub")
    assert not (tmp_path / "stroe").exists()
