"""A run of pytest, and of what failed in it once more, alone; with what came of both.

Real processes and servers on a busy machine can miss a deadline. What fails twice fails; what needed its second run is
named, because a test that needs it more than rarely is a defect.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_FAILED = 1  # pytest's exit code; others are no verdict of tests, and a second run would not change them
_COUNTED = ("tests", "errors", "failures", "skipped")


class Outcome(NamedTuple):
    """Of both runs together."""

    name: str
    passed: int
    skipped: int
    again: tuple[str, ...]  # needed a second run
    failed: tuple[str, ...]  # in both runs
    code: int


class Suite:
    """Tests of one interpreter. `start`, then `outcome`, which runs what failed once more."""

    def __init__(
        self,
        name: str,
        pytest: list[str],
        chosen: list[str],
        *,
        folder: Path,
        env: Mapping[str, str],
        quiet: bool = False,
        root: Path = ROOT,
    ) -> None:
        self.name = name
        self._root = root
        self._pytest = [*pytest, "-o", f"cache_dir={folder / 'cache'}"]
        self._chosen = chosen
        self._folder = folder
        self._env = env
        self._quiet = quiet  # its first run is shown when it is over
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The first run, which forgets what failed in earlier ones."""
        self._folder.mkdir(parents=True, exist_ok=True)
        report = self._folder / "report.xml"
        report.unlink(missing_ok=True)
        command = [*self._pytest, "--cache-clear", f"--junitxml={report}", *self._chosen]
        with (self._folder / "output").open("wb") as output:
            shown = output if self._quiet else None
            self._running = subprocess.Popen(command, cwd=self._root, env=self._env, stdout=shown, stderr=shown)

    def wait(self) -> int:
        """For the end of the first run; pytest's exit code."""
        assert self._running is not None, "not started"
        code = self._running.wait()
        if self._quiet:
            print(f"\n{self.name}:\n{(self._folder / 'output').read_text(errors='replace')}", flush=True)
            self._quiet = False
        return code

    def outcome(self) -> Outcome:
        """After the first run; what failed runs once more, by itself and one after the other."""
        code = self.wait()
        counts = counted(self._folder / "report.xml")
        again = self._last_failed() if code == _FAILED else ()
        failed: tuple[str, ...] = ()
        if again:
            print(f"\nonce more, alone: {len(again)} tests {self._of()}".rstrip(), flush=True)
            code = subprocess.run([*self._pytest, *again], cwd=self._root, env=self._env, check=False).returncode
            failed = self._last_failed() if code == _FAILED else ()
        passed = counts["tests"] - counts["skipped"] - counts["errors"] - counts["failures"]
        mended = len(again) - len(failed) if code in (0, _FAILED) else 0
        return Outcome(self.name, passed + mended, counts["skipped"], again, failed, code)

    def _of(self) -> str:
        return f"under {self.name}" if self.name else ""

    def _last_failed(self) -> tuple[str, ...]:
        path = self._folder / "cache" / "v" / "cache" / "lastfailed"
        return tuple(json.loads(path.read_text())) if path.exists() else ()

    def stop(self) -> None:
        """Whoever interrupts us interrupts the tests too."""
        if self._running is not None and self._running.poll() is None:
            self._running.terminate()
            self._running.wait()


def counted(report: Path) -> dict[str, int]:
    """What pytest counted, by its report; nothing where it wrote none."""
    head = re.search(r"<testsuite [^>]*>", report.read_text()) if report.exists() else None
    found = dict(re.findall(r'(\w+)="(\d+)"', head[0])) if head else {}
    return {name: int(found.get(name, 0)) for name in _COUNTED}


def last_line(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Counts of all, and by name what needed its second run."""
    passed, skipped = sum(one.passed for one in outcomes), sum(one.skipped for one in outcomes)
    failed = [_named(one.name, test) for one in outcomes for test in one.failed]
    again = [_named(one.name, test) for one in outcomes for test in one.again if test not in one.failed]
    broken = [f"{one.name or 'pytest'} ended with {one.code}" for one in outcomes if one.code and not one.failed]
    parts = [f"{passed:,} passed, {len(failed)} failed, {skipped} skipped in {seconds:.0f} s", *broken]
    if failed:
        parts.append(f"failed twice: {', '.join(failed)}")
    return "; ".join([*parts, f"second run: {', '.join(again) or 'none'}"])


def _named(name: str, test: str) -> str:
    return f"{test} ({name})" if name else test


def run(suites: Sequence[Suite]) -> int:
    """All of them at once; then what failed, when nothing else runs; then the last line. The exit code."""
    started = time.monotonic()
    try:
        for suite in suites:
            suite.start()
        for suite in suites:
            suite.wait()
        outcomes = [suite.outcome() for suite in suites]
    finally:
        for suite in suites:
            suite.stop()
    print(last_line(outcomes, time.monotonic() - started), flush=True)
    return 1 if any(one.code for one in outcomes) else 0
