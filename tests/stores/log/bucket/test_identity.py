"""The format of a bucket lies in its identity, by whose date copies are known: raising one must not hide the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest

from holdfast.config import QueueOptions
from holdfast.stores import formats
from holdfast.stores.log.bucket import identity
from holdfast.stores.log.bucket.space import CloudSpace
from holdfast.stores.log.bucket.store import LateStore
from holdfast.testing.clock import ManualClock
from tests.stores.log.bucket.far_bucket import FarBucket, process

HOUR = 3600.0


@pytest.fixture
def bucket() -> FarBucket:
    return FarBucket(ManualClock())


@pytest.fixture
async def store(bucket: FarBucket) -> AsyncIterator[LateStore]:
    """Of the first format, for an hour."""
    first, _ = await process(bucket)
    await first.create_queue("q", QueueOptions())
    await first.close()
    found = msgspec.json.decode(bucket.objects[identity.KEY][0])
    bucket.write(identity.KEY, msgspec.json.encode(found | {"format": formats.FIRST, "sum": 0}), "overwrite")
    bucket.clock.advance(HOUR)
    store, _ = await process(bucket)
    yield store
    await store.close()


def space_of(store: LateStore) -> CloudSpace:
    return cast(CloudSpace, store.space)


async def test_a_raised_bucket_is_no_copy(store: LateStore, bucket: FarBucket) -> None:
    other, _ = await process(bucket)
    assert (store.format.number, space_of(store).epoch) == (formats.FIRST, 0.0)
    await store.raise_format()
    await store.raise_format()
    bucket.clock.advance(HOUR)
    third, _ = await process(bucket)
    await space_of(other).identify()
    for each in (store, other, third):
        assert (each.format.number, space_of(each).epoch) == (formats.LOG, 0.0)
    for each in (other, third):
        await each.close()


async def test_a_bucket_that_is_raised_after_a_rewrite_knows_of_it(store: LateStore, bucket: FarBucket) -> None:
    bucket.rewrite(bucket.named())
    await store.raise_format()
    assert (store.format.number, space_of(store).epoch) == (formats.LOG, bucket.clock())


async def test_queues_without_an_identity_are_of_the_first_format(store: LateStore, bucket: FarBucket) -> None:
    await store.close()
    bucket.remove([identity.KEY])
    again, _ = await process(bucket)
    assert again.format.number == formats.LOG  # whoever wrote the options knew it
    await again.close()
    bucket.remove([identity.KEY])
    config = msgspec.json.decode(bucket.objects["queues/q"][0].partition(b"\x9acrc")[0])
    bucket.write("queues/q", msgspec.json.encode(config | {"store": ""}), "overwrite")
    again, _ = await process(bucket)
    assert again.format.number == formats.FIRST
    await again.close()
