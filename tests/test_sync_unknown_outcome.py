"""The blocking face of an error that can be retried: `retry` blocks, too."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.stores.log.bucket import space, transaction
from tests.servers.bucket import BucketServer
from tests.servers.proxy import Faults, Proxy

WINDOW = 3.0  # seconds; a retry waits until it is over. Longer than the timeout, as the real one is


def test_retry_blocks_and_adds_the_message_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "WINDOW", WINDOW)
    monkeypatch.setattr(space.CloudSpace, "window", WINDOW)
    with BucketServer() as server, Proxy(server.port, Faults()) as proxy:
        where = server.url("jobs", endpoint=proxy.endpoint)
        with holdfast.sync.connect(where, operation_timeout=2) as broker:
            queue = broker.queue("jobs")
            queue.enqueue("before")
            proxy.faults = Faults(unavailable=1.0)
            with pytest.raises(holdfast.UnknownOutcome) as caught:
                queue.enqueue("once")
            error = caught.value
            assert isinstance(error, holdfast.sync.UnknownOutcome)
            with pytest.raises(holdfast.StoreError):  # the server is still away
                error.retry()
            proxy.faults = Faults()
            for _ in range(2):
                assert error.retry() == error.ids
            assert queue.stats().pending == 2
