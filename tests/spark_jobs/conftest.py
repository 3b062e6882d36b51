"""One Spark session for the tests of the jobs, without UI; the one that runs already, if there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.jobs.session import session

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    was_running = SparkSession.getActiveSession() is not None
    scratch = str(tmp_path_factory.mktemp("spark"))
    conf = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF", "spark.local.dir": scratch}
    made = session("local[2,3]", {**conf, "spark.sql.warehouse.dir": f"{scratch}/warehouse"})
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
