"""What a client of another language sees: the task on the server, read with nothing but task.proto."""

from __future__ import annotations

import time
from pathlib import Path

import nats as driver

import holdfast
import holdfast.v1
from holdfast.stores.nats.store import NatsStore
from holdfast.v1 import task_pb2
from tests.servers.nats import Server
from tests.stores.nats.proto_text import classes, schema

PROTO = Path(holdfast.v1.__file__).with_name("task.proto")
PACKAGE = "holdfast.v1"


async def test_a_client_that_has_only_the_proto_file_reads_the_task(server: Server, broker: holdfast.Broker) -> None:
    queue = await broker.queue("mail.out")
    id = await queue.enqueue({"n": 1}, priority=9, headers={"trace": "ü"}, max_attempts=7)
    store = broker.store
    assert isinstance(store, NatsStore)
    plain = await driver.connect(server.url)
    try:
        stream, subject = f"{store.prefix}=mail~out=tasks", f"{store.prefix}.mail~out.9.{id}"
        found = await plain.jetstream().get_msg(stream, subject=subject)
    finally:
        await plain.close()
    task = classes(PROTO, PACKAGE)["Task"].FromString(found.data)
    assert (task.id, task.data, task.content_type) == (id, b'{"n":1}', "application/json")
    assert (task.metadata.priority, task.metadata.retries, task.max_attempts) == (9, 0, 7)
    assert dict(task.headers) == {"trace": "ü"}
    assert abs(task.metadata.timestamp / 1000 - time.time()) < 60


async def test_a_client_that_has_only_the_proto_file_reads_the_outcome(server: Server, broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    id = await queue.enqueue("work")
    delivery = await queue.dequeue()
    assert delivery is not None
    await delivery.complete({"sent": True})
    store = broker.store
    assert isinstance(store, NatsStore)
    plain = await driver.connect(server.url)
    try:
        found = await plain.jetstream().get_msg(f"{store.prefix}=jobs=done", subject=f"{store.prefix}._.done.jobs.{id}")
    finally:
        await plain.close()
    record = classes(PROTO, PACKAGE)["Record"].FromString(found.data)
    assert (record.task.id, record.task.data, record.status, record.result) == (
        id,
        b'"work"',
        "completed",
        b'{"sent":true}',
    )
    assert (record.place, record.attempts) == (2, 1)


def test_the_generated_code_is_that_of_the_proto_file() -> None:
    ours = {message.name: message for message in schema(PROTO, PACKAGE).message_type}
    generated = task_pb2.DESCRIPTOR.message_types_by_name
    assert set(ours) == set(generated) == {"Task", "TaskMetadata", "Attempt", "Record"}
    for name, message in ours.items():
        theirs = generated[name]
        assert {(f.name, f.number, f.type) for f in message.field} == {
            (f.name, f.number, f.type) for f in theirs.fields
        }
