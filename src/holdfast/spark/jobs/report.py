"""`holdfast pipeline report`: what a lake says about its queues, as tables, JSON and one page."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...messages import instant
from ..options import check_url
from ..report.figures import Figures, Latency
from ..report.measure import measure
from .lake import opened
from .now import store_of
from .progress import Tell, silent, tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE, FIGURES = "report.html", "report.json"


class ReportSummary(msgspec.Struct, frozen=True):
    """What a run of `report` wrote."""

    page: str
    tables: list[str]
    messages: int
    queues: int
    seconds: float


def report(
    spark: SparkSession,
    lake: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    queues: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    url: str | None = None,
    payloads: bool = True,
    tell: Tell = silent,
) -> ReportSummary:
    """Measure what finished from `since` until before `until`; write `report.html`, `report.json` and `tables/`.

    With a `since` it is compared with as long a time before. The store at `url`, or of the environment, says what waits
    now. `payloads=False` leaves out the payloads of samples.
    """
    check_url(url)
    started = time.monotonic()
    place, state = opened(lake)
    bounds = [
        None if moment is None else instant(name, moment) for name, moment in (("since", since), ("until", until))
    ]
    with tasks(spark, "report: measuring", tell):
        figures = measure(
            spark,
            place,
            state.version,
            queues=queues or None,
            since=bounds[0],
            until=bounds[1],
            store=store_of(spark, url),
            payloads=payloads,
        )
    folder = Path(out)
    written = write(figures, folder)
    took = time.monotonic() - started
    return ReportSummary(str(folder / PAGE), written, figures.ended, len(figures.queues), took)


def write(figures: Figures, folder: Path) -> list[str]:
    """The page, the figures as JSON, and each table as Parquet; the tables' paths."""
    from ..report.page import page

    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(page(figures), encoding="utf-8")
    (folder / FIGURES).write_bytes(msgspec.json.format(msgspec.json.encode(_without_sketches(figures)), indent=1))
    return [
        _write_table(folder / "tables" / f"{name}.parquet", kind, rows)
        for name, (kind, rows) in figures.tables().items()
    ]


def _write_table(path: Path, kind: type[msgspec.Struct], rows: Sequence[msgspec.Struct]) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {int: pa.int64(), float: pa.float64(), float | None: pa.float64(), bytes: pa.binary()}
    schema = pa.schema([(one.name, kinds.get(one.type, pa.string())) for one in msgspec.structs.fields(kind)])
    made = pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], schema=schema)
    pq.write_table(made, path, compression="zstd")
    return str(path)


def _without_sketches(figures: Figures) -> Figures:
    """The sketches are for programs, in tables/latency.parquet."""
    plain: list[Latency] = [msgspec.structs.replace(one, sketch=b"") for one in figures.latency]
    return msgspec.structs.replace(figures, latency=plain)
