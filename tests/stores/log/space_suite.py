"""What every space must do; subclasses give a `space` fixture."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from holdfast.errors import Unavailable
from holdfast.loop_thread import driven
from holdfast.stores.log.bucket.space import CloudSpace
from holdfast.stores.log.space import Space, Transaction

T = TypeVar("T")


class Refused(Exception):
    pass


def refuse(transaction: Transaction) -> None:
    transaction.put("a/1", b"changed")
    transaction.delete("a/2")
    transaction.create("a/3", b"new")
    transaction.signal("a")
    raise Refused


def keys(prefix: str = "", **page):
    return lambda view: view.list(prefix, **page)


def value(key: str):
    def step(view):
        found = view.get(key)
        return None if found is None else found.data

    return step


def blocking(space: Space, step: Callable[[Transaction], T], **options: float) -> T:
    """In this thread, in which no event loop runs."""
    if isinstance(space, CloudSpace):
        return space.transact_from_thread(step, **options)

    async def transacted() -> T:
        return await space.transact(step, **options)

    return driven(transacted())


def in_another_loop(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run a coroutine function in a thread with an event loop of its own."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(call())), daemon=True)
    thread.start()
    return thread, results


class SpaceSuite:
    async def test_create_is_only_for_the_absent(self, space: Space):
        assert await space.transact(lambda tx: tx.create("a/1", b"first"))
        assert not await space.transact(lambda tx: tx.create("a/1", b"second"))
        assert await space.read(value("a/1")) == b"first"

    async def test_put_replaces_and_changes_the_tag(self, space: Space):
        tags = set()
        for data in (b"same", b"same", b""):
            await space.transact(lambda tx, data=data: tx.put("a/1", data))
            found = await space.read(lambda view: view.get("a/1"))
            assert found.data == data
            tags.add(found.tag)
        await space.transact(lambda tx: tx.delete("a/1"))
        await space.transact(lambda tx: tx.put("a/1", b"same"))
        tags.add((await space.read(lambda view: view.get("a/1"))).tag)
        assert len(tags) == 4

    async def test_delete_says_whether_it_was_there(self, space: Space):
        await space.transact(lambda tx: tx.put("a/1", b"x"))
        assert await space.transact(lambda tx: tx.delete("a/1"))
        assert not await space.transact(lambda tx: tx.delete("a/1"))
        assert await space.read(value("a/1")) is None

    async def test_list_pages_in_byte_order_within_the_prefix(self, space: Space):
        names = [f"a/{place:03d}" for place in range(30)]
        others = ["a", "a.", "a0", "b/1", "a/ü", "a/z"]

        def fill(tx: Transaction):
            for name in [*reversed(names), *others]:
                tx.put(name, b"x" * 2000)

        await space.transact(fill)
        assert await space.read(keys("a/")) == [*names, "a/z", "a/ü"]
        assert await space.read(keys("a/", after="a/005", limit=3)) == names[6:9]
        assert await space.read(keys("a/", after="a/0055", limit=1)) == names[6:7]
        assert await space.read(keys("a/", after="A", limit=2)) == names[:2]
        assert await space.read(keys("a/", after="b")) == []
        assert await space.read(keys("nothing/")) == []
        assert len(await space.read(keys())) == len(names) + len(others)

    async def test_a_step_that_raises_leaves_nothing(self, space: Space):
        await space.transact(lambda tx: (tx.put("a/1", b"1"), tx.put("a/2", b"2")))
        before = await space.read(lambda view: (view.get("a/1"), view.get("a/2"), view.list("")))
        ticket = space.ticket("a")
        with pytest.raises(Refused):
            await space.transact(refuse)
        assert await space.read(lambda view: (view.get("a/1"), view.get("a/2"), view.list(""))) == before
        assert not await space.watch("a", 0.01, since=ticket)

    async def test_a_step_that_raises_is_undone_alone(self, space: Space):
        def put(name: str):
            return space.transact(lambda tx: tx.put(name, b"x"))

        for order in range(4):  # the refused one first, between, last; and after one that only read
            steps = [put(f"b/{order}/{place}") for place in range(3)]
            steps.insert(order, space.transact(refuse))
            if order == 3:
                steps.insert(0, space.transact(keys()))
            results = await asyncio.gather(*steps, return_exceptions=True)
            assert sum(isinstance(result, Refused) for result in results) == 1
            assert len(await space.read(keys(f"b/{order}/"))) == 3
        assert await space.read(keys("a/")) == []

    async def test_a_step_sees_its_own_writes(self, space: Space):
        def step(tx: Transaction):
            tx.put("a/1", b"1")
            assert tx.get("a/1").data == b"1"
            assert tx.list("a/") == ["a/1"]
            tx.delete("a/1")
            return tx.get("a/1"), tx.list("a/"), tx.create("a/1", b"2")

        assert await space.transact(step) == (None, [], True)

    async def test_time_does_not_go_back(self, space: Space):
        instants = [space.clock(), await space.transact(lambda tx: tx.now), await space.read(lambda view: view.now)]
        assert instants == sorted(instants)
        assert space.clock() >= instants[-1]

    async def test_steps_from_threads(self, space: Space):
        def work(number: int):
            for place in range(20):
                blocking(space, lambda tx, place=place: tx.create(f"t/{number}/{place}", b"x"))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
        assert len(await space.read(keys("t/"))) == 80
        with pytest.raises(Refused):
            await asyncio.to_thread(blocking, space, refuse)

    async def test_steps_from_several_loops(self, space: Space):
        async def work():
            steps = (space.transact(lambda tx, n=n: tx.put("n", str(n).encode())) for n in range(20))
            await asyncio.gather(*steps)
            return len(await space.read(keys()))

        threads = [in_another_loop(work) for _ in range(3)]
        await work()
        for thread, results in threads:
            await asyncio.to_thread(thread.join, 10)
            assert results == [1]

    async def test_a_file_is_invisible_until_adopted(self, space: Space):
        await space.write_file("q/inbox/1", b"large")
        assert await space.read(keys()) == []
        assert await space.read(value("q/inbox/1")) is None
        assert await space.transact(lambda tx: tx.adopt("q/inbox/1"))
        assert not await space.transact(lambda tx: tx.adopt("q/inbox/1"))
        assert await space.read(keys("q/")) == ["q/inbox/1"]
        assert await space.read(value("q/inbox/1")) == b"large"
        assert not await space.transact(lambda tx: tx.create("q/inbox/1", b"other"))
        assert await space.transact(lambda tx: tx.delete("q/inbox/1"))
        assert await space.read(value("q/inbox/1")) is None

    async def test_files_are_written_before_their_step(self, space: Space):
        def show(number: int):
            key = f"q/inbox/{number}"
            return space.transact(lambda tx: tx.adopt(key), files=[(key, b"large %d" % number)])

        assert await show(0)
        others = (space.transact(lambda tx, n=n: tx.create(f"a/{n}", b"x")) for n in range(1, 9))
        assert all(await asyncio.gather(*(show(number) for number in range(1, 9)), *others))
        assert [await space.read(value(f"q/inbox/{number}")) for number in range(9)] == [
            b"large %d" % number for number in range(9)
        ]
        assert len(await space.read(keys("a/"))) == 8

    async def test_an_adoption_can_be_undone(self, space: Space):
        await space.write_file("q/inbox/1", b"large")

        def step(tx: Transaction):
            tx.adopt("q/inbox/1")
            raise Refused

        with pytest.raises(Refused):
            await space.transact(step)
        assert await space.read(keys()) == []
        assert await space.transact(lambda tx: tx.adopt("q/inbox/1"))
        assert await space.read(value("q/inbox/1")) == b"large"

    async def test_sweep_takes_files_of_no_object(self, space: Space):
        for name in ("q/inbox/1", "q/inbox/2"):
            await space.write_file(name, b"large")
        await space.transact(lambda tx: tx.adopt("q/inbox/1"))
        assert await space.sweep(3600) == 0
        assert await space.sweep(0) == 1
        assert await space.read(value("q/inbox/1")) == b"large"
        with pytest.raises(Unavailable, match="write it again"):
            await space.transact(lambda tx: tx.adopt("q/inbox/2"))
        await space.write_file("q/inbox/2", b"again")
        assert await space.transact(lambda tx: tx.adopt("q/inbox/2"))

    async def test_watch_ends_with_a_signal(self, space: Space):
        watching = asyncio.create_task(space.watch("a", 10))
        other = asyncio.create_task(space.watch("b", 0.05))
        await asyncio.sleep(0)
        await space.transact(lambda tx: tx.signal("a"))
        assert await watching
        assert not await other

    async def test_a_signal_between_ticket_and_watch_counts(self, space: Space):
        ticket = space.ticket("a")
        assert not await space.watch("a", 0, since=ticket)
        await space.transact(lambda tx: tx.signal("a"))
        assert await space.watch("a", 10, since=ticket)
        assert await space.watch("a", 0, since=ticket)
        assert not await space.watch("a", 0.01)

    async def test_no_signal_is_lost(self, space: Space):
        total = 100

        def add(tx: Transaction):
            found = tx.get("n")
            tx.put("n", str(int(found.data if found else b"0") + 1).encode())
            tx.signal("n")

        async def produce():
            for _ in range(total // 2):
                await space.transact(add)

        async def consume():
            while True:
                ticket = space.ticket("n")
                if await space.read(value("n")) == str(total).encode():
                    return True
                if not await space.watch("n", 20, since=ticket):
                    return False

        threads = [in_another_loop(consume), in_another_loop(produce)]
        assert all((await asyncio.gather(consume(), consume(), produce()))[:2])
        for thread, results in threads:
            await asyncio.to_thread(thread.join, 10)
            assert results in ([True], [None])

    async def test_a_cancelled_watch_leaves_nothing_behind(self, space: Space):
        for _ in range(3):
            watching = asyncio.create_task(space.watch("a", 10))
            await asyncio.sleep(0)
            watching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await watching
        watching = asyncio.create_task(space.watch("a", 10))
        await asyncio.sleep(0)
        await space.transact(lambda tx: tx.signal("a"))
        assert await watching

    async def test_install_check_and_close(self, space: Space):
        assert all(isinstance(step, str) for step in await space.install(dry_run=True))
        assert {line.state for line in await space.check()} <= {"ok", "warn"}
        await space.close()
        await space.close()
