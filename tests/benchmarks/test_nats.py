"""A tiny form of the benchmark, so that it never rots."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.nats import __main__ as program
from benchmarks.nats.__main__ import lines, parser, peers, taskiq
from benchmarks.nats.sides import Figures, ours, raw
from tests.servers.nats import Server


async def test_both_sides_run_and_are_told() -> None:
    with Server() as server:
        found = {"Holdfast": [await ours(server.url, 50, 64)], "raw nats-py": [await raw(server.url, 50, 64)]}
    told = "\n".join(lines(found))
    assert "publish against raw nats-py" in told
    assert "drain against raw nats-py" in told


def test_bars_are_judged_by_medians() -> None:
    fast, slow = Figures(100, 100, 300, 10), Figures(50, 50)
    told = "\n".join(lines({"Holdfast": [fast], "raw nats-py": [slow], "taskiq-nats": [slow]}))
    assert told.count(": ok") == 3
    assert "nan" in told
    assert not math.isnan(fast.publish)


def test_the_peers_environment_is_made_from_its_own_pinned_list(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Path] = []

    def made(path: Path) -> Path:  # making it needs the network
        pinned.append(path)
        return Path("made/bin/python")

    monkeypatch.setattr(program, "peers_python", made)
    assert peers(parser().parse_args([])) == Path("made/bin/python")
    [path] = pinned
    assert path.name == "peers-nats.txt"
    assert "taskiq-nats==" in path.read_text()
    assert "--hash=sha256:" in path.read_text()
    assert peers(parser().parse_args(["--peers-python", "/own/python"])) == Path("/own/python")
    assert peers(parser().parse_args(["--no-peers"])) is None
    assert len(pinned) == 1


def interpreter(folder: Path, body: str) -> Path:
    """What stands for the Python of the peers: it is given the program, the URL, the count and the size."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_peer_is_a_program_that_answers_with_one_line(tmp_path: Path) -> None:
    python = interpreter(tmp_path, 'echo noise; echo "{\\"publish\\": $3, \\"drain\\": $4}"; test -f "$1"')
    assert taskiq(python, "nats://x", 50, 64) == Figures(50, 64)


def test_a_peer_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no server"):
        taskiq(interpreter(tmp_path, "echo no server >&2; exit 1"), "nats://x", 50, 64)


def test_the_whole_program_without_peers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    given = ["bench", "--count", "20", "--size", "16", "--repeats", "1", "--no-peers", "--json", str(path)]
    monkeypatch.setattr("sys.argv", given)
    program.main()
    assert "drain against raw nats-py" in capsys.readouterr().out
    assert set(json.loads(path.read_text())) == {"Holdfast", "raw nats-py"}
