"""Stores on a network: hosts that do not answer and credentials that are wrong. The others leave this topic out."""

from __future__ import annotations

import asyncio
import time

import pytest

from ...broker import connect
from ...errors import StoreError
from .base import PATIENCE_S, StoreContract


class Network(StoreContract):
    """Needs `unreachable_url` and `wrong_credentials_url`."""

    async def test_unreachable_store_is_an_error_within_the_deadline(self) -> None:
        await self.refuses(self.unreachable_url)

    async def test_wrong_credentials_are_an_error_within_the_deadline(self) -> None:
        await self.refuses(self.wrong_credentials_url)

    async def refuses(self, url: str | None) -> None:
        assert url is not None, "a store on a network says what is unreachable and what is refused"
        started = time.monotonic()
        with pytest.raises(StoreError):
            await asyncio.wait_for(self.use(url), 2 * PATIENCE_S)
        assert time.monotonic() - started < PATIENCE_S

    async def use(self, url: str) -> None:
        async with connect(url, connect_timeout=3, operation_timeout=3) as broker:
            await broker.queues()
