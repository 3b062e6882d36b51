"""The short form of the run `frozen` on every store but a folder, which is one of `test_chaos.py`'s; and that it finds
what it looks for."""

from __future__ import annotations

from importlib import import_module

import msgspec
import pytest

from chaos.runs import RUNS
from chaos.verdict import lines
from holdfast.stores.log.folder.commit_thread import Lane

frozen_run = import_module("chaos.runs.frozen")  # the name in the package is the function's
[SHORT] = [run.short for run in RUNS if run.name == "frozen"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("store", "fault"),
    [
        ("postgres", "slow"),
        ("postgres", "stopped"),
        ("s3", "stopped"),
        ("slatedb", "stopped"),
        pytest.param("nats", "stopped", marks=pytest.mark.xfail(strict=False, reason="calls on NATS may end late")),
    ],
)
async def test_short_form(store: str, fault: str) -> None:
    verdict = await frozen_run.frozen(msgspec.structs.replace(SHORT, store=store, fault=fault))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.effective_kills > 20  # calls that were hit


@pytest.mark.timeout(120)
async def test_a_call_that_ends_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Lane.submit

    def late(self: Lane, step: object, *, deadline: float, **more: object) -> object:
        return submit(self, step, deadline=deadline + 2.0, **more)

    monkeypatch.setattr(Lane, "submit", late)
    verdict = await frozen_run.frozen(SHORT)
    assert any("after its timeout" in failure for failure in verdict.failures)
    assert not verdict.valid


@pytest.mark.timeout(120)
async def test_a_wrong_error_and_a_lost_message_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgotten(*_: object) -> None:
        return None

    monkeypatch.setattr(frozen_run, "_status", forgotten)
    monkeypatch.setattr(frozen_run, "_AWAY", ())
    verdict = await frozen_run.frozen(SHORT)
    assert verdict.lost > 0
    assert any("enqueue: Unavailable" in failure for failure in verdict.failures)
