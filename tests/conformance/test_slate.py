"""The suite on slatedb+file:// and slatedb+s3://: a database that this process owns."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.testing import contract
from tests.stores.log.bucket.fixtures import Place

pytest.importorskip("slatedb", reason="the extra slatedb is not installed")

# Every topic but the one about several processes: a second process would take the database over.
TOPICS = [topic for topic in contract.ALL if topic is not contract.Processes]


class TestSlateFile(*TOPICS):
    """On a local disk."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> None:
        self.url = f"slatedb+file://{tmp_path}/store"

    async def open_broker(self) -> Broker:
        return await holdfast.connect(self.url)


class TestSlateBucket(contract.Network, *TOPICS):
    """On a real server."""

    @pytest.fixture
    def place(self, s3: Place) -> None:
        self.url = f"slatedb+{s3.url}&flush_interval=0"
        self.unreachable_url = f"slatedb+{s3.server.url(s3.prefix, endpoint='http://127.0.0.1:9')}"
        self.wrong_credentials_url = f"slatedb+{s3.server.url(s3.prefix, key=('limited', 'canary'))}"

    async def open_broker(self) -> Broker:
        return await holdfast.connect(self.url)
