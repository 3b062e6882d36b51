"""What a commit on a bucket asks for: lists and blocks beside the swap, little where others replace the head too."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from holdfast.config import QueueOptions
from holdfast.errors import Damaged, HoldfastError, StoreError
from holdfast.stores.log import sums
from holdfast.stores.log.bucket import listing as late
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.log.head import codec, repeat
from holdfast.stores.log.head.state import ListTicket
from holdfast.stores.records import Envelope, Settlement
from tests.stores.log.bucket.far_bucket import Door, FarBucket, process

DEADLINE = 30.0
LONG = 5.0


class Asked(Door):
    """A door that notes what is asked for, each request taking a moment."""

    def __init__(self, bucket: FarBucket, seconds: float) -> None:
        super().__init__(bucket)
        self.seconds = seconds
        self.kinds: list[str] = []
        self.at_once = self.most_at_once = 0
        self._count = threading.Lock()

    def _note(self, kind: str) -> None:
        with self._count:
            self.kinds.append(kind)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.seconds)
        with self._count:
            self.at_once -= 1

    def put(self, path: str, file: bytes, *, mode: Any = "overwrite", **options: Any) -> Any:
        self._note("swap" if path.endswith("/head") else "put")
        return super().put(path, file, mode=mode, **options)

    def get(self, path: str, *, options: Any = None) -> Any:
        self._note("head" if path.endswith("/head") else "block" if "/inbox/" in path else "get")
        return super().get(path, options=options)

    def list(self, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 50) -> Any:
        self._note("list")
        return super().list(prefix, offset=offset, chunk_size=chunk_size)


async def opened(bucket: FarBucket, seconds: float = 0.0) -> tuple[LateStore, Asked]:
    store, door = await process(bucket)
    door.__class__, door.__dict__ = Asked, Asked(bucket, seconds).__dict__
    return store, cast(Asked, door)


async def filled(bucket: FarBucket, blocks: int, size: int = 10) -> None:
    store, _ = await process(bucket)
    await store.create_queue("q", QueueOptions(archive=False))
    for number in range(blocks):
        await store.append("q", [Envelope(f"{number}-{place}".encode()) for place in range(size)])
    await store.close()


async def complete(store: LateStore, messages: Any) -> list[Any]:
    return await store.settle("q", [Settlement(each.id, each.token, "complete") for each in messages])


@pytest.fixture
def bucket() -> FarBucket:
    return FarBucket(time.time, resolution=0.001)


async def test_blocks_are_read_while_the_head_is_replaced(bucket: FarBucket) -> None:
    await filled(bucket, 5)
    store, asked = await opened(bucket, 0.1)
    asked.kinds.clear()
    claims = await store.claim("q", 50, 30.0)
    assert len(claims.messages) == 50
    assert Counter(asked.kinds)["block"] == 5
    assert asked.most_at_once >= 3, "blocks and the swap"
    await store.close()


async def test_claims_that_follow_each_other_do_not_wait_for_lists(bucket: FarBucket) -> None:
    await filled(bucket, 40)
    store, asked = await opened(bucket, 0.02)
    for _ in range(12):
        held = (await store.claim("q", 10, 30.0)).messages
        assert await complete(store, held) == ["ok"] * 10
    lists = asked.kinds.count("list")
    assert lists <= 10, "fewer than claims"
    await store.close()


async def test_callers_that_come_together_share_a_replacement_again_and_again(bucket: FarBucket) -> None:
    await filled(bucket, 40)
    store, asked = await opened(bucket, 0.03)
    rounds = 6

    async def caller() -> None:
        for _ in range(rounds):
            held = (await store.claim("q", 10, 30.0)).messages
            assert await complete(store, held) == ["ok"] * len(held)

    await caller()
    asked.kinds.clear()
    await asyncio.gather(*(caller() for _ in range(4)))
    assert asked.kinds.count("swap") <= 2 * rounds + 3, "a claim and a settlement for all, not for each"
    await store.close()


async def test_who_was_beaten_needs_the_head_and_one_more_swap(bucket: FarBucket) -> None:
    await filled(bucket, 10)
    (one, _), (two, asked) = await opened(bucket), await opened(bucket)
    first = (await two.claim("q", 10, 30.0)).messages
    await one.claim("q", 10, 30.0)  # `two` does not know
    asked.kinds.clear()
    assert await complete(two, first) == ["ok"] * 10
    assert Counter(asked.kinds) == {"swap": 2, "head": 1}
    await one.close()
    await two.close()


async def test_nobody_is_kept_out_for_long(bucket: FarBucket) -> None:
    """One process replaces the head without a pause; another, which must read it first, gets its turn."""
    await filled(bucket, 400, 2)
    (busy, _), (other, _) = await opened(bucket, 0.01), await opened(bucket, 0.01)
    stop = asyncio.Event()

    async def hurry() -> None:
        while not stop.is_set():
            held = (await busy.claim("q", 2, 30.0)).messages
            if held:
                await complete(busy, held)

    hurrying = [asyncio.create_task(hurry()) for _ in range(2)]
    async with asyncio.timeout(DEADLINE):
        for _ in range(5):
            held = (await other.claim("q", 1, 30.0)).messages
            assert await complete(other, held) == ["ok"] * len(held)
    stop.set()
    await asyncio.gather(*hurrying)
    await busy.close()
    await other.close()


async def test_a_claim_whose_messages_cannot_be_read_is_given_back(bucket: FarBucket) -> None:
    await filled(bucket, 1, 3)
    store, _ = await opened(bucket)
    (key,) = [key for key in bucket.objects if "/inbox/" in key]
    data, tag, written = bucket.objects[key]
    bucket.objects[key] = (b"no block at all", tag, written)
    with pytest.raises(Damaged, match=key):
        await store.claim("q", 3, 30.0)
    bucket.objects[key] = (data, tag, written)
    async with asyncio.timeout(DEADLINE):
        while not (held := (await store.claim("q", 3, 30.0, wait=1.0)).messages):
            pass
    assert [each.attempt for each in held] == [1, 1, 1], "it cost them no attempt"
    await store.close()


async def test_a_list_from_before_something_was_forgotten_is_not_used(bucket: FarBucket) -> None:
    await filled(bucket, 20)
    store, asked = await opened(bucket)
    await store.claim("q", 10, 30.0)
    window = store._log("q").window
    listing = window.late.listing()  # type: ignore[attr-defined]  # a bucket's
    assert listing is not None
    older = ListTicket(listing.ticket.forgets + 1)
    window.late._listing = late.replace(listing, ticket=older)
    asked.kinds.clear()
    assert len((await store.claim("q", 10, 30.0)).messages) == 10
    assert "list" not in asked.kinds, "the head has enough"
    assert len((await store.claim("q", 100, 30.0)).messages) == 100
    assert "list" in asked.kinds
    await store.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.005)


async def test_several_at_one_head_come_through_without_many_refusals(bucket: FarBucket) -> None:
    await filled(bucket, 200, 2)
    stores = [await opened(bucket, 0.03) for _ in range(4)]
    rounds = 6

    async def caller(store: LateStore) -> None:
        for _ in range(rounds):
            held = (await store.claim("q", 2, 30.0)).messages
            assert await complete(store, held) == ["ok"] * len(held)

    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(caller(store) for store, _ in stores))
    swaps = sum(asked.kinds.count("swap") for _, asked in stores)
    assert swaps <= 3 * (2 * rounds * 4), "who comes back at once, each time, is refused three times of four"
    for store, _ in stores:
        await store.close()


def taken(bucket: FarBucket) -> None:
    """Another process replaces the head."""
    (key,) = [key for key in bucket.named("/head") if "/dead/" not in key]
    head = codec.decode(sums.Sums().opened(key, bucket.objects[key][0]))
    head.now = max(head.now, time.time())
    signed = repeat.signed(head, "another", 1)
    bucket.write(key, sums.seal(key, codec.HeadWriter().encode(signed)), "overwrite")


async def test_a_head_that_others_replace_too_is_read_first_after_a_pause(bucket: FarBucket) -> None:
    await filled(bucket, 4)
    store, asked = await opened(bucket, 0.01)
    held = (await store.claim("q", 10, 30.0)).messages
    for expected in ({"swap": 2, "head": 1}, {"swap": 1, "head": 1}):  # it has met somebody the first time
        taken(bucket)
        await asyncio.sleep(0.3)
        asked.kinds.clear()
        assert await complete(store, [held.pop()]) == ["ok"]
        assert Counter(asked.kinds) == expected
    await store.close()


async def test_what_comes_while_a_refused_commit_pauses_shares_its_next_replacement(bucket: FarBucket) -> None:
    await filled(bucket, 4)
    store, asked = await opened(bucket, 0.1)
    held = (await store.claim("q", 10, 30.0)).messages
    taken(bucket)
    asked.kinds.clear()
    completing = asyncio.create_task(complete(store, held))
    await until(lambda: "swap" in asked.kinds)
    claiming = asyncio.create_task(store.claim("q", 10, 30.0))
    assert await completing == ["ok"] * 10
    assert len((await claiming).messages) == 10
    assert asked.kinds.count("swap") == 2, "the one that was refused, and one for both"
    await store.close()


class Delivering(Asked):
    """What is late arrives just after the head was read."""

    def get(self, path: str, *, options: Any = None) -> Any:
        try:
            return super().get(path, options=options)
        finally:
            if path.endswith("/head"):
                self.bucket.deliver()


async def test_a_head_is_not_read_again_while_an_earlier_attempt_may_still_happen(bucket: FarBucket) -> None:
    """It would be taken for somebody else's, and the claim be applied twice."""
    await filled(bucket, 4)
    store, door = await opened(bucket)
    (first,) = (await store.claim("q", 1, 30.0)).messages
    door.__class__ = Delivering
    fates = iter(["late"])
    door.fate = lambda kind, key: next(fates, "ok") if key.endswith("/head") else "ok"
    (second,) = (await store.claim("q", 1, 30.0)).messages
    (third,) = (await store.claim("q", 1, 30.0)).messages
    assert [each.payload for each in (first, second, third)] == [b"0-0", b"0-1", b"0-2"], "none was claimed in between"
    await store.close()


