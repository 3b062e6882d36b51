"""Small values next to the queues, where a store keeps them."""

from __future__ import annotations

import asyncio

import pytest

from ...errors import ConfigError, HoldfastError
from ...stores.values import ABSENT, KEY_BYTES
from ...stores.values import Values as Stored
from .base import SHORT_S, StoreContract, refused


class Values(StoreContract):
    """What `Store.values` promises."""

    @property
    def values(self) -> Stored:
        found = self.store.values
        assert (found is not None) == self.store.capabilities.keeps_values
        if found is None:
            pytest.skip("this store keeps no values")
        return found

    async def data(self, *keys: str) -> list[bytes | None]:
        return [None if found is None else found.data for found in await self.values.get(keys)]

    async def test_a_value_is_kept_until_it_is_replaced_or_deleted(self) -> None:
        odd = "celery-task-meta-ä/… * > \n" + "x" * 500
        assert await self.data(odd, "other") == [None, None]
        first = await self.values.put(odd, b"\0one")
        second = await self.values.put("other", b"")
        assert first
        assert second
        assert await self.data("other", odd, "other") == [b"", b"\0one", b""]
        again = await self.values.put(odd, b"two")
        assert again
        assert again != first
        [found] = await self.values.get([odd])
        assert found is not None
        assert (found.data, found.version) == (b"two", again)
        await self.values.delete([odd, "never there"])
        assert await self.data(odd, "other") == [None, b""]

    async def test_values_outlast_the_broker(self) -> None:
        await self.values.put("kept", b"1" * 100_000)
        await self.reopen()
        assert await self.data("kept") == [b"1" * 100_000]

    async def test_a_value_is_replaced_only_as_expected(self) -> None:
        first = await self.values.put("one", b"1", expected=ABSENT)
        assert first is not None
        assert await self.values.put("one", b"2", expected=ABSENT) is None
        second = await self.values.put("one", b"2", expected=first)
        assert second is not None
        assert await self.values.put("one", b"3", expected=first) is None
        assert await self.data("one") == [b"2"]
        await self.values.delete(["one"])
        assert await self.values.put("one", b"4", expected=second) is None
        assert await self.data("one") == [None]
        assert await self.values.put("one", b"5", expected=ABSENT) is not None

    async def test_of_many_that_compare_at_a_time_each_gets_its_turn(self) -> None:
        async def add() -> None:
            while True:
                [found] = await self.values.get(["count"])
                data, version = (b"0", ABSENT) if found is None else (found.data, found.version)
                if await self.values.put("count", b"%d" % (int(data) + 1), expected=version) is not None:
                    return

        await asyncio.gather(*(add() for _ in range(10)))
        assert await self.data("count") == [b"10"]

    async def test_a_value_expires(self) -> None:
        await self.values.put("short", b"1", expires_in=SHORT_S)
        await self.values.put("long", b"2", expires_in=3600)
        await self.values.put("for ever", b"3")
        assert (await self.data("long", "for ever")) == [b"2", b"3"]
        await self.advance(SHORT_S)
        assert await self.data("short", "long", "for ever") == [None, b"2", b"3"]
        assert await self.values.put("short", b"4", expected=ABSENT, expires_in=3600) is not None
        assert await self.data("short") == [b"4"]

    async def test_sweeping_gives_back_only_what_has_expired(self) -> None:
        await self.values.put("short", b"1", expires_in=SHORT_S)
        await self.values.put("long", b"2", expires_in=3600)
        await self.values.put("for ever", b"3")
        await self.advance(SHORT_S)
        assert await self.values.sweep() in (0, 1)  # a server may do it by itself
        assert await self.values.sweep() == 0
        assert await self.data("short", "long", "for ever") == [None, b"2", b"3"]

    async def test_bad_keys_and_times_change_nothing(self) -> None:
        for key in ("", "a\0b", "\ud800", "x" * (KEY_BYTES + 1)):
            with refused(key, HoldfastError):
                await self.values.put(key, b"1")
        for seconds in (0, -1, float("nan"), "1"):
            with refused(seconds, ConfigError):
                await self.values.put("key", b"1", expires_in=seconds)  # type: ignore[arg-type] # that is the point
        assert await self.data("key") == [None]

    async def test_values_are_no_queues_and_go_with_the_store(self) -> None:
        await self.values.put("one", b"1")
        assert await self.broker.queues() == []
        assert await self.broker.uninstall() == []
