"""One Spark session for each test module, without UI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.jobs.session import session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    here = str(Path(__file__).parent)
    if here not in os.environ.get("PYTHONPATH", "").split(os.pathsep):  # executors import what tests define
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    made = session("local[2,3]", {"spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF"})
    yield made
    made.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM on a busy machine needs more than the usual minute to start."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(240))
