"""Kills on az://, through Azurite: the short form of `kill`."""

from __future__ import annotations

import msgspec
import pytest

from chaos.runs import RUNS
from chaos.runs.kill import kill
from chaos.verdict import lines


@pytest.mark.timeout(180)
async def test_workers_and_producers_are_killed() -> None:
    [short] = [run.short for run in RUNS if run.name == "kill"]
    settings = msgspec.structs.replace(
        short, store="azure", messages=80, kills=2, producer_kills=1, lease=4.0, work=0.4
    )
    verdict = await kill(settings)
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.acknowledged > 0
