"""What a type checker must see in the async API; checked by tests/test_typing.py, never run."""

from datetime import datetime
from typing import Any, assert_type

import msgspec

import holdfast
from holdfast import Delivery, Message, Queue, Record


class Email(msgspec.Struct):
    to: str


async def main() -> None:
    async with holdfast.connect("memory://") as broker:
        assert_type(broker, holdfast.Broker)
        emails = await broker.queue("emails", Email, lease=60, codec="msgpack")
        assert_type(emails, Queue[Email])
        assert_type(await broker.queue("plain"), Queue[Any])
        assert_type(await broker.create_queue("more", Email), Queue[Email])
        assert_type(await broker.create_queue("plain"), Queue[Any])
        assert_type(await broker.queue("either", Email | int), Queue[Any])

        assert_type(await emails.enqueue(Email("a"), priority=5), str)
        assert_type(await emails.enqueue_many([Email("a"), Message(Email("b"), priority=5)]), list[str])
        await emails.enqueue("text")  # type: ignore[call-overload]
        await emails.enqueue(Email("a"), 5)  # type: ignore[call-overload]
        await emails.enqueue(Email("a"), prioritty=5)  # type: ignore[call-overload]

        delivery = await emails.dequeue(wait=5)
        assert_type(delivery, Delivery[Email] | None)
        assert delivery is not None
        assert_type(delivery.value, Email)
        assert_type(await delivery.extend(5), datetime)
        for one in await emails.dequeue_many(10):
            assert_type(one, Delivery[Email])
        assert_type(await emails.complete_many([delivery, delivery.receipt]), list[bool])
        await emails.complete(5)  # type: ignore[arg-type]

        record = await emails.get("id")
        assert_type(record, Record[Email] | None)
        assert_type(await emails.wait("id", 5), Record[Email])
        assert_type(await emails.dead.list(), list[Record[Email]])
        assert_type((await emails.archive.list())[0].value, Email)
        assert_type(emails.worker(print), holdfast.Worker)

    assert_type(await holdfast.connect(), holdfast.Broker)
    assert_type(await holdfast.App("memory://").queue("emails", Email), Queue[Email])
