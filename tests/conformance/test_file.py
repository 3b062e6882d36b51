"""The suite on file://, in real time and with many processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.testing import contract


class TestFile(contract.All):
    """A folder on a local disk."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> None:
        self.shared_url = f"file://{tmp_path}/store"

    async def open_broker(self) -> Broker:
        assert self.shared_url is not None
        return await holdfast.connect(self.shared_url)
