"""What a type checker must see in the blocking API; checked by tests/test_typing.py, never run."""

from datetime import datetime
from typing import Any, assert_type

import msgspec

import holdfast
from holdfast import Message, Record
from holdfast.sync import Broker, Delivery, Queue


class Email(msgspec.Struct):
    to: str


def main() -> None:
    with holdfast.sync.connect("memory://") as broker:
        assert_type(broker, Broker)
        emails = broker.queue("emails", Email, lease=60)
        assert_type(emails, Queue[Email])
        assert_type(broker.queue("plain"), Queue[Any])

        assert_type(emails.enqueue(Email("a"), priority=5), str)
        assert_type(emails.enqueue_many([Email("a"), Message(Email("b"))]), list[str])
        emails.enqueue("text")  # type: ignore[call-overload]

        delivery = emails.dequeue(wait=5)
        assert_type(delivery, Delivery[Email] | None)
        assert delivery is not None
        assert_type(delivery.value, Email)
        assert_type(delivery.extend(5), datetime)
        assert_type(emails.complete_many([delivery, delivery.receipt]), list[bool])
        delivery.complete({"sent": True})

        assert_type(emails.get("id"), Record[Email] | None)
        assert_type(emails.dead.list(), list[Record[Email]])
        assert_type(emails.worker(print), holdfast.sync.Worker)

    app = holdfast.sync.App("memory://")

    @app.handler("emails", Email)
    def send(email: Email) -> bool:
        return bool(email.to)

    assert_type(send.enqueue(Email("a")), str)
    assert_type(send(Email("a")), bool)
    assert_type(send.queue(), Queue[Email])
    assert_type(app.queue("emails", Email), Queue[Email])
    assert_type(app.broker().create_queue("more", Email), Queue[Email])
    try:
        send.enqueue(Email("a"))
    except holdfast.sync.UnknownOutcome as error:
        assert_type(error.retry(), list[str])
