"""A store as a server has it."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.errors import QueueNotFound, Unavailable
from holdfast.server import served as module
from holdfast.server.served import Served
from holdfast.server.settings import ServerSettings


async def nobody() -> None:
    """A connection that stays."""
    await asyncio.Event().wait()


async def test_work_ends_with_its_client_or_its_server() -> None:
    async with holdfast.connect("memory://") as broker:
        served = Served(broker, ServerSettings())
        assert await served.wait_for(asyncio.sleep(0, "done"), nobody) == "done"
        assert await served.wait_for(asyncio.sleep(60, "never"), lambda: asyncio.sleep(0)) is None
        waiting = asyncio.create_task(served.wait_for(asyncio.sleep(60, "never"), nobody))
        await asyncio.sleep(0)
        served.close()
        assert await waiting is None
        assert await served.wait_for(asyncio.sleep(60, "never"), nobody) is None, "no new waits"


async def test_too_many_waits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_WAITS", 1)
    async with holdfast.connect("memory://") as broker:
        served = Served(broker, ServerSettings())
        first = asyncio.create_task(served.wait_for(asyncio.sleep(60), nobody))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await served.wait_for(asyncio.sleep(60), nobody)
        first.cancel()


async def test_it_is_opened_anew_after_everything_was_removed() -> None:
    async def reopen() -> Broker:
        return await holdfast.connect("memory://removed")

    served = Served(await reopen(), ServerSettings(), reopen=reopen)
    first = served.broker
    await served.broker.queue("jobs")
    await served.queue("jobs")
    await served.uninstall()
    assert served.broker is not first
    with pytest.raises(QueueNotFound):
        await served.queue("jobs")
    await served.end()
