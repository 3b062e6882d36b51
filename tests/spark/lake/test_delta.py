"""Commits to a Delta table: whole or not at all, judged by what others did first, read alike by every engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import ConfigError, StoreError
from holdfast.spark.lake import Change, File, Lake, LakeConflict, compacting, reading, tables
from holdfast.spark.lake.delta import CHECKPOINT_COMMITS, LOG, Spec, Table, name_of
from holdfast.spark.lake.writing import Writer
from tests.spark.lake.engines import log_files, same

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def rows(first: int, count: int, *, queue: str = "emails", day: datetime = DAY) -> pa.Table:
    made = [
        {
            "id": f"{number:06d}",
            "queue": queue,
            "status": "dead" if number % 10 == 0 else "completed",
            "value": b"{}",
            "headers": [("of", queue)],
            "attempts": 1,
            "finished_at": day + timedelta(microseconds=number + 1),
            "error": f"ValueError: order {number} has no street" if number % 10 == 0 else None,
        }
        for number in range(first, first + count)
    ]
    schema = pa.schema([field for field in tables.arrow_schema(tables.MESSAGES) if field.name in made[0]])
    return tables.as_table(pa.Table.from_pylist(made, schema=schema), tables.MESSAGES)


def files(lake: Lake, *parts: pa.Table) -> tuple[File, ...]:
    made: list[File] = []
    for part in parts:
        writer = Writer(lake.messages.place, tables.PARTITIONS[tables.MESSAGES])
        writer.write(part)
        made += writer.close()
    return tuple(made)


def added(lake: Lake, first: int, count: int, *, mark: str = "q", **more: Any) -> int:
    base = lake.messages.state()
    made = files(lake, rows(first, count, **more))
    return lake.messages.commit(base, Change("WRITE", add=made, marks={mark: first + count}))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_a_commit_is_seen_whole_and_a_late_one_is_judged(lake: Lake) -> None:
    table, empty = lake.messages, lake.messages.state()
    assert (empty.version, empty.files, empty.mark("q")) == (-1, (), None)
    one, two, three = files(lake, rows(0, 10), rows(10, 10), rows(20, 10))
    assert table.commit(empty, Change("WRITE", add=(one, two), marks={"q": 20})) == 0
    with pytest.raises(LakeConflict, match="run it again"):  # planned before the other added
        table.commit(empty, Change("WRITE", add=(three,), marks={"q": 30}))
    first = table.state()
    assert (first.version, first.rows, first.mark("q"), first.mark("other")) == (0, 20, 20, None)
    [both] = files(lake, rows(0, 20))
    assert table.commit(first, Change("OPTIMIZE", add=(both,), remove=first.files)) == 1
    # a compaction meanwhile does not disturb who adds
    assert table.commit(first, Change("WRITE", add=(three,), marks={"q": 30})) == 2
    with pytest.raises(LakeConflict):  # its files are no longer there
        table.commit(first, Change("OPTIMIZE", add=(both,), remove=first.files))
    with pytest.raises(LakeConflict):
        table.commit(first, Change("DELETE", remove=first.files[:1]))
    now = table.state()
    assert ({file.path for file in now.files}, now.version) == ({both.path, three.path}, 2)
    assert same(lake) == (30, 30)
    assert table.state(0).rows == 20
    with pytest.raises(ConfigError, match="no version 9"):
        table.state(9)


def test_the_first_commits_of_two_writers_make_one_table(lake: Lake) -> None:
    empty = lake.messages.state()
    for version, queue in enumerate(("a", "b")):
        [made] = files(lake, rows(version * 10, 10, queue=queue))
        assert lake.messages.commit(empty, Change("WRITE", add=(made,), marks={queue: 1})) == version
    assert same(lake) == (20, 20)
    assert {file.partition["queue"] for file in lake.messages.state().files} == {"a", "b"}


NEW = ("expires", "history")


def older(lake: Lake) -> Table:
    """The table as a version of Holdfast knows it that had fewer columns."""
    spec = lake.messages.spec
    return Table(lake.messages.place, Spec(tuple(each for each in spec.columns if each[0] not in NEW), spec.partitions))


def by_older(lake: Lake, first: int, count: int) -> int:
    table = older(lake)
    made = files(lake, rows(first, count).drop_columns(NEW))
    return table.commit(table.state(), Change("WRITE", add=made, marks={"q": first + count}))


def test_a_table_that_is_older_than_some_columns_gets_them_with_the_next_commit(lake: Lake) -> None:
    import polars

    by_older(lake, 0, 10)
    made = files(lake, _tried(rows(10, 10)))
    assert lake.messages.commit(lake.messages.state(), Change("WRITE", add=made, marks={"q": 20})) == 1
    assert added(lake, 20, 10) == 2
    assert json.loads(lake.messages.state().schema) == json.loads(lake.messages.spec.text)
    texts = [(lake.messages.place.read(name_of(version)) or b"").decode() for version in range(3)]
    assert ['"metaData"' in text for text in texts] == [True, True, False]
    assert same(lake) == (30, 30)
    frame = polars.scan_delta(lake.messages.place.shown).filter(polars.col("history").is_not_null()).collect()
    assert [(len(each), each[0]["error"], each[0]["worker"]) for each in frame["history"]] == [(1, "again", "w")] * 10
    [merged] = [
        compacting.MergeTask(lake.messages.place.text)._merged(group)
        for group in compacting.groups(lake.messages.state())
    ]
    state = lake.messages.state()
    assert lake.messages.commit(state, Change("OPTIMIZE", add=tuple(merged), remove=state.files)) == 3
    assert same(lake) == (30, 30)
    chosen = reading.Chosen(lake.text)
    found = [batch for task in reading.plan(chosen) for batch in reading.read(chosen, task, ["id", "history"])]
    has = {row["id"]: row["history"] for batch in found for row in batch.to_pylist()}
    assert {id for id, history in has.items() if history} == {f"{number:06d}" for number in range(10, 20)}


def test_an_older_version_that_plans_meanwhile_starts_over(lake: Lake) -> None:
    by_older(lake, 0, 10)
    table = older(lake)
    base = table.state()
    added(lake, 10, 10)
    with pytest.raises(LakeConflict, match="other columns"):
        table.commit(base, Change("WRITE", marks={"other": 1}))
    assert by_older(lake, 20, 10) == 2
    assert same(lake) == (30, 30)


def _tried(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("history")
    one = [{"start": DAY, "end": DAY, "worker": "w", "error": "again"}]
    return table.set_column(at, table.schema.field(at), pa.array([one] * len(table), table.schema.field(at).type))


def adding(lake: Lake, number: int) -> None:
    for turn in range(4):
        added(lake, number * 1000 + turn * 10, 10, mark=f"writer {number}")


def merging(lake: Lake) -> None:
    for _ in range(4):
        base = lake.messages.state()
        for group in compacting.groups(base):
            [made] = compacting.MergeTask(lake.messages.place.text)._merged(group)
            try:
                lake.messages.commit(base, Change("OPTIMIZE", add=(made,), remove=tuple(group)))
            except LakeConflict:
                lake.messages.place.delete(made.path)


def test_many_writers_at_once_lose_and_double_nothing(lake: Lake) -> None:
    failed: list[BaseException] = []

    def run(work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(lake, *arguments)
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(adding, number)) for number in range(3)]
    threads += [threading.Thread(target=run, args=(merging,)) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert failed == []
    assert same(lake) == (120, 120)


def test_a_checkpoint_keeps_marks_and_files(lake: Lake, tmp_path: Path) -> None:
    for number in range(CHECKPOINT_COMMITS + 2):
        added(lake, number * 5, 5, mark="early" if number == 0 else "q")
    folder = tmp_path / "lake" / "messages"
    assert (folder / LOG / f"{CHECKPOINT_COMMITS:020d}.checkpoint.parquet").exists()
    for name in log_files(folder)[:CHECKPOINT_COMMITS]:  # as a clean-up would
        (folder / LOG / name).unlink()
    state = lake.messages.state()
    assert (state.version, state.rows, state.mark("early"), state.mark("q")) == (CHECKPOINT_COMMITS + 1, 60, 5, 60)
    assert same(lake) == (60, 60)
    assert added(lake, 100, 5) == CHECKPOINT_COMMITS + 2


def test_every_log_file_is_synced_before_it_counts(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, int]] = []
    real = os.fsync

    def noted(handle: int) -> None:
        found = os.fstat(handle)
        synced.append((found.st_dev, found.st_ino))
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    for number in range(CHECKPOINT_COMMITS + 1):
        added(lake, number * 5, 5)
    log = tmp_path / "lake" / "messages" / LOG
    for path in (log, *log.iterdir(), *(tmp_path / "lake" / "messages").rglob("*.parquet")):
        found = path.stat()
        assert (found.st_dev, found.st_ino) in synced, path


def test_what_another_program_commits_is_seen_and_judged(lake: Lake) -> None:
    import deltalake

    added(lake, 0, 10)
    added(lake, 10, 10)
    base = lake.messages.state()
    deltalake.DeltaTable(lake.uri()).optimize.compact()
    [made] = files(lake, rows(0, 20))
    with pytest.raises(LakeConflict):  # both would have doubled every row
        lake.messages.commit(base, Change("OPTIMIZE", add=(made,), remove=base.files))
    lake.messages.place.delete(made.path)
    added(lake, 20, 10)
    assert same(lake) == (30, 30)
    table = deltalake.DeltaTable(lake.uri())
    table.alter.add_constraint({"plausible": "attempts >= 0"})
    with pytest.raises(StoreError, match="changed by another program"):
        lake.messages.state()


def test_statistics_are_those_of_the_rows(lake: Lake) -> None:
    added(lake, 0, 30)
    table: Any = pa.table(lake_delta(lake).get_add_actions(flatten=True))
    [seen] = table.to_pylist()
    moments = [DAY + timedelta(microseconds=1), DAY + timedelta(microseconds=30)]
    assert [seen["min.finished_at"], seen["max.finished_at"]] == moments
    assert (seen["min.id"], seen["max.id"], seen["num_records"]) == ("000000", "000029", 30)
    assert (seen["null_count.error"], seen["null_count.fingerprint"], seen["null_count.id"]) == (27, 27, 0)
    [file] = lake.messages.state().files
    assert (file.first, file.last) == (moments[0].timestamp(), moments[1].timestamp())


def lake_delta(lake: Lake) -> Any:
    from holdfast.spark.lake.delta import opened

    return opened(lake.messages.place)


def test_reading_skips_files_and_filters_rows(lake: Lake) -> None:
    for number, queue in enumerate(("a", "b")):
        added(lake, number * 100, 50, queue=queue, day=DAY + timedelta(days=number))
    names = ("id", "queue", "day", "error")

    def ids(**chosen: Any) -> list[str]:
        asked = reading.Chosen(lake.text, **chosen)
        batches = [batch for task in reading.plan(asked) for batch in reading.read(asked, task, names)]
        return sorted(id for batch in batches for id in batch["id"].to_pylist())

    assert len(ids()) == 100
    assert ids(queues=("b",)) == [f"{number:06d}" for number in range(100, 150)]
    assert ids(view=tables.ERRORS, queues=("a",)) == [f"{number:06d}" for number in (0, 10, 20, 30, 40)]
    since = (DAY + timedelta(microseconds=41)).timestamp()
    assert ids(until=since) == [f"{number:06d}" for number in range(40)]
    assert len(ids(since=since)) == 60
    assert len(ids(version=0)) == 50
    assert len(reading.plan(reading.Chosen(lake.text, since=since, queues=("b",)))) == 1


def test_what_is_swept_and_what_stays(lake: Lake, tmp_path: Path) -> None:
    added(lake, 0, 10)
    added(lake, 10, 10)
    base = lake.messages.state()
    [made] = files(lake, rows(0, 20))
    lake.messages.commit(base, Change("OPTIMIZE", add=(made,), remove=base.files))
    folder = tmp_path / "lake" / "messages"
    old, new = (Path(files(lake, rows(50, 1))[0].path) for _ in "on")  # nobody committed them
    long_ago = datetime.now().timestamp() - 2 * compacting.KEEP_FILES_S
    os.utime(folder / old, (long_ago, long_ago))
    assert compacting.sweep(lake, keep_versions=3600.0) == 1
    assert not (folder / old).exists()
    assert (folder / new).exists()  # it may be under way
    assert lake.messages.state(base.version).rows == 20
    assert compacting.sweep(lake, keep_versions=0.0) == 2
    versions = lake.messages.state().version
    assert compacting.sweep(lake, keep_versions=0.0) == 0
    assert lake.messages.state().version == versions  # nothing to do makes no version
    assert (folder / new).exists()
    assert same(lake) == (20, 20)


def test_merged_and_new_files_beside_each_other(lake: Lake) -> None:
    """Polars takes partitions from paths, the others from the log: every column, of every engine."""
    import polars

    for number in range(2):
        added(lake, number * 10, 10)
    base = lake.messages.state()
    [group] = compacting.groups(base)
    merged = compacting.MergeTask(lake.messages.place.text)._merged(group)
    lake.messages.commit(base, Change("OPTIMIZE", add=tuple(merged), remove=tuple(group)))
    added(lake, 20, 10)
    assert same(lake) == (30, 30)
    found = polars.read_delta(lake.uri())
    assert (set(found["queue"]), set(found["day"]), found["id"].n_unique()) == ({"emails"}, {DAY.date()}, 30)
    assert {file.path.rpartition("/")[0] for file in lake.messages.state().files} == {"queue=emails/day=2026-03-01"}


def test_retention_drops_days_and_says_so(lake: Lake) -> None:
    from holdfast.spark.lake.lake import floor

    for number in range(3):
        added(lake, number * 10, 10, day=DAY + timedelta(days=number))
    state = lake.messages.state()
    change = compacting.expired(lake.messages, state, "2026-03-02")
    assert change is not None
    lake.messages.commit(state, change)
    now = lake.messages.state()
    assert (floor(state), floor(now), now.rows) == ("", "2026-03-02", 20)
    assert compacting.expired(lake.messages, now, "2026-03-02") is None
    assert same(lake) == (20, 20)


def test_a_file_nobody_committed_is_not_the_lake(lake: Lake, tmp_path: Path) -> None:
    added(lake, 0, 10)
    [file] = lake.messages.state().files
    path = tmp_path / "lake" / "messages" / file.path
    path.with_name("half.parquet").write_bytes(path.read_bytes()[:100])
    assert same(lake) == (10, 10)


def test_delta_rs_is_imported_by_no_module(tmp_path: Path) -> None:
    """It does not survive a fork, and Spark forks its Python workers."""
    code = (
        "import sys, holdfast.spark, holdfast.spark.jobs, holdfast.spark.source, holdfast.spark.lake.compacting\n"
        "print([name for name in ('deltalake', 'obstore') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_process_that_read_a_lake_ends_well(lake: Lake) -> None:
    added(lake, 0, 10)
    code = (
        "import sys; from holdfast.spark.lake import Lake, reading\n"
        "chosen = reading.Chosen(sys.argv[1])\n"
        "print(sum(b.num_rows for t in reading.plan(chosen) for b in reading.read(chosen, t, ['id'])))"
    )
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code, lake.text], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout.strip()) == (0, "10"), done.stderr
