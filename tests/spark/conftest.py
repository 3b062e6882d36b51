"""One Spark session per process, started by the first test that needs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from servers.s3 import LIMITED

SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session", autouse=True)
def keys():
    """Where Spark's processes find the keys of the test bucket; set before any of them starts."""
    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = LIMITED


@pytest.fixture(scope="session")
def spark(keys, tmp_path_factory):
    """A session with two lanes in which a failed task is tried three times."""
    from pyspark.sql import SparkSession

    import holdfast.spark

    scratch = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    found = (str(SOURCES), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(found)
    session = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.memory", "1g")
        # Tests run everything once: what makes long jobs fast only makes them slow.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    holdfast.spark.register(session)
    yield session
    session.stop()