class Hesitating(Asked):
    """The first read of some blocks takes long."""

    slow: set[str]

    def get(self, path: str, *, options: Any = None) -> Any:
        with self._count:
            is_slow = path in self.slow
            self.slow.discard(path)
        if is_slow:
            time.sleep(LONG)
        return super().get(path, options=options)


async def test_a_block_that_takes_too_long_to_read_is_asked_for_again(bucket: FarBucket) -> None:
    """One slow answer of many would hold up the claim, and all that this process commits after it."""
    await filled(bucket, 8)
    store, asked = await opened(bucket)
    asked.__class__ = Hesitating
    asked.slow = set(bucket.named("/inbox/")[1:4])  # type: ignore[attr-defined]
    asked.kinds.clear()
    begun = time.monotonic()
    held = (await store.claim("q", 80, 30.0)).messages
    assert len({each.id for each in held}) == 80
    assert time.monotonic() - begun < 0.6 * LONG
    assert Counter(asked.kinds)["block"] == 8, "each of the slow ones once more, the others not"
    assert await complete(store, held) == ["ok"] * 80
    await store.close()


async def test_a_slow_read_that_fails_in_the_end_changes_nothing(bucket: FarBucket) -> None:
    await filled(bucket, 2)
    store, asked = await opened(bucket)
    shelf = store._space._shelf  # type: ignore[attr-defined]  # a bucket's
    key = bucket.named("/inbox/")[0]
    failed: Future[Any] = Future()
    either = shelf.fetch_again(key, time.monotonic() + DEADLINE, failed)
    await until(either.done)
    failed.set_exception(StoreError("too late"))
    assert sums.seal(key, either.result().data) == bucket.objects[key][0]
    both = shelf.fetch_again("nowhere/head", time.monotonic() + DEADLINE, failed)
    await until(both.done)
    assert both.result() is None, "the second answer counts when the first is none"
    asked.is_shut = True
    none = shelf.fetch_again(key, time.monotonic() + 0.2, failed)
    await until(none.done)
    assert isinstance(none.exception(), HoldfastError)
    asked.is_shut = False
    await store.close()
