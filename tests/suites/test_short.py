"""The short form of Celery's and persist-queue's suites, on a folder; `make suites` runs the whole of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.running import SUITES, Suite, run

SHORT = [suite for suite in SUITES.values() if suite.short and suite.name != "kombu"]  # kombu's is in test_kombu.py


@pytest.mark.timeout(240)
@pytest.mark.parametrize("suite", SHORT, ids=lambda suite: suite.name)
def test_some_tests_of_others_pass(suite: Suite, tmp_path: Path) -> None:
    outcome = run(suite, "file", tmp_path / "report.json", tests=suite.short)
    assert (outcome.code, outcome.failed, outcome.skipped) == (0, [], [])
    assert outcome.passed == len(suite.short)
