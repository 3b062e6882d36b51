"""The suite on the toy store: in real time, and with a clock that the tests move."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.broker import Broker
from holdfast.testing import contract
from holdfast.testing.clock import ManualClock
from tests.toy_store import ToyStore


class TestToy(
    contract.Workers,
    contract.Disturbances,
    contract.Concurrency,
    contract.Reporting,
    contract.Uniqueness,
    contract.Replacing,
):
    """Topics whose time is real."""

    @pytest.fixture
    def place(self) -> None:
        self.toy = ToyStore()

    async def open_broker(self) -> Broker:
        return Broker(self.toy)


class TestToyWithManualClock(
    contract.Basics,
    contract.Leases,
    contract.Retries,
    contract.DeadLetters,
    contract.Archive,
    contract.DelayAndDedup,
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
):
    """Topics that wait for nothing but the clock."""

    @pytest.fixture
    def place(self) -> None:
        self.manual = ManualClock()
        self.toy = ToyStore(self.manual)

    async def open_broker(self) -> Broker:
        return Broker(self.toy)

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(0)  # whoever was about to wait does so first
        self.manual.advance(seconds + 0.01)  # what happens at the very instant is nobody's promise
