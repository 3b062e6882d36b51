"""unpack and pack: payloads of every kind as columns, and back."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import holdfast
from holdfast.codecs import codec_for
from holdfast.spark import pack, unpack
from holdfast.spark.shapes import shape
from holdfast.v1 import task_pb2

NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


class Place(msgspec.Struct):
    city: str
    code: int | None = None


class Email(msgspec.Struct):
    to: str
    weight: float
    sent: datetime.datetime
    place: Place
    tags: list[str] = []
    counts: dict[str, int] = {}
    raw: bytes = b""
    key: uuid.UUID | None = None
    any: Any = None


@dataclasses.dataclass
class Card:
    to: str
    size: int


class Note(TypedDict):
    to: str
    size: NotRequired[int]


class Letter(pydantic.BaseModel):
    to: str
    size: int = 3


EMAIL = Email(
    "ada@example.com", 1.5, NOON, Place("Rome", 7), ["a", "b"], {"x": 1}, b"\x00\xff",
    uuid.UUID(int=5), {"free": [1]},
)  # fmt: skip


def rows_of(spark: SparkSession, values: list[Any], type: Any, codec: str | None = None) -> Any:
    made = [codec_for(type, codec).encode(value) for value in values]
    rows = [(f"id-{number}", bytearray(payload), kind, 4) for number, (payload, kind) in enumerate(made)]
    return spark.createDataFrame(rows, "id string, value binary, content_type string, priority int")


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_struct_with_everything_goes_both_ways(spark: SparkSession, codec: str) -> None:
    columns = unpack(rows_of(spark, [EMAIL], Email, codec), Email)
    assert columns.columns[:3] == ["id", "priority", "to"]
    [row] = columns.collect()
    assert (row.id, row.priority, row.to, row.weight, row.place.city, row.place.code) == (
        "id-0", 4, "ada@example.com", 1.5, "Rome", 7,
    )  # fmt: skip
    assert (row.tags, row.counts, bytes(row.raw), row.key) == (["a", "b"], {"x": 1}, b"\x00\xff", str(uuid.UUID(int=5)))
    assert (row.any, row.sent.astimezone(datetime.UTC)) == ('{"free":[1]}', NOON)
    [back] = pack(columns.drop("any"), Email, codec=codec).collect()
    again = codec_for(Email, codec).decode(bytes(back.value), back.content_type)
    assert again == msgspec.structs.replace(EMAIL, any=None)
    assert (back.id, back.priority) == ("id-0", 4)


@pytest.mark.parametrize(
    ("type", "value"),
    [(Card, Card("ada", 2)), (Note, {"to": "ada", "size": 2}), (Letter, Letter(to="ada", size=2))],
    ids=["dataclass", "TypedDict", "pydantic"],
)
def test_other_record_types_go_both_ways(spark: SparkSession, type: Any, value: Any) -> None:
    columns = unpack(rows_of(spark, [value], type), type)
    assert [(row.to, row["size"]) for row in columns.collect()] == [("ada", 2)]
    [back] = pack(columns, type).collect()
    assert codec_for(type, None).decode(bytes(back.value), back.content_type) == value


def test_protobuf_goes_both_ways(spark: SparkSession) -> None:
    task = task_pb2.Task(id="t", data=b"\x01", metadata=task_pb2.TaskMetadata(priority=3))
    columns = unpack(rows_of(spark, [task], task_pb2.Task).drop("id", "priority"), task_pb2.Task)
    [row] = columns.collect()
    assert (row.id, bytes(row.data), row.metadata.priority) == ("t", b"\x01", 3)
    [back] = pack(columns, task_pb2.Task, columns=columns.columns).collect()
    assert back.content_type == "application/x-protobuf; messageType=holdfast.v1.Task"
    assert codec_for(task_pb2.Task, None).decode(bytes(back.value), back.content_type) == task


def test_without_a_type_a_row_is_an_object(spark: SparkSession) -> None:
    [row] = pack(spark.createDataFrame([("ada", 2, 9)], "to string, size long, priority int")).collect()
    assert (bytes(row.value), row.content_type, row.priority) == (b'{"to":"ada","size":2}', "application/json", 9)


def test_a_struct_column_holds_what_would_clash(spark: SparkSession) -> None:
    Part = msgspec.defstruct("Part", [("size", int, 3)], module="__main__")  # no executor can import it
    parts = ("parts", list[Part] | None, msgspec.field(default_factory=list))
    Job = msgspec.defstruct("Job", [("id", str), parts], rename={"parts": "pieces"}, module="__main__")

    df = rows_of(spark, [Job("mine", [Part()])], Job)
    with pytest.raises(holdfast.ConfigError, match="both the message and its value"):
        unpack(df, Job)
    columns = unpack(df, Job, into="job")
    assert [(row.id, row.job.id, row.job.pieces[0]["size"]) for row in columns.collect()] == [("id-0", "mine", 3)]
    [back] = pack(columns, Job, columns="job").collect()
    assert bytes(back.value) == b'{"id":"mine","pieces":[{"size":3}]}'


def test_values_that_cannot_be_read(spark: SparkSession) -> None:
    df = rows_of(spark, [{"to": "ada", "size": 1}, {"to": 5}], None)
    with pytest.raises(PySparkException, match="cannot decode"):
        unpack(df, Card).collect()
    good, bad = unpack(df, Card, bad="null").orderBy("id").collect()
    assert (good.to, good.unpack_error) == ("ada", None)
    assert (bad.id, bad.to) == ("id-1", None)
    assert "cannot decode" in bad.unpack_error


def test_bad_input_is_said_at_once(spark: SparkSession) -> None:
    df = spark.createDataFrame([("x", 1)], "id string, number int")
    with pytest.raises(holdfast.ConfigError, match="no column 'value'"):
        unpack(df, Card)
    with pytest.raises(holdfast.ConfigError, match="has no fields"):
        shape(int)
    with pytest.raises(holdfast.ConfigError, match="unknown codec"):
        pack(df, codec="pickle")
    with pytest.raises(holdfast.ConfigError, match="did you mean 'number'"):
        pack(df, columns=["numbr"])
    with pytest.raises(holdfast.ConfigError, match="unknown way"):
        unpack(df.withColumnsRenamed({"id": "value"}), Card, bad="skip")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(holdfast.ConfigError, match="every column"):
        pack(df.drop("number"))


class Reading(msgspec.Struct):
    number: int
    ratio: decimal.Decimal
    seen: datetime.datetime | None = None
    day: datetime.date | None = None
    any: Any = None


GOOD = b'{"number":1,"ratio":"2.5"}'
BAD_VALUES = [
    (b'{"number":9223372036854775808,"ratio":"1"}', "application/json"),
    (b'{"number":-99999999999999999999999,"ratio":"1"}', "application/json"),
    (b'{"number":1,"ratio":"123456789012345678901234567890.5"}', "application/json"),
    (b'{"number":1,"ratio":"NaN"}', "application/json"),
    (b'{"number":1,"ratio":"1","seen":"9999-12-31T23:59:59-14:00"}', "application/json"),
    (b'{"number":1,"ratio":"1","day":"10000-01-01"}', "application/json"),
    (b'{"number":1,"ratio":"1","any":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "application/json"),
    (b'{"number":1.5,"ratio":"1"}', "application/json"),
    (b"\xff\xfe", "application/json"),
    (b"", "application/json"),
    (GOOD, "image/png"),
    (GOOD, "application/x-protobuf"),
    (GOOD, None),
    (None, "application/json"),
]


def test_bad_values_of_every_kind_leave_the_good_ones_alone(spark: SparkSession) -> None:
    """Whatever a value does to its reader or to Arrow, its row says so and keeps what it was."""
    was = [(GOOD, "application/json"), *BAD_VALUES, (GOOD, "application/json")]
    rows = [
        (f"id-{number:02}", None if value is None else bytearray(value), kind)
        for number, (value, kind) in enumerate(was)
    ]
    df = spark.createDataFrame(rows, "id string, value binary, content_type string")
    found = unpack(df, Reading, bad="null").orderBy("id").collect()
    assert [row.id for row in found] == [row[0] for row in rows]
    for row in (found[0], found[-1]):
        assert (row.number, float(row.ratio), row.unpack_error) == (1, 2.5, None)
        assert (row.unpack_value, row.unpack_content_type) == (None, None)
    for row, (value, kind) in zip(found[1:-1], BAD_VALUES, strict=True):
        assert row.unpack_error, (value, kind)
        assert (row.number, row.ratio, row.seen, row.any) == (None, None, None, None)
        assert (row.unpack_value and bytes(row.unpack_value)) == value or not value
        assert row.unpack_content_type == kind
    with pytest.raises(PySparkException, match="message id-01: it does not fit its columns") as failed:
        unpack(df.where("id < 'id-02'"), Reading).collect()
    assert len(str(failed.value).splitlines()) <= 4, str(failed.value)


class Tree(msgspec.Struct):
    leaves: list[Tree]


def test_a_type_that_holds_itself_is_said_at_once() -> None:
    with pytest.raises(holdfast.ConfigError, match="Tree holds itself"):
        shape(Tree)
