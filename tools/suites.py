"""Run test suites that others wrote on our stores: download their sources from PyPI, run them, write the table.

make suites                  all of them, on every store
make suites ARGS="-k file"   some: what follows goes to pytest; the table is left as it is
make suites ARGS=spark       our own tests on Spark Connect, Declarative Pipelines and the older PySpark alone
"""

import importlib.metadata
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import spark_suites

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "suites"
PAGE = ROOT / "docs" / "suites.md"
SUITES = {"kombu": "tests/suites/test_kombu.py"}  # by package: what runs it
STORES = ("memory", "file", "postgresql", "s3", "nats")
OUTCOME = re.compile(r"^tests/\S+?(?:\[(?P<store>\w+)[^\]]*\])? (?P<outcome>PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b")
OUTCOMES = {"PASSED": "passed", "FAILED": "failed", "ERROR": "failed", "SKIPPED": "skipped", "XFAIL": "skipped"}
BEGIN, END = "<!-- made by make suites -->", "<!-- end -->"


def download(package: str) -> str:
    """Its source, of the version that is installed; which one that is."""
    version = importlib.metadata.version(package)
    if not (PLACE / f"{package}-{version}").exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        wanted = ["--no-deps", "--no-binary=:all:", f"--dest={PLACE}", f"{package}=={version}"]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
        with tarfile.open(PLACE / f"{package}-{version}.tar.gz") as archive:
            archive.extractall(PLACE, filter="data")
    return version


def run(package: str, arguments: list[str]) -> tuple[int, dict[str, Counter[str]]]:
    """The exit code of pytest, and by store how many tests passed, failed and were left out."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", SUITES[package], *arguments]
    counts: dict[str, Counter[str]] = {}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tests:
        for line in tests.stdout or ():
            print(line, end="", flush=True)
            if found := OUTCOME.match(line):
                counts.setdefault(found["store"] or "any", Counter())[OUTCOMES[found["outcome"]]] += 1
    return tests.returncode, counts


def main() -> None:
    arguments, worst, rows = sys.argv[1:], 0, list[str]()
    for package in SUITES:
        version = download(package)
        code, counts = run(package, arguments)
        worst = max(worst, code)
        for store in [each for each in (*STORES, "any") if each in counts]:
            count = counts[store]
            rows.append(
                f"| {package} {version} | {store} | {count['passed']} | {count['failed']} | {count['skipped']} |"
            )
    table = "\n".join(["| suite | store | passed | failed | skipped |", "|---|---|---|---|---|", *rows])
    print(table)
    if not arguments:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")
    sys.exit(worst if arguments else max(worst, spark_suites.main([])))


if __name__ == "__main__":
    if sys.argv[1:2] == ["spark"]:
        sys.exit(spark_suites.main(sys.argv[2:]))
    main()
