"""What a claim that waits costs a store in which nothing happens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import QueueNotFound
from holdfast.stores.log.store import LogStore

SHORT_S, WAIT_S = 0.1, 0.25  # of a poll interval, and of a wait that is longer


def counted(broker: holdfast.Broker, queue: str) -> list[Any]:
    """Grows by one with every transaction in which somebody claims."""
    assert isinstance(broker.store, LogStore)
    committer, asked = broker.store._log(queue).committer, list[Any]()
    real = committer.ask

    async def ask(*intents: Any, **how: Any) -> Any:
        asked.append(intents)
        return await real(*intents, **how)

    committer.ask = ask  # type: ignore[method-assign]  # counts what the real one is asked
    return asked


async def test_waits_one_after_the_other_claim_once(tmp_path: Path) -> None:
    """An idle worker's long polls: only the first looks, the others go on waiting."""
    async with holdfast.connect(tmp_path.as_uri(), poll_interval=SHORT_S) as broker:
        await broker.queue("idle")
        asked = counted(broker, "idle")
        for _ in range(10):
            assert not (await broker.store.claim("idle", 1, 30.0, wait=WAIT_S)).messages
        assert len(asked) <= 3, "one, and one more when the log is first looked at by whoever looks for all"


@pytest.mark.parametrize("is_told", [True, False])
async def test_what_comes_between_two_waits_is_found(tmp_path: Path, is_told: bool) -> None:
    """Also what nobody was told of: its process was killed before it could wake others."""
    async with (
        holdfast.connect(tmp_path.as_uri(), poll_interval=SHORT_S) as broker,
        holdfast.connect(tmp_path.as_uri(), poll_interval=SHORT_S) as other,
    ):
        await broker.queue("idle")
        queue = await other.queue("idle", int)
        for number in range(5):
            assert not (await broker.store.claim("idle", 1, 30.0, wait=WAIT_S)).messages
            if not is_told:
                other.store._space._wake.signal = lambda topics: None  # type: ignore[attr-defined]  # who was killed
            await queue.enqueue(number)
            began = time.monotonic()
            (found,) = (await broker.store.claim("idle", 1, 30.0, wait=20.0)).messages
            assert found.payload == str(number).encode()
            assert time.monotonic() - began < 10.0


async def test_a_delay_and_a_lease_that_end_are_found(tmp_path: Path) -> None:
    async with holdfast.connect(tmp_path.as_uri(), poll_interval=SHORT_S) as broker:
        queue = await broker.queue("idle", int)
        await queue.enqueue(1, delay=1.0)
        assert not (await broker.store.claim("idle", 1, 1.0, wait=WAIT_S)).messages
        assert len((await broker.store.claim("idle", 1, 1.0, wait=20.0)).messages) == 1
        assert not (await broker.store.claim("idle", 1, 30.0, wait=WAIT_S)).messages
        assert len((await broker.store.claim("idle", 1, 30.0, wait=20.0)).messages) == 1


async def test_a_claim_of_nothing_does_not_make_a_queue_empty(tmp_path: Path) -> None:
    async with holdfast.connect(tmp_path.as_uri(), poll_interval=SHORT_S) as broker:
        queue = await broker.queue("busy", int)
        await queue.enqueue(1)
        assert not (await broker.store.claim("busy", 0, 30.0, wait=WAIT_S)).messages
        assert len((await broker.store.claim("busy", 1, 30.0, wait=WAIT_S)).messages) == 1


@pytest.mark.parametrize("is_here", [True, False])
async def test_a_queue_that_is_deleted_is_noticed(tmp_path: Path, is_here: bool) -> None:
    async with (
        holdfast.connect(tmp_path.as_uri(), poll_interval=SHORT_S) as broker,
        holdfast.connect(tmp_path.as_uri(), poll_interval=SHORT_S) as other,
    ):
        await broker.queue("gone")
        assert not (await broker.store.claim("gone", 1, 30.0, wait=WAIT_S)).messages
        await (broker if is_here else other).delete_queue("gone")
        until = time.monotonic() + 10.0
        with pytest.raises(QueueNotFound):
            await _claiming(broker, until)


async def _claiming(broker: holdfast.Broker, until: float) -> None:
    while time.monotonic() < until:
        await broker.store.claim("gone", 1, 30.0, wait=5.0)
