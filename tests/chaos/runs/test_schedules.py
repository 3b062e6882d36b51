"""Schedules whose processes are killed: the short form of `schedules`, on every store that several processes share."""

from __future__ import annotations

import msgspec
import pytest

from chaos.runs import RUNS
from chaos.runs.schedules import STORES, schedules
from chaos.verdict import lines


@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", [store for store in STORES if store != "file"])  # which test_runs.py has
async def test_every_slot_is_one_message(store: str) -> None:
    [short] = [run.short for run in RUNS if run.name == "schedules"]
    verdict = await schedules(msgspec.structs.replace(short, store=store))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.acknowledged > 0
