"""One Spark session for the tests of the jobs, without UI; the one that runs already, if there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.jobs.session import session
from servers.s3 import LIMITED

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"


# Tests run everything once: what makes long jobs fast only makes them slow.
FOR_SMALL_JOBS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
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
    was_running = SparkSession.getActiveSession() is not None
    scratch = str(tmp_path_factory.mktemp("spark"))
    places = {"spark.local.dir": scratch, "spark.sql.warehouse.dir": f"{scratch}/warehouse"}
    made = session("local[2,3]", {**FOR_SMALL_JOBS, **places})
    # executors import what tests define
    made.sparkContext.environment["PYTHONPATH"] = os.pathsep.join([str(SOURCES), str(HERE)])
    yield made
    if not was_running:
        made.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM on a busy machine needs more than the usual minute to start."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(240))
