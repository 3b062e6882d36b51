"""`python -m chaos.spark.driver`: everything that is ready in one queue goes to another, and the program ends.

Started again on the same checkpoint it goes on where it was killed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

_HERE = Path(__file__).parents[2]
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD")


def scratch_home(folder: Path) -> Path:
    """A SPARK_HOME of links: a local cluster writes there, and the package is not ours to write to."""
    home = folder / "spark-home"
    home.mkdir(parents=True, exist_ok=True)
    for each in Path(pyspark.__file__).parent.iterdir():
        if not (home / each.name).exists():
            (home / each.name).symlink_to(each)
    return home


def session(master: str, scratch: Path) -> SparkSession:
    """A small session, quick to start; its executors find this checkout."""
    path = os.pathsep.join([str(_HERE / "src"), str(_HERE), os.environ.get("PYTHONPATH", "")])
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path, "SPARK_HOME": str(scratch_home(scratch))}
    made = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "1g")
        .config("spark.task.maxFailures", "8")
        .config("spark.speculation", "true")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.executorEnv.PYTHONPATH", path)
    )
    for name in _SECRETS:
        if name in os.environ:
            made = made.config(f"spark.executorEnv.{name}", os.environ[name])
    spark = made.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m chaos.spark.driver", description=__doc__)
    for name in ("url", "source", "target", "checkpoint", "scratch"):
        made.add_argument(f"--{name}", required=True)
    made.add_argument("--target-url", help="another store than that of the source")
    made.add_argument("--consumer", default="etl")
    made.add_argument("--master", default="local[2,4]")
    made.add_argument("--limit", default="10000", help="messages of one batch")
    made.add_argument("--kill-at", default="")
    return made


def main() -> int:
    from .killing import KillingSource

    asked = parser().parse_args()
    spark = session(asked.master, Path(asked.scratch))
    spark.dataSource.register(KillingSource)
    fault = {
        "killAt": asked.kill_at,
        "killMarker": str(Path(asked.scratch) / f"killed-{asked.kill_at.replace(' ', '-')}"),
    }
    reading = spark.readStream.format("killing").option("url", asked.url).option("consumer", asked.consumer)
    reading = reading.option("maxMessagesPerTrigger", asked.limit).option("minPartitions", 2)
    reading = reading.option("maxBatchAttempts", 20).option("ownerLease", 5)
    writing = reading.options(**fault).load(asked.source).writeStream.format("killing")
    writing = writing.option("url", asked.target_url or asked.url)
    writing = writing.options(**fault).option("checkpointLocation", asked.checkpoint)
    query = writing.trigger(availableNow=True).start(asked.target)
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
