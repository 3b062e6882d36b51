"""A folder of Parquet files: what a killed writer left is finished or removed; of two at once the second is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.spark.lake import Change, LakeConflict
from holdfast.spark.lake.parquet import ParquetTable
from holdfast.spark.lake.place import Folder, open_place
from holdfast.spark.lake.typed import Layout
from holdfast.spark.lake.writing import Writer
from tests.spark.jobs.table_types import Order
from tests.spark.lake.test_typed import messages

LAYOUT = Layout(Order)


def staged(table: ParquetTable, writer: str, numbers: range) -> tuple[str, Any]:
    folder = table.staged(writer)
    made = Writer(table.place.below(folder), ())
    made.write(LAYOUT.made(messages([b'{"n": %d}' % number for number in numbers])).rows)
    return folder, tuple(made.close())


def added(table: ParquetTable, writer: str, number: int, numbers: range) -> int:
    base = table.state()
    folder, files = staged(table, writer, numbers)
    return table.commit(base, Change("WRITE", add=files, marks={writer: number}), folder=folder)


def numbers_in(folder: Path) -> list[int]:
    import polars

    found = sorted(folder.glob("*.parquet"))
    return sorted(n for path in found for n in polars.read_parquet(path)["n"])


class _Killed(Folder):
    """A place whose second move never happens."""

    moves = 0

    def move(self, name: str, new: str) -> None:
        self.moves += 1
        if self.moves > 1:
            raise KeyboardInterrupt
        super().move(name, new)


def test_commits_count_and_writers_share_a_folder(tmp_path: Path) -> None:
    table = ParquetTable(open_place(tmp_path), LAYOUT.spec)
    assert (table.state().version, table.state().mark("one")) == (-1, None)
    assert added(table, "one", 1, range(5)) == 0
    assert added(ParquetTable(open_place(tmp_path), LAYOUT.spec), "two", 1, range(5, 9)) == 1
    state = table.state()
    assert (state.version, state.mark("one"), state.mark("two"), state.mark("three")) == (1, 1, 1, None)
    assert numbers_in(tmp_path) == list(range(9))
    assert len(state.bounds("message_id")) == 2


def test_a_killed_move_is_finished_by_whoever_comes_next(tmp_path: Path) -> None:
    table = ParquetTable(_Killed(tmp_path), LAYOUT.spec)
    base, folder = table.state(), table.staged("one")
    files: list[Any] = []
    for numbers in (range(3), range(3, 6)):
        made = Writer(table.place.below(folder), ())
        made.write(LAYOUT.made(messages([b'{"n": %d}' % number for number in numbers])).rows)
        files += made.close()
    with pytest.raises(KeyboardInterrupt):
        table.commit(base, Change("WRITE", add=tuple(files), marks={"one": 1}), folder=folder)
    assert len(numbers_in(tmp_path)) == 3
    other = ParquetTable(open_place(tmp_path), LAYOUT.spec)
    assert other.state().mark("one") == 1
    assert numbers_in(tmp_path) == list(range(6))


def test_of_two_runs_of_one_writer_the_second_is_told(tmp_path: Path) -> None:
    table = ParquetTable(open_place(tmp_path), LAYOUT.spec)
    base = table.state()
    folder, files = staged(table, "one", range(4))
    assert added(ParquetTable(open_place(tmp_path), LAYOUT.spec), "one", 1, range(4)) == 0  # sweeps what we staged
    with pytest.raises(LakeConflict):
        table.commit(base, Change("WRITE", add=files, marks={"one": 1}), folder=folder)
    assert numbers_in(tmp_path) == list(range(4))
    # another writer's commit in between does no harm
    base = table.state()
    folder, files = staged(table, "one", range(4, 6))
    added(ParquetTable(open_place(tmp_path), LAYOUT.spec), "two", 1, range(6, 8))
    assert table.commit(base, Change("WRITE", add=files, marks={"one": 2}), folder=folder) == 2
    assert numbers_in(tmp_path) == list(range(8))
