"""What other processes know of a pause, and of a deletion."""

from __future__ import annotations

import holdfast
from holdfast.stores.nats.reading import Found
from holdfast.stores.nats.store import NatsStore
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server


async def test_pause_is_known_although_the_queue_was_being_looked_up(own: Server) -> None:
    async with holdfast.connect(own.url) as first, holdfast.connect(own.url) as second:
        jobs, other = await first.queue("jobs"), await second.queue("jobs")
        await jobs.enqueue(1)
        assert (await other.stats()).total == 1  # the second broker has the queue open
        assert isinstance(second.store, NatsStore)
        register = second.store.register
        read, forget = register._read, register.forget
        heard: list[str] = []

        def hear(queue: str) -> None:
            heard.append(queue)
            forget(queue)

        async def late(queue: str) -> Found | None:
            register._read = read  # type: ignore[method-assign]  # once
            found = await read(queue)
            await jobs.pause()
            await eventually(lambda: heard, "the word of the pause")
            return found

        register.forget = hear  # type: ignore[method-assign]  # to know when the word is there
        register._read = late  # type: ignore[method-assign]  # an answer that is overtaken
        await register.find("jobs")
        assert (await register.get("jobs")).paused
        assert await other.dequeue() is None


async def test_counts_of_all_leave_out_a_queue_whose_deletion_was_cut_off(own: Server) -> None:
    """Its streams go before its entry, so that the deletion can be repeated."""
    async with holdfast.connect(own.url) as broker:
        await (await broker.queue("kept")).enqueue(1)
        await broker.queue("half")
        store = broker.store
        assert isinstance(store, NatsStore)
        for stream in store.register.names("half").streams():
            await store.register.drop_stream(stream)
        assert {name: stats.pending for name, stats in (await broker.stats()).items()} == {"kept": 1}
        await broker.delete_queue("half", force=True)
        assert [info.name for info in await broker.queues()] == ["kept"]
