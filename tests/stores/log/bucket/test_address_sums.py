"""What an upload loses on its way: with `checksum_algorithm` the server compares a SHA-256 of the body, and refuses."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import admin
from holdfast.errors import StoreError
from tests.servers.proxy import Faults, Proxy

from .fixtures import Place


async def test_a_flipped_bit_of_an_upload_is_refused(s3: Place) -> None:
    with Proxy(s3.server.port) as proxy:
        url = s3.server.url(s3.prefix, endpoint=proxy.endpoint)
        async with holdfast.connect(f"{url}&operation_timeout=2&checksum_algorithm=SHA256") as broker:
            queue = await broker.queue("jobs")
            sent = [await queue.enqueue("sound")]
            proxy.faults = Faults(flipped=1.0)
            for _ in range(3):
                with pytest.raises(StoreError):
                    await queue.enqueue("spoiled")
            proxy.faults = Faults()
            sent.append(await queue.enqueue("sound again"))
            assert proxy.counts.faults["flipped"] >= 3
            assert [each.id for each in await queue.dequeue_many(10)] == sent
            assert (await admin.scrub(broker)).wrong == []
