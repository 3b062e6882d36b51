"""The run on a full disk must betray a store that answers wrongly there; and it runs where nothing can be mounted."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.disk.judging import Full, judge
from chaos.disk.small import small_disk
from chaos.history import Acknowledged, Found, Refused, Settled
from chaos.runs import RUNS
from chaos.verdict import Verdict

ACKNOWLEDGED = Acknowledged(3.0, "p/2", "b")
COMPLETED = Settled(3.1, 3.2, "b", "t", "complete", "ok")


def refused(*, at: float = 1.5, call: str = "append", error: str = "Unavailable", text: str = "is full") -> Refused:
    return Refused(1.2, at, call, error, text, ["p/1"] if call == "append" else [])


def judged(*events: Refused | Found, sure: bool = True) -> Verdict:
    verdict = Verdict()
    histories = {"p": [*events, ACKNOWLEDGED, COMPLETED]}
    judge(verdict, histories, [Full(1.0, 2.0)], deadline=5.0, refused_is_nothing=sure)
    return verdict


def test_a_clear_refusal_is_what_should_be() -> None:
    verdict = judged(refused(), refused(call="claim", at=1.9))
    assert verdict.failures == []
    assert verdict.notes["times full that hit a call"] == 1
    assert verdict.notes["first acknowledgement after, seconds at most"] == 1.0


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (refused(at=0.5), "never felt"),
        (refused(error="FullError"), "not Unavailable: FullError"),
        (refused(text="something went wrong"), "without a reason"),
        (refused(at=8.0), "after the deadline"),
    ],
)
def test_each_wrong_answer_is_found_out(event: Refused, words: str) -> None:
    assert words in " ".join(judged(event).failures)


def test_a_refused_append_that_took_effect_is_found_out() -> None:
    found = Found("a", "p/1", 0, "completed", 1)
    assert "took effect" in " ".join(judged(refused(), found).failures)
    assert judged(refused(), found, sure=False).failures == []
    assert judged(refused(text="is full; whether it took effect is unknown"), found).failures == []


_WRITES = """
import sys, time
from chaos.disk.small import limit_while, write_anyway
folder, flag = sys.argv[1:]
if flag:
    limit_while(flag)
with open(folder + "/file", "ab", buffering=0) as file:
    while True:
        try:
            file.write(bytes(4096))
        except OSError as error:
            if flag:
                write_anyway(file.fileno(), b"anyway")
            sys.exit(error.errno)
        time.sleep(0.001)
"""


@pytest.mark.parametrize("mounts", [True, False], ids=["the best there is", "limits"])
def test_a_full_disk_takes_nothing(tmp_path: Path, mounts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not mounts:
        monkeypatch.setattr("chaos.disk.small._works", lambda *command: False)
    with small_disk(tmp_path, 4 << 20) as small:
        small.folder.mkdir()
        small.fill(leave=64 << 10)
        writer = [sys.executable, "-c", _WRITES, str(small.folder), small.flag]
        done = subprocess.run(writer, timeout=30, check=False)
        assert done.returncode == (errno.EFBIG if small.flag else errno.ENOSPC)
        if small.flag:
            assert (small.folder / "file").read_bytes().endswith(b"anyway")
        small.free()
        (small.folder / "other").write_bytes(bytes(1 << 20))


@pytest.mark.timeout(120)
async def test_it_runs_where_nothing_can_be_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = (run for run in RUNS if run.id == "R9")
    monkeypatch.setattr("chaos.disk.small._works", lambda *command: False)
    verdict = await run.program(run.short)
    assert verdict.valid, verdict
    assert verdict.notes["disk"] == "limits of the processes"
