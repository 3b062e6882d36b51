"""Keep what Java has loaded and checked of Spark, once, so that the tests' many drivers start in half the time.

The archive belongs to the environment: `tests/conftest.py` gives it to every driver. Java itself tells whether it
fits, and goes without it when it does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

PLACE = Path(sys.prefix) / f"holdfast-spark-{pyspark.__version__}.jsa"
_MINUTES = 5 * 60

# What most drivers do: a query, rows from Python, files written and read.
PROGRAM = """
import sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.sql.warehouse.dir", sys.argv[1]).config("spark.local.dir", sys.argv[1]).getOrCreate()
rows = spark.createDataFrame([(1, "a"), (2, "b")], "number int, letter string")
rows.groupBy("letter").count().write.parquet(sys.argv[1] + "/rows")
spark.read.parquet(sys.argv[1] + "/rows").collect()
spark.stop()
SparkContext._gateway.proc.stdin.close()
SparkContext._gateway.proc.wait()
"""


def make(place: Path) -> bool:
    """Whether it is there in the end; nobody depends on it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-spark-") as scratch:
        made = Path(scratch) / "new.jsa"
        options = f"-XX:ArchiveClassesAtExit={made} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds*=off"
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable}
        try:
            subprocess.run(
                [sys.executable, "-c", PROGRAM, f"{scratch}/data"],
                env=environment, check=True, capture_output=True, timeout=_MINUTES,
            )  # fmt: skip
            beside = place.with_suffix(".new")
            beside.write_bytes(made.read_bytes())
            beside.rename(place)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"no archive for Spark, its tests take longer: {error}", file=sys.stderr)
    return place.exists()


if __name__ == "__main__":
    if not PLACE.exists():
        make(PLACE)
