"""The suite on memory://: through the URL in real time, and with a clock that the tests move."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.config import StoreOptions
from holdfast.stores.log import open_memory
from holdfast.testing import contract
from holdfast.testing.clock import ManualClock


class TestMemory(
    contract.Workers,
    contract.Disturbances,
    contract.Concurrency,
    contract.Leases,
    contract.DelayAndDedup,
    contract.Reopening,
    contract.Schedules,
    contract.SeveralQueues,
    contract.Listing,
    contract.Operating,
    contract.Changing,
    contract.Reporting,
    contract.Uniqueness,
    contract.Replacing,
    contract.Expiry,
    contract.Backups,
):
    """Topics in which time matters, in real time."""

    @pytest.fixture
    def place(self) -> None:
        self.name = uuid4().hex

    async def open_broker(self) -> Broker:
        return await holdfast.connect(f"memory://{self.name}")


class TestMemoryWithManualClock(
    contract.Basics,
    contract.Leases,
    contract.Retries,
    contract.DeadLetters,
    contract.Archive,
    contract.DelayAndDedup,
    contract.Expiry,
    contract.Batches,
    contract.Events,
    contract.Whole,
    contract.BadInput,
    contract.Limits,
    contract.Receipts,
    contract.Options,
    contract.Reopening,
    contract.Seam,
    contract.Tokens,
    contract.Calls,
):
    """Topics that wait for nothing but the clock."""

    @pytest.fixture
    def place(self) -> None:
        self.name, self.manual = uuid4().hex, ManualClock()

    async def open_broker(self) -> Broker:
        return Broker(await open_memory(self.name, StoreOptions(), clock=self.manual))

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(0)  # whoever was about to wait does so first
        self.manual.advance(seconds + 0.01)  # what happens at the very instant is nobody's promise
