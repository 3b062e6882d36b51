"""What `doctor` says of a folder's parts."""

from __future__ import annotations

import os
from pathlib import Path

import holdfast
from holdfast import admin

LARGE = "x" * 300_000
HOURS = 7200.0


async def line(folder: Path) -> tuple[str, str]:
    [check] = [check for check in await admin.doctor(f"file://{folder}") if check.name == "files"]
    return check.state, check.detail


def blocks(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "/inbox/" in str(path))


async def test_files_and_rows_that_do_not_belong_together_are_counted(tmp_path: Path) -> None:
    async with holdfast.connect(f"file://{tmp_path}") as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many([LARGE, LARGE])
        await queue.enqueue(LARGE)
    assert await line(tmp_path) == ("ok", "every object has its file; 0 files belong to no object")
    first, _ = blocks(tmp_path)
    stray = first.with_name("stray")
    os.rename(first, stray)
    state, told = await line(tmp_path)
    assert (state, "1 objects have lost their files" in told, "0 files belong to no object" in told) == (
        "fail",
        True,
        True,
    )
    os.utime(stray, (stray.stat().st_mtime - HOURS,) * 2)
    assert "1 files belong to no object" in (await line(tmp_path))[1]
    os.rename(stray, first)
    assert (await line(tmp_path))[0] == "ok"
