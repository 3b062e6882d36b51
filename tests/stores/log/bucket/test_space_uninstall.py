"""Uninstalling from a bucket: objects of ours go, all others stay and are told."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.stores.log import names

from .fixtures import Place

ROOT = "jobs@0123abcd"
THEIRS = [
    *("notes.txt", "probe/readme", "queues/", "queues/a/b", "queues/.hidden"),
    *("manifest/mine.manifest", "wal/notes.sst"),  # where SlateDB would have its own
    *(f"{ROOT}/notes.txt", f"{ROOT}/headline", f"{ROOT}/inbox", f"{ROOT}/dead/notes.txt", f"{ROOT}/other/inbox/1"),
    *("jobs@0123ABCD/head", "jobs@0123abc/head", "jobs/head"),
]
OURS = [
    *("queues/jobs", f"{ROOT}/head", f"{ROOT}/hint", f"{ROOT}/heed-abc", f"{ROOT}/maintain", f"{ROOT}/scanned"),
    *(f"{ROOT}/{log}{name}" for log in ("", "dead/", "s0003/") for name in ("inbox/255/x", "later/1/x", "results/t.1")),
    *(
        f"{ROOT}/{name}"
        for name in ("dedup/00", "replayed/00", "damaged/inbox/1", "late/x", "recovered/x", "parts/0/inbox/1")
    ),
    f"{ROOT}/archive/date=2026-01-01/a.parquet",
]


def test_which_keys_are_ours():
    assert [key for key in OURS if not names.is_ours(key)] == []
    assert [key for key in THEIRS if names.is_ours(key)] == []


async def use(url: str) -> None:
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(range(20))
        await queue.complete_many(await queue.dequeue_many(10), [b"x".decode() * 10_000] * 10)
        await broker.maintain()


def keys(place: Place) -> set[str]:
    return {each["path"] for page in place.driver().list() for each in page}


@pytest.mark.parametrize("kind", ["", "slatedb+"])
async def test_objects_of_others_below_the_prefix_stay(s3: Place, kind: str) -> None:
    if kind:
        pytest.importorskip("slatedb", reason="the extra slatedb is not installed")
    url = f"{kind}{s3.url}"
    theirs = [key for key in THEIRS if not key.startswith("queues/")]  # where only queues may be
    for key in theirs:
        s3.driver().put(key, b"mine")
    await use(url)
    assert len(keys(s3)) > len(theirs)
    async with holdfast.connect(url) as broker:
        told = await broker.uninstall()
    assert keys(s3) == set(theirs)
    assert sorted(told) == sorted(f"object {key}" for key in theirs)


async def test_what_was_left_is_told_in_a_few_names(s3: Place) -> None:
    for number in range(30):
        s3.driver().put(f"mine/{number}", b"x")
    async with holdfast.connect(s3.url) as broker:
        told = await broker.uninstall()
    assert len(told) == 21
    assert told[-1] == "and 10 more"
