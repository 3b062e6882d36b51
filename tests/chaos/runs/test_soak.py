"""The short form of the run `soak` on a server; that on a folder is one of `test_runs.py`'s. And what it judges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module

import msgspec
import pytest

from chaos.runs import RUNS
from chaos.soak.judging import Sample, failures, finding
from chaos.soak.machine import Yardstick
from chaos.verdict import lines

soak_run = import_module("chaos.runs.soak")  # the name in the package is the function's
[SHORT] = [run.short for run in RUNS if run.name == "soak"]


@pytest.mark.timeout(120)
async def test_short_form() -> None:
    verdict = await soak_run.soak(msgspec.structs.replace(SHORT, store="postgres"))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.completed > 100


def samples(**grows: float) -> list[Sample]:
    """Half an hour in which something grows by so much a minute."""
    return [
        Sample(
            at=second, memory=100 + grows.get("memory", 0.0) * second / 60 + (second % 7),
            handles=["a"] * (20 + int(grows.get("handles", 0.0) * second / 60)),
            claim_p99=0.01 + grows.get("p99", 0.0) * second / 60, sent=second, done=second,
            machine=0.004 + grows.get("machine", 0.0) * second / 60, left=[] if second == 1799 else None,
        )
        for second in range(1800)
    ]  # fmt: skip


def said(found: list[Sample]) -> list[str]:
    return failures(finding(found), found)


def test_what_is_steady_is_valid() -> None:
    assert said(samples()) == []
    assert said(samples(memory=0.9)) == []


def test_what_comes_and_goes_is_no_growth() -> None:
    peaks = [
        msgspec.structs.replace(
            each, memory=each.memory + 30 * (each.at % 60 > 20), handles=["a"] * (20 + (each.at % 90 < 80))
        )
        for each in samples()
    ]
    assert said(samples()[:1000] + peaks[1000:]) == []


def test_claims_are_judged_by_what_the_machine_can_do() -> None:
    assert said(samples(p99=0.02, machine=0.002)) == [], "both take longer: others keep it busy"
    [failure] = said(samples(p99=0.02, machine=0.00002))
    assert "claims took" in failure


async def test_the_yardstick_measures_the_machine() -> None:
    yardstick = Yardstick()
    measuring = asyncio.create_task(yardstick.measure())
    await asyncio.sleep(0.5)
    measuring.cancel()
    await asyncio.gather(measuring, return_exceptions=True)
    assert 0.0 < yardstick.p99() < 5.0
    assert yardstick.p99() == 0.0, "each sample has its own"


@pytest.mark.parametrize(
    ("grows", "sentence"),
    [
        ({"memory": 1.2}, "memory grew by 1.2"),
        ({"handles": 0.2}, "handles more"),
        ({"handles": 0.06}, "1 handles more"),
        ({"p99": 0.005}, "claims took"),
    ],
)
def test_what_grows_is_found(grows: dict[str, float], sentence: str) -> None:
    [failure] = said(samples(**grows))
    assert sentence in failure


def with_handles(count: Callable[[float], int], name: str) -> list[Sample]:
    return [msgspec.structs.replace(each, handles=["log"] + [name] * count(each.at)) for each in samples()]


def test_handles_that_are_more_are_named() -> None:
    assert said(with_handles(lambda at: 2 + (at > 900), "store/f")) == ["1 handles more in the end: store/f"]


def test_connections_of_a_pool_are_more_when_there_were_never_as_many() -> None:
    peer = "connection to 127.0.0.1:5432"
    assert said(with_handles(lambda at: 2 + (at > 700), peer)) == []
    assert said(with_handles(lambda at: 2 + (at > 1100), peer)) == [f"1 handles more in the end: {peer}"]


def test_a_handle_that_closing_does_not_give_back_is_found() -> None:
    """Also one connection that was lost below the most that the pool had."""
    found = with_handles(lambda at: 3 - (at > 900), "connection to 127.0.0.1:5432")
    found[-1] = msgspec.structs.replace(found[-1], left=["connection to 127.0.0.1:5432"])
    assert said(found) == ["1 handles left after closing: connection to 127.0.0.1:5432"]
    assert said(found[:-1]) == ["the broker was not closed"]


def test_seconds_without_a_claim_make_none_quicker() -> None:
    seldom = [
        msgspec.structs.replace(each, claim_p99=each.claim_p99 * (each.at % 4 == 0)) for each in samples(p99=0.005)
    ]
    [failure] = said(seldom)
    assert "claims took" in failure


def test_what_grew_in_the_warm_up_alone_is_not() -> None:
    found = [each if each.at < 500 else msgspec.structs.replace(each, memory=150.0) for each in samples(memory=6.0)]
    assert said(found) == []


def test_messages_that_did_not_end_are_found() -> None:
    found = samples()
    found[-1] = msgspec.structs.replace(found[-1], done=found[-1].sent - 3)
    assert said(found) == ["3 of 1799 messages did not end"]
