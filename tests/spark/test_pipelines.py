"""The example of Declarative Pipelines: runs by tools/spark_suites.py, whose environment has what they need."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import holdfast
from tests import ROOT

EXAMPLE = ROOT / "examples" / "spark" / "pipeline"
RUN_S = 200  # two of them, each a server of its own

pytestmark = [
    pytest.mark.timeout(2 * RUN_S),
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="tools/spark_suites.py has the packages"),
]


class Pipeline:
    """The example, with everything it keeps in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, (folder / "store").as_uri()
        conf = {
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.catalogImplementation": "hive",  # what the first run made is there for the second
            "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
        shutil.copytree(EXAMPLE / "transformations", folder / "transformations")
        spec = (EXAMPLE / "spark-pipeline.yml").read_text()
        kept = (folder / "checkpoints").as_uri()
        (folder / "spark-pipeline.yml").write_text(re.sub("(?m)^storage: .*$", f"storage: {kept}", spec))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        import pyspark

        program = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
        command = [str(program), "run", "--spec", str(self.folder / "spark-pipeline.yml"), *arguments]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        own = {
            "SPARK_CONF_DIR": str(self.folder),
            "STORE": self.url,
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        home = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        return subprocess.run(
            command, env={**os.environ, **own, **home}, capture_output=True, text=True, timeout=RUN_S, check=False
        )

    def add(self, *amounts: float) -> None:
        with holdfast.sync.connect(self.url) as broker:
            queue = broker.queue("orders")
            queue.enqueue_many([{"country": f"c{place % 2}", "amount": each} for place, each in enumerate(amounts)])

    def rows(self, table: str) -> list[dict[str, object]]:
        return ds.dataset(self.folder / "warehouse" / table, format="parquet").to_table().to_pylist()


def test_a_queue_as_tables(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.add(1.0, 2.0, 3.0, 10.0)
    first = pipeline.run()
    assert first.returncode == 0, first.stdout[-3000:] + first.stderr[-3000:]
    assert sorted(row["amount"] for row in pipeline.rows("orders")) == [1.0, 2.0, 3.0, 10.0]
    sums = {row["country"]: (row["orders"], row["sum"]) for row in pipeline.rows("by_country")}
    assert sums == {"c0": (2, 4.0), "c1": (2, 12.0)}
    pipeline.add(5.0)
    second = pipeline.run("--full-refresh-all")
    assert second.returncode != 0
    assert "the checkpoint is new, and consumer 'orders'" in second.stdout + second.stderr
    with holdfast.sync.connect(pipeline.url) as broker:
        assert broker.queue("orders").stats().completed == 4, "the fifth stays in the queue"
