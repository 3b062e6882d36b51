"""Our own Spark tests where `make test` does not go: Spark Connect, Declarative Pipelines, the older PySpark; and SQL.

make suites ARGS=spark                       all of them, and the table in docs/guide/spark.md
python tools/spark_suites.py connect -k lake   one; what follows goes to pytest, and the table is left as it is

Each has an environment under build/spark with what it needs on top of .venv, pinned in requirements/.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import installing

ROOT = installing.ROOT
PLACE = ROOT / "build" / "spark"
PAGE = ROOT / "docs" / "guide" / "spark.md"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_S = 180.0  # a JVM and Spark on a busy machine
BEGIN, END = "<!-- made by make suites -->", "<!-- end -->"
COUNTED = re.compile(r"(\d+) (passed|failed|error|skipped)")


class Suite(NamedTuple):
    """What is run, on which packages; `connects`: against a server of Spark Connect."""

    name: str
    pinned: str
    tests: tuple[str, ...]
    connects: bool = False


SUITES = {
    "connect": Suite(
        "Spark Connect",
        "spark-connect",
        ("tests/spark/jobs", "tests/spark/test_connect.py", "tests/spark/test_sql.py"),
        connects=True,
    ),
    "pipelines": Suite("Declarative Pipelines", "spark-connect", ("tests/spark/test_pipelines.py",)),
    "sql": Suite("SQL views", "spark-connect", ("tests/spark/test_sql.py",)),
    "4.2": Suite("PySpark 4.2", "spark-4.2", ("tests/spark",)),
}


def environment(suite: Suite) -> Path:
    """The Python of a suite: its own packages first, then those of this environment."""
    place = PLACE / suite.pinned
    python, stamp, wanted = place / "bin" / "python", place / "pinned", f"requirements/{suite.pinned}.txt"
    if not stamp.exists() or stamp.read_text() != (ROOT / wanted).read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        if installing.install(str(python), "--no-deps", "--require-hashes", "-r", wanted):
            sys.exit(f"cannot install {wanted}: this needs a network")
        ours, below = (_packages(each) for each in (str(python), sys.executable))
        Path(ours, "below.pth").write_text(f"import site; site.addsitedir({below!r})\n")
        stamp.write_text((ROOT / wanted).read_text())
    return python


def _packages(python: str) -> str:
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def server(python: Path, variables: dict[str, str]) -> Iterator[str]:
    """A server of Spark Connect, by its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bound = ("spark.connect.grpc.binding.address=127.0.0.1", f"spark.connect.grpc.binding.port={port}")
    small = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    own = (f"spark.sql.warehouse.dir={PLACE}/warehouse", "spark.sql.shuffle.partitions=2", "spark.ui.enabled=false")
    settings = [part for each in (*bound, *own, small) for part in ("--conf", each)]
    main = "from pyspark.find_spark_home import _find_spark_home; print(_find_spark_home())"
    home = subprocess.run([python, "-c", main], capture_output=True, text=True, check=True).stdout.strip()
    command = [f"{home}/bin/spark-submit", "--master", "local[2,3]", "--class", SERVER, *settings, "spark-internal"]
    with (
        Path(PLACE, "server.log").open("w") as log,
        subprocess.Popen(command, env=variables, stdout=log, stderr=log) as process,
    ):
        try:
            _wait_for(port, process)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    sys.exit(f"the server of Spark Connect did not start; see {PLACE}/server.log")


def run(suite: Suite, arguments: list[str]) -> tuple[int, dict[str, int], float]:
    """The exit code of pytest, how many tests passed, failed and were left out, and the seconds it took."""
    python, started = environment(suite), time.monotonic()
    # The servers' workers import what tests define, and have the keys of the test bucket.
    sys.path.insert(0, str(ROOT))
    from tests.servers.s3 import LIMITED

    keys = dict(zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), LIMITED, strict=True))
    places = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": str(python),
        "PATH": os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)]),  # servers of other packages
    }
    variables = {**os.environ, **keys, **places, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(python), "-m", "pytest", "-v", "-p", "no:xdist", *suite.tests, *arguments]
    if not suite.connects:
        code, counts = _tested(command, variables)
    else:
        with server(python, variables) as url:
            code, counts = _tested(command, {**variables, "SPARK_REMOTE": url})
    return code, counts, time.monotonic() - started


def _tested(command: list[str], variables: dict[str, str]) -> tuple[int, dict[str, int]]:
    last = ""
    with subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True) as tests:
        for line in tests.stdout or ():
            print(line, end="", flush=True)
            last = line if COUNTED.search(line) else last
    return tests.returncode, {what: int(count) for count, what in COUNTED.findall(last)}


def main(arguments: list[str]) -> int:
    names = [each for each in arguments[:1] if each in SUITES] or list(SUITES)
    rest = arguments[1:] if arguments[:1] == names else arguments
    worst, rows = 0, ["| suite | passed | failed | skipped | seconds |", "|---|---|---|---|---|"]
    for name in names:
        code, counts, took = run(SUITES[name], rest)
        worst = max(worst, code)
        failed = counts.get("failed", 0) + counts.get("error", 0)
        rows.append(
            f"| {SUITES[name].name} | {counts.get('passed', 0)} | {failed} | {counts.get('skipped', 0)} | {took:.0f} |"
        )
    print("\n".join(rows))
    if not rest and len(names) == len(SUITES):
        before, _, after = PAGE.read_text().partition(BEGIN)
        table = "\n".join([*rows, "", f"Run on {datetime.now(UTC).date()}."])
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after.partition(END)[2]}")
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
