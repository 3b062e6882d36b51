"""Options: defaults, what the code says, what is stored, and changes at run time."""

from __future__ import annotations

from typing import Any

import pytest

from ...config import QueueOptions
from ...errors import ConfigError, MessageTooLarge
from ...retry import Exponential, Fixed, Linear, NoRetry
from .base import LONG_S, StoreContract, refused

OTHER: dict[str, Any] = {
    "lease": 12.5,
    "max_attempts": 7,
    "retry": Linear(2.5, cap=9),
    "dead_letter": "graves",
    "archive": False,
    "archive_days": 0.5,
    "max_message_size": 1234,
    "max_messages": 99,
    "dedup_window": 1.5,
}
BAD: list[dict[str, Any]] = [
    {"lease": 0},
    {"lease": "soon"},
    {"max_attempts": 0},
    {"retry": "sometimes"},
    {"retry": {"policy": "fixd"}},
    {"archive_days": -1},
    {"max_messages": 0},
    {"dedup_window": -1},
    {"dead_letter": "a/b"},
    {"shards": 0},
]


class Options(StoreContract):
    """Options are stored with the queue."""

    async def stored(self, name: str = "jobs") -> QueueOptions:
        return next(info.options for info in await self.broker.queues() if info.name == name)

    async def test_options_have_their_defaults(self) -> None:
        queue = await self.queue()
        assert queue.options == await self.stored() == QueueOptions()
        assert (queue.options.lease, queue.options.max_attempts, queue.options.dead_letter) == (30.0, 3, True)
        assert queue.options.retry == Exponential(base=1, factor=2, cap=300, jitter=True)

    async def test_every_option_is_stored(self) -> None:
        queue = await self.queue(**OTHER)
        for options in (queue.options, await self.stored()):
            assert {name: getattr(options, name) for name in OTHER} == OTHER

    async def test_every_retry_policy_is_stored(self) -> None:
        for policy in (Fixed(3), Linear(2, cap=8), Exponential(3, 4, 5, jitter=False), NoRetry()):
            await self.queue(retry=policy)
            assert (await self.stored()).retry == policy

    async def test_options_given_in_code_update_what_is_stored(self) -> None:
        await self.queue(lease=5, max_attempts=9)
        await self.queue(lease=6)
        options = await self.stored()
        assert (options.lease, options.max_attempts) == (6, 9)

    async def test_options_change_at_run_time(self) -> None:
        queue = await self.queue(max_attempts=5, retry=Fixed(0))
        id = await queue.enqueue(1)
        await self.broker.configure_queue("jobs", max_attempts=1, max_message_size=10)
        assert queue.options.max_attempts == 1
        with pytest.raises(MessageTooLarge):
            await queue.enqueue("x" * 100)
        delivery = await self.take(queue)
        assert delivery.max_attempts == 1
        await delivery.fail("once")
        assert await queue.status(id) == "dead"

    async def test_other_brokers_see_a_change(self) -> None:
        await self.queue(max_attempts=5)
        other = await self.another_broker()
        await other.configure_queue("jobs", lease=LONG_S, max_attempts=2)
        queue = await self.queue()
        assert (queue.options.lease, queue.options.max_attempts) == (LONG_S, 2)

    async def test_retry_policy_may_be_written_as_in_yaml(self) -> None:
        await self.queue(retry={"policy": "fixed", "delay": 5})
        assert (await self.stored()).retry == Fixed(5)

    async def test_bad_options_are_refused(self) -> None:
        for options in BAD:
            with refused(options, ConfigError):
                await self.queue(**options)
        assert await self.broker.queues() == []
        await self.queue()
        for options in BAD:
            with refused(options, ConfigError):
                await self.broker.configure_queue("jobs", **options)
        assert await self.stored() == QueueOptions()

    async def test_unknown_option_is_refused_with_a_hint(self) -> None:
        with pytest.raises(ConfigError, match="max_attempts"):
            await self.queue(max_atempts=5)
        with pytest.raises(ConfigError, match="concurrency"):
            (await self.queue()).worker(print, concurency=5)

    async def test_shards_are_fixed_at_creation(self) -> None:
        queue = await self.queue()
        with pytest.raises(ConfigError, match="shards"):
            await self.broker.configure_queue("jobs", shards=queue.options.shards + 1)
