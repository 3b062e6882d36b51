"""`python -m benchmarks.spark`: rounds in turn, medians, ratios. One session, on this machine."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from .sides import Bench, Round

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM = 10_000
BARS = (
    ("stream", "parquet_stream", 0.5),
    ("stream_at_once", "parquet_batch", 0.5),
    ("stream", "parquet_batch", None),
    ("stream_rows", "parquet_stream", None),
    ("stream_archived", "parquet_stream", None),
    ("batch", "parquet_batch", None),
    ("batch_rows", "parquet_batch", None),
    ("sink", "parquet_sink", 0.5),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    made.add_argument("--count", type=int, default=1_000_000)
    made.add_argument("--size", type=int, default=1024)
    made.add_argument("--trigger", type=int, default=200_000, help="messages of one micro-batch")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--master", default="local[2]")
    made.add_argument("--folder", type=Path, help="on the disk that is to be measured; else a temporary one")
    made.add_argument("--json", type=Path, help="write everything here")
    return made


def rounds(bench: Bench, repeats: int) -> list[Round]:
    if bench.count > _WARM:  # processes start, code is compiled
        warm = Bench(bench.spark, bench.folder / "warm", count=_WARM, size=bench.size, trigger=_WARM)
        warm.prepare()
        warm.round()
    bench.prepare()
    found = []
    for number in range(repeats):
        found.append(bench.round())
        sys.stderr.write(f"round {number + 1} of {repeats}\n")
    return found


def lines(found: list[Round]) -> list[str]:
    """One row a side, then the ratios: medians of the ratios of each round."""
    told = [f"{'rows a second':20}{'median':>12}{'low':>12}{'high':>12}"]
    for name in sorted({name for *pair, _ in BARS for name in pair}, key=Round.__struct_fields__.index):
        rates = [getattr(one, name) for one in found]
        told.append(f"{name.replace('_', ' '):20}{median(rates):>12,.0f}{min(rates):>12,.0f}{max(rates):>12,.0f}")
    for ours, theirs, bar in BARS:
        ratio = median(getattr(one, ours) / getattr(one, theirs) for one in found)
        judged = "" if bar is None else f", bar {bar} ×: {'ok' if ratio >= bar else 'below'}"
        told.append(f"{ours.replace('_', ' ')} against {theirs.replace('_', ' ')}: {ratio:.2f} ×{judged}")
    at_end = median(one.archived_at_end for one in found)
    told.append(f"stream archived: {at_end:.0%} of the messages were in the archive's files when the query ended")
    return told


def session(master: str, folder: Path) -> SparkSession:
    """One that knows the format, and leaves nothing outside of the folder."""
    from pyspark.sql import SparkSession

    from holdfast.spark import register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def main() -> None:
    asked = parser().parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=asked.folder))
    spark = session(asked.master, folder)
    try:
        found = rounds(Bench(spark, folder, count=asked.count, size=asked.size, trigger=asked.trigger), asked.repeats)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write("\n".join(lines(found)) + "\n")
    if asked.json:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))


if __name__ == "__main__":
    main()
