"""One Spark session per process, without UI, started by the first test that needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast.spark
from holdfast.spark.jobs.session import session
from tests import ROOT
from tests.servers.s3 import LIMITED

HERE = Path(__file__).parent
REMOTE = os.environ.get("SPARK_REMOTE")


# Tests run everything once: what makes long jobs fast only makes them slow.
FOR_SMALL_JOBS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
}


@pytest.fixture(scope="session", autouse=True)
def keys() -> None:
    """Where Spark's processes find the keys of the test bucket; set before any of them starts."""
    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = LIMITED


@pytest.fixture(scope="session")
def spark(keys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two lanes in which a failed task is tried three times."""
    scratch = str(tmp_path_factory.mktemp("spark"))
    places = {"spark.local.dir": scratch, "spark.sql.warehouse.dir": f"{scratch}/warehouse"}
    # Executors, and Spark's planner of reads, import what tests define.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    # tools/spark_suites.py says so: the same tests with Spark Connect.
    made = session() if REMOTE else session("local[2,3]", {**FOR_SMALL_JOBS, **places})
    holdfast.spark.register(made)
    yield made
    made.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM on a busy machine needs more than a minute, and a test that is cut off breaks the session of the rest."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))
