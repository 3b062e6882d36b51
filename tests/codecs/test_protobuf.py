"""Protocol Buffers: bytes of the schema we grew from, plain protobuf as another client has it, and typed queues."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import holdfast
from holdfast.codecs import Codec
from holdfast.errors import CodecError, ConfigError
from holdfast.stores.nats import tasks
from holdfast.stores.records import Envelope
from holdfast.v1.task_pb2 import Task, TaskMetadata


def old_schema() -> type:
    """The message classes as a client that knows only the old schema has them."""
    file = descriptor_pb2.FileDescriptorProto(name="old/task.proto", package="old", syntax="proto3")
    meta = file.message_type.add(name="TaskMetadata")
    for number, (name, kind) in enumerate([("priority", 5), ("timestamp", 3), ("retries", 5)], 1):
        meta.field.add(name=name, number=number, type=kind, label=1)
    task = file.message_type.add(name="Task")
    task.field.add(name="id", number=1, type=9, label=1)
    task.field.add(name="data", number=2, type=12, label=1)
    task.field.add(name="metadata", number=3, type=11, label=1, type_name=".old.TaskMetadata")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("old.Task"))


def test_bytes_of_the_old_schema_still_decode() -> None:
    old = old_schema()(id="old-1", data=b'{"n":1}')
    old.metadata.priority, old.metadata.timestamp, old.metadata.retries = 5, 1700000000000, 2
    task = tasks.read_task(old.SerializeToString())
    assert (task.id, task.data) == ("old-1", b'{"n":1}')
    assert (task.metadata.priority, task.metadata.timestamp, task.metadata.retries) == (5, 1700000000000, 2)
    assert tasks.enqueued_at(task) == 1700000000.0
    assert tasks.content_type(task) == "application/octet-stream"


def test_old_bytes_as_they_were_written_once_still_decode() -> None:
    written = bytes.fromhex("0a056f6c642d3112077b226e223a317d1a0b08051080d095ffbc311802")
    task = tasks.read_task(written)
    assert (task.id, task.data, task.metadata.priority, task.metadata.retries) == ("old-1", b'{"n":1}', 5, 2)
    assert task.metadata.timestamp == 1700000000000


def test_client_of_the_old_schema_reads_our_tasks() -> None:
    message = Envelope(b"payload", "application/json", {"k": "v"}, priority=9, max_attempts=4)
    ours = tasks.task_of("new-1", message, 1700000000.5, 0.0)
    theirs = old_schema().FromString(ours.SerializeToString())
    assert (theirs.id, theirs.data, theirs.metadata.priority) == ("new-1", b"payload", 9)
    assert theirs.metadata.timestamp == 1700000000500


def test_newer_format_is_refused_with_a_sentence() -> None:
    with pytest.raises(holdfast.StoreError, match="format 99"):
        tasks.read_task(Task(id="x", format=99).SerializeToString())


def test_protobuf_is_the_codec_of_protobuf_types() -> None:
    codec: Codec[TaskMetadata] = Codec(TaskMetadata)
    payload, content_type = codec.encode(TaskMetadata(priority=3))
    assert payload == TaskMetadata(priority=3).SerializeToString()
    assert content_type == "application/x-protobuf; messageType=holdfast.v1.TaskMetadata"
    assert codec.decode(payload, content_type) == TaskMetadata(priority=3)


def test_another_message_is_not_taken_for_ours() -> None:
    codec: Codec[TaskMetadata] = Codec(TaskMetadata)
    with pytest.raises(CodecError, match="TaskMetadata"):
        codec.encode(Task(id="x"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(CodecError, match="another protobuf message"):
        codec.decode(b"", "application/x-protobuf; messageType=holdfast.v1.Task")
    with pytest.raises(CodecError):
        codec.decode(b"\xff\xff", codec.content_type)
    with pytest.raises(ConfigError, match="protobuf message"):
        Codec(dict, "protobuf")


async def test_typed_queue_carries_protobuf_messages_and_their_name() -> None:
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("meta", TaskMetadata)
        id = await queue.enqueue(TaskMetadata(priority=7, retries=1), headers={"trace": "1"})
        delivery = await queue.dequeue()
        assert delivery is not None
        assert delivery.value == TaskMetadata(priority=7, retries=1)
        assert delivery.headers == {"protobuf_message": "holdfast.v1.TaskMetadata", "trace": "1"}
        await delivery.complete()
        record = await queue.get(id)
        assert record is not None
        assert record.value.priority == 7
