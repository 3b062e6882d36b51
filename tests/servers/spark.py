"""For tests of jobs: a Spark cluster of real executor processes on this machine, and what ends one of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTOR = b"CoarseGrainedExecutorBackend"


def local_cluster(folder: Path, *, executors: int = 2, paths: Sequence[str] = (), memory: int = 1024) -> SparkSession:
    """A session on `local-cluster`: each executor is a process of its own, with one core.

    `paths` are put on the executors' `PYTHONPATH`. To be called once in a process, before any other session.
    """
    home = spark_home(folder)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from holdfast.spark.jobs.session import session

    conf = {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(paths),
        "spark.driver.memory": "512m",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "20",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.excludeOnFailure.enabled": "false",
    }
    return session(f"local-cluster[{executors},1,{memory}]", conf)


def spark_home(folder: Path) -> Path:
    """A Spark of symlinks: the cluster writes into `work/` beside the jars, which may not be ours to write to."""
    import pyspark

    home, real = folder / "spark-home", Path(pyspark.__file__).parent
    (home / "work").mkdir(parents=True, exist_ok=True)
    for entry in real.iterdir():
        link = home / entry.name
        if entry.name != "work" and not link.exists():
            link.symlink_to(entry)
    return home


def executor_pids(driver: int) -> list[int]:
    """The executor processes of the cluster that a process has started, oldest first (Linux)."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):  # it has just ended
                continue
    return sorted(pid for pid in parents if _descends(pid, driver, parents) and _is_executor(pid))


def kill_executor(driver: int) -> int | None:
    """SIGKILL to the oldest executor of a driver; its process id, or None when there is none."""
    for pid in executor_pids(driver):
        os.kill(pid, signal.SIGKILL)
        return pid
    return None


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if parents[pid] == ancestor:
            return True
        pid = parents[pid]
    return False


def _is_executor(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return command[0].endswith(b"java") and any(_EXECUTOR in part for part in command)
