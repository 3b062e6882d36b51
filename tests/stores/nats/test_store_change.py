"""What NATS cannot do is said."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.errors import ConfigError

pytestmark = pytest.mark.asyncio


async def test_changing_is_refused_and_changes_nothing(broker: holdfast.Broker) -> None:
    queue: holdfast.Queue[Any] = await broker.queue("jobs")
    id = await queue.enqueue(1)
    assert not broker.store.capabilities.changes_messages
    with pytest.raises(ConfigError, match="cancel it and enqueue another"):
        await queue.change(id, priority=5)
    record = await queue.get(id)
    assert record is not None
    assert (record.priority, record.status) == (0, "pending")
