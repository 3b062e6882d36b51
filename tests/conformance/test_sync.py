"""The suite on file:// through the blocking face: the same tests, no second copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import contract


class TestSync(
    contract.SyncFace,
    contract.Basics,
    contract.Leases,
    contract.Concurrency,
    contract.Retries,
    contract.DeadLetters,
    contract.Archive,
    contract.DelayAndDedup,
    contract.Batches,
    contract.Listing,
    contract.Operating,
    contract.Changing,
    contract.Reporting,
    contract.Uniqueness,
    contract.Replacing,
    contract.Expiry,
    contract.History,
    contract.Workers,
    contract.Events,
    contract.Whole,
    contract.BadInput,
    contract.Limits,
    contract.Receipts,
    contract.Options,
    contract.Reopening,
    contract.SeveralQueues,
):
    """`holdfast.sync`, blocking and thread-safe."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> None:
        self.url = f"file://{tmp_path}/store"

    def open_blocking(self) -> Any:
        return holdfast.sync.connect(self.url)
