"""Limits: a part that is too large is refused before anything is written, whatever the store; text is cut instead.

After every refusal the store is used again: what it was spared cannot have harmed it.
"""

from __future__ import annotations

from typing import Any

import pytest

from ...codecs import Format
from ...config import MIB
from ...errors import ConfigError, LeaseLost, MessageNotFound, MessageTooLarge
from ...limits import CONTENT_TYPE_BYTES, CUT_MARK, DEDUP_KEY_BYTES, HEADERS_BYTES, TEXT_BYTES
from ...messages import Message
from ...outcome import Dead
from ...queue import Queue
from ...retry import Fixed
from .base import StoreContract, eventually, refused, working

HUGE = 20_000_000  # bytes: above what any of the servers takes in one request

# Each is a term of `enqueue` beyond its limit, by a byte or by far.
OVERSIZED: dict[str, dict[str, Any]] = {
    "one-header": {"headers": {"k": "v" * HEADERS_BYTES}},
    "many-headers": {"headers": {f"key-{n:04}": "v" * 60 for n in range(1000)}},
    "header-name": {"headers": {"k" * (HEADERS_BYTES + 1): ""}},
    "headers-in-utf-8": {"headers": {"k": "é" * (HEADERS_BYTES // 2)}},
    "headers-above-a-mebibyte": {"headers": {"k": "v" * 2 * MIB}},
    "huge-headers": {"headers": {"k": "v" * HUGE}},
    "dedup-key": {"dedup_key": "k" * (DEDUP_KEY_BYTES + 1)},
    "dedup-key-in-utf-8": {"dedup_key": "é" * (DEDUP_KEY_BYTES // 2 + 1)},
    "huge-dedup-key": {"dedup_key": "k" * HUGE},
}
FULL: dict[str, Any] = {
    "headers": {"k": "v" * (HEADERS_BYTES - 3), "é": ""},
    "dedup_key": "é" * (DEDUP_KEY_BYTES // 2),
}

TOO_DEEP_LEVELS = 20_000  # for the parser of every Python: 3.13 reads 10,000


def nested(levels: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


class _Verbose:
    """A codec with a content type of a chosen length."""

    def __init__(self, size: int) -> None:
        self.content_type = "x" * size

    def encode(self, value: Any) -> bytes:
        return str(value).encode()

    def decode(self, data: bytes) -> Any:
        return data.decode()


class Limits(StoreContract):
    """The same on every store, single and in batches."""

    async def works(self, queue: Queue[Any], value: Any = "after") -> None:
        """The queue takes, gives and settles, and has nothing else."""
        id = await queue.enqueue(value)
        delivery = await self.take(queue)
        assert (delivery.id, delivery.value) == (id, value)
        await delivery.complete()
        assert (await queue.stats()).pending == 0

    # ------------------------------------------------------------------ in

    async def test_oversized_terms_are_refused_and_the_store_still_works(self) -> None:
        queue = await self.queue(archive=False)
        for name, terms in OVERSIZED.items():
            with refused(name, MessageTooLarge, match="the limit is") as caught:
                await queue.enqueue("bad", **terms)
            assert caught.value.actual > caught.value.limit
            assert (await queue.stats()).total == 0
            await self.works(queue)

    async def test_one_oversized_message_refuses_the_batch_and_names_its_index(self) -> None:
        queue = await self.queue(archive=False)
        for name, terms in OVERSIZED.items():
            with refused(name, MessageTooLarge, match=r"^message 2: "):
                await queue.enqueue_many(["fine", Message("fine"), Message("bad", **terms), "fine"])
            assert (await queue.stats()).total == 0
            await self.works(queue)

    async def test_oversized_headers_of_a_whole_batch_are_refused(self) -> None:
        queue = await self.queue()
        with pytest.raises(MessageTooLarge):
            await queue.enqueue_many(["a", "b"], **OVERSIZED["one-header"])
        await self.works(queue)

    async def test_terms_at_their_limit_arrive_whole(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue("full", **FULL)
        twin, _ = await queue.enqueue_many([Message("twin", **FULL), Message("plain", headers=FULL["headers"])])
        assert twin == first
        taken = await self.take_all(queue, 2)
        assert [(d.value, d.headers) for d in taken] == [("full", FULL["headers"]), ("plain", FULL["headers"])]
        await taken[0].complete()
        record = await queue.get(first)
        assert record is not None
        assert record.headers == FULL["headers"]

    async def test_oversized_payloads_are_refused_in_every_form(self) -> None:
        queue = await self.queue(max_message_size=1000)
        for value in ("x" * 1000, b"x" * 1001, ["x" * 998], "é" * 500):
            with pytest.raises(MessageTooLarge, match="the limit is 1000"):
                await queue.enqueue(value)
            with pytest.raises(MessageTooLarge, match=r"^message 1: .* the limit is 1000"):
                await queue.enqueue_many(["fine", value])
        assert (await queue.stats()).total == 0
        await self.works(queue, "x" * 998)

    @pytest.mark.parametrize("levels", [TOO_DEEP_LEVELS, 200_000])
    async def test_values_nested_too_deep_are_refused(self, levels: int) -> None:
        queue = await self.queue()
        value = nested(levels)
        try:
            with pytest.raises(MessageTooLarge, match=r"the limit is \d+ levels"):
                await queue.enqueue(value)
            with pytest.raises(MessageTooLarge, match=r"^message 1: .* the limit is \d+ levels"):
                await queue.enqueue_many(["fine", value])
        finally:
            while value:  # one by one: the interpreter would go down all levels at once
                value = value.pop()
        assert (await queue.stats()).total == 0
        await self.works(queue, nested(400))

    async def test_content_types_have_a_limit(self) -> None:
        async def opened(size: int) -> Queue[Any]:
            codec: Format = _Verbose(size)
            return await self.broker.queue("jobs", codec=codec)

        with pytest.raises(ConfigError, match=f"the limit is {CONTENT_TYPE_BYTES}"):
            await opened(CONTENT_TYPE_BYTES + 1)
        await self.works(await opened(CONTENT_TYPE_BYTES))

    async def test_oversized_queue_names_are_refused(self) -> None:
        for name in ("q" * 129, "q" * HUGE):
            for call in (self.broker.queue, self.broker.create_queue, self.broker.delete_queue):
                with pytest.raises(ConfigError, match="128") as refused:
                    await call(name)
                assert len(str(refused.value)) < 1000
        await self.works(await self.queue("q" * 128))

    # ------------------------------------------------------------------ out

    async def test_oversized_results_are_refused_and_the_lease_stays(self) -> None:
        queue = await self.queue(max_message_size=1000)
        ids = await queue.enqueue_many([1, 2])
        first, second = await self.take_all(queue, 2)
        with pytest.raises(MessageTooLarge, match="the limit is 1000"):
            await queue.complete(first, "x" * 1000)
        with pytest.raises(MessageTooLarge, match=r"^result 1: .* the limit is 1000"):
            await queue.complete_many([first, second], ["fine", "x" * 1000])
        assert [await queue.status(id) for id in ids] == ["processing", "processing"]
        assert await queue.complete_many([first, second], ["x" * 998, None]) == [True, True]
        record = await queue.get(ids[0])
        assert record is not None
        assert record.result == "x" * 998

    async def test_results_nested_too_deep_are_refused_and_the_lease_stays(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        delivery = await self.take(queue)
        with pytest.raises(MessageTooLarge, match="levels"):
            await delivery.complete(nested(TOO_DEEP_LEVELS))
        await delivery.complete(nested(400))
        record = await queue.get(id)
        assert record is not None
        assert record.result == nested(400)

    async def test_worker_fails_the_attempt_of_an_oversized_result(self) -> None:
        queue = await self.queue(max_message_size=1000, max_attempts=1)
        bad, good = await queue.enqueue_many(["bad", "good"])
        async with working(queue.worker(lambda value: "x" * (1000 if value == "bad" else 10))):
            await eventually(lambda: self.is_now(queue, bad, "dead"), "the end of the bad one")
            await eventually(lambda: self.is_now(queue, good, "completed"), "the end of the good one")
        record = await queue.get(bad)
        assert record is not None
        assert "the limit is 1000" in (record.error or "")

    @pytest.mark.parametrize("size", [TEXT_BYTES + 1, HUGE])
    async def test_error_text_is_cut_with_a_mark_and_never_refused(self, size: int) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=5)
        id = await queue.enqueue(1)
        text = "é" + "x" * (size - 2)
        await (await self.take(queue)).fail(text)
        await self._cut(queue, id, text)
        assert await queue.fail_many([await self.take(queue)], [ValueError(text)]) == [True]
        await self._cut(queue, id, f"ValueError: {text}")
        await (await self.take(queue)).kill(text)
        await self._cut(queue, id, text)

    async def _cut(self, queue: Queue[Any], id: str, text: str) -> None:
        """What is kept of an error: its beginning, and a mark."""
        record = await queue.get(id)
        assert record is not None
        assert record.error is not None
        assert TEXT_BYTES - 4 <= len(record.error.encode()) <= TEXT_BYTES
        assert record.error.endswith(CUT_MARK)
        assert text.startswith(record.error.removesuffix(CUT_MARK))

    async def test_error_text_at_its_limit_is_kept_whole(self) -> None:
        queue = await self.queue()
        text = "x" * TEXT_BYTES
        (id,) = await self.bury(queue, 1, reason=text)
        record = await queue.get(id)
        assert record is not None
        assert record.error == text

    async def test_worker_cuts_the_text_of_errors_and_of_payloads_it_cannot_read(self) -> None:
        queue = await self.queue(max_attempts=1)

        def run(value: Any) -> None:
            raise Dead("é" * TEXT_BYTES) if value == "dead" else ValueError("x" * HUGE)

        ids = await queue.enqueue_many(["raises", "dead"])
        async with working(queue.worker(run)):
            for id in ids:
                await eventually(lambda id=id: self.is_now(queue, id, "dead"), "its end")  # type: ignore[misc]  # bound now
        for record in await queue.dead.list():
            assert record.error is not None
            assert record.error.endswith(CUT_MARK)
            assert len(record.error.encode()) <= TEXT_BYTES

    # ------------------------------------------------------------------ what goes other ways

    async def test_full_message_dies_moves_and_is_replayed_whole(self) -> None:
        """Headers at their limit, and what a move and a replay say besides."""
        morgue = await self.queue("morgue")
        queue = await self.queue(dead_letter="morgue")
        await queue.enqueue("full", headers=FULL["headers"])
        await (await self.take(queue)).kill("x" * 10 * TEXT_BYTES)
        moved = await self.take(morgue)
        assert moved.value == "full"
        assert {key: moved.headers[key] for key in FULL["headers"]} == FULL["headers"]
        assert moved.headers["dead_reason"].endswith(CUT_MARK)
        await moved.kill("x" * 10 * TEXT_BYTES)
        assert await morgue.dead.replay() == 1
        again = await self.take(morgue)
        assert {key: again.headers[key] for key in FULL["headers"]} == FULL["headers"]
        await again.complete("x" * 100_000)
        assert await morgue.archive.replay([again.id]) == 1
        assert (await self.take(morgue)).value == "full"

    async def test_oversized_ids_are_nobodys(self) -> None:
        queue = await self.queue()
        for id in ("x" * 10_000, "x" * HUGE):
            assert await queue.get(id) is None
            assert await queue.status(id) is None
            for letters in (queue.dead, queue.archive):
                assert await letters.delete([id]) == 0
                assert await letters.replay([id]) == 0
            with pytest.raises(MessageNotFound):
                await queue.cancel(id)
            with pytest.raises(MessageNotFound):
                await queue.wait(id, 0)
            for call in (queue.complete(id), queue.fail(id, "why"), queue.extend(id, 5)):
                with pytest.raises((MessageNotFound, LeaseLost)) as refused:
                    await call
                assert len(str(refused.value)) < 1000
            assert await queue.complete_many([id]) == [False]
        await self.works(queue)
