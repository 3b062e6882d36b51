"""The plugin of pytest in the source of a suite: puts ours in place of theirs, leaves out what cannot be, and counts.

It is imported before any module of the suite, so what they import afterwards is ours.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.suites.left_out import LEFT_OUT

SUITE = os.environ["SUITE"]
TIMEOUT_S = 180.0  # of a test that sets none itself

pytest_plugins = [] if SUITE == "kombu" else [f"tests.suites.on_{SUITE.replace('-', '_')}"]


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout, which looks then
def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("timeout"):
        config.option.timeout = TIMEOUT_S


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = lambda item: f"{item.nodeid.partition('[')[0]}::"  # noqa: E731 - without its parameters
    out = [item for item in items if any(f"{part}::" in named(item) for part in LEFT_OUT[SUITE])]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in set(out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    named = lambda *words: sorted({report.nodeid for word in words for report in stats.get(word, [])})  # noqa: E731
    again = named("rerun")  # as the suite's own marks have it: the parts of an attempt before do not count
    failed = sorted({*named("failed", "error"), *(each for each in named("subtests failed") if each not in again)})
    skipped = {report.nodeid: _reason(report) for word in ("skipped", "xfailed") for report in stats.get(word, [])}
    passed = [each for each in named("passed", "xpassed") if each not in failed and each not in skipped]
    report = {
        "passed": len(passed),
        "again": [each for each in again if each in passed],
        "failed": failed,
        "skipped": sorted(f"{name}: {reason}" for name, reason in skipped.items()),
        "left_out": len(stats.get("deselected", [])),
    }
    Path(os.environ["SUITE_REPORT"]).write_text(json.dumps(report))


def _reason(report: pytest.TestReport) -> str:
    known = getattr(report, "wasxfail", None)
    if known is not None:
        return str(known)
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
