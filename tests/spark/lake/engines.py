"""What other programs count in a table of a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.spark.lake import Lake
from holdfast.spark.lake.delta import opened
from holdfast.spark.lake.place import Place


def counts(lake: Lake, table: str = "messages") -> dict[str, tuple[int, int]]:
    """Rows and different ids, by engine: all of them should say the same."""
    return counts_of(lake.table(table).place, "id")


def counts_of(place: Place, id: str) -> dict[str, tuple[int, int]]:
    """The same of any Delta table; `id` is the column that says which message a row is of."""
    import duckdb
    import polars

    by_polars = polars.scan_delta(place.shown, storage_options=place.storage).select(id).collect()[id]
    delta: Any = opened(place)
    dataset = delta.to_pyarrow_dataset()
    counted: Any = duckdb.sql(f"select count(*), count(distinct {id}) from dataset")
    by_duckdb = counted.fetchall()[0]
    by_arrow = dataset.to_table(columns=[id])[id]
    by_pandas = dataset.to_table(columns=[id]).to_pandas()[id]
    return {
        "polars": (by_polars.len(), by_polars.n_unique()),
        "duckdb": (int(by_duckdb[0]), int(by_duckdb[1])),
        "pyarrow": (len(by_arrow), len(by_arrow.unique())),
        "pandas": (len(by_pandas), int(by_pandas.nunique())),
    }


def same(lake: Lake, table: str = "messages") -> tuple[int, int]:
    """The rows and ids that every engine finds."""
    found = counts(lake, table)
    assert len(set(found.values())) == 1, found
    return found["polars"]


def log_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "_delta_log").glob("*.json"))
