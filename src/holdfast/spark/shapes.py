"""The type of a queue as Spark columns: what `unpack` makes and `pack` takes."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from pyspark.sql import types as sql

from ..codecs import protobuf
from ..codecs.types import members, name_of
from ..errors import ConfigError

Plain: TypeAlias = Callable[[Any], Any]

_SCALARS: dict[Any, Callable[[], sql.DataType]] = {
    str: sql.StringType,
    bytes: sql.BinaryType,
    bytearray: sql.BinaryType,
    bool: sql.BooleanType,
    int: sql.LongType,
    float: sql.DoubleType,
    datetime.datetime: sql.TimestampType,
    datetime.date: sql.DateType,
    decimal.Decimal: lambda: sql.DecimalType(38, 18),
    uuid.UUID: sql.StringType,
}
_LISTS = (list, set, frozenset, tuple)
_MAPS = (dict, Mapping)
_PROTO_SCALARS: dict[int, Callable[[], sql.DataType]] = {  # FieldDescriptor.CPPTYPE_*
    1: sql.LongType,
    2: sql.LongType,
    3: sql.LongType,
    4: sql.LongType,
    5: sql.DoubleType,
    6: sql.DoubleType,
    7: sql.BooleanType,
    8: sql.LongType,  # an enum travels as its number
}


def shape(type_: Any) -> sql.StructType:
    """The columns of a record type; ConfigError when it is none."""
    try:
        made = data_type(type_)
    except RecursionError:
        raise ConfigError(f"{name_of(type_)} holds itself: a table cannot have columns without end") from None
    if not isinstance(made, sql.StructType):
        raise ConfigError(
            f"{name_of(type_)} has no fields to make columns of; give a Struct, dataclass, TypedDict, pydantic model "
            "or protobuf message"
        )
    return made


def data_type(type_: Any) -> sql.DataType:
    """The Spark type of a Python type. What has no column form of its own (Any, mixed unions) is JSON text."""
    type_ = _bare(type_)
    if type_ in _SCALARS:
        return _SCALARS[type_]()
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return data_type(type(next(iter(type_)).value))
    if protobuf.is_message(type_):
        return _message(type_.DESCRIPTOR)
    if (fields := fields_of(type_)) is not None:
        return sql.StructType([sql.StructField(name, data_type(each)) for name, each in fields.items()])
    return _container(type_)


def fields_of(type_: Any) -> dict[str, Any] | None:
    """The fields of a record type by the names they have on the wire, or None."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(type_)}
    if getattr(type_, "__pydantic_root_model__", False):
        return None  # it is written as what is in it
    if isinstance(type_, type) and hasattr(type_, "model_fields"):  # pydantic
        own = type_.model_fields.items()
        return {field.serialization_alias or field.alias or name: field.annotation for name, field in own}
    if dataclasses.is_dataclass(type_):
        hints = typing.get_type_hints(type_)
        return {field.name: hints[field.name] for field in dataclasses.fields(type_)}
    if typing.is_typeddict(type_):
        return dict(typing.get_type_hints(type_))
    return None


def plainer(spark_type: sql.DataType) -> Plain:
    """A function from a value as JSON knows it (numbers, text, lists, dicts) to what Arrow puts in such a column."""
    if isinstance(spark_type, sql.StructType):
        parts = [(field.name, plainer(field.dataType)) for field in spark_type.fields]
        return _optional(
            lambda value: {name: part(_member(value, name, at)) for at, (name, part) in enumerate(parts, -len(parts))}
        )
    if isinstance(spark_type, sql.ArrayType):
        part = plainer(spark_type.elementType)
        return _optional(lambda value: [part(each) for each in value])
    if isinstance(spark_type, sql.MapType):
        part = plainer(spark_type.valueType)
        return _optional(lambda value: [(key, part(each)) for key, each in value.items()])
    if isinstance(spark_type, sql.StringType):
        return _optional(_text)
    if isinstance(spark_type, sql.DoubleType):
        return _optional(float)
    if isinstance(spark_type, sql.TimestampType):
        return _optional(_in_utc)
    return lambda value: value


def _member(value: Any, name: str, at: int) -> Any:
    """Of an object, or of a record that is written as a list: its fields in order, after its tag where it has one."""
    return value[at] if isinstance(value, list) else value.get(name)


def _optional(function: Plain) -> Plain:
    return lambda value: None if value is None else function(value)


def _in_utc(value: Any) -> Any:
    """Arrow takes an instant whose year in UTC is 0 or 10000, and no Python reads it again; OverflowError."""
    return value if getattr(value, "tzinfo", None) is None else value.astimezone(datetime.UTC)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, uuid.UUID) else msgspec.json.encode(value).decode()


def _bare(type_: Any) -> Any:
    """Without None, Annotated, NotRequired and NewType."""
    while True:
        kinds = [each for each in members(type_) if each is not types.NoneType]
        if len(kinds) == 1 and kinds[0] is not type_:
            type_ = kinds[0]
        elif typing.get_origin(type_) in (typing.Annotated, typing.Required, typing.NotRequired):
            type_ = typing.get_args(type_)[0]
        elif hasattr(type_, "__supertype__"):
            type_ = type_.__supertype__
        else:
            return type_


def _container(type_: Any) -> sql.DataType:
    origin, arguments = typing.get_origin(type_) or type_, typing.get_args(type_)
    if origin is typing.Literal:
        kinds = {type(each) for each in arguments}
        return data_type(kinds.pop()) if len(kinds) == 1 else sql.StringType()
    if isinstance(origin, type) and issubclass(origin, _LISTS) and len({*arguments} - {...}) == 1:
        return sql.ArrayType(data_type(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, _MAPS) and len(arguments) == 2 and arguments[0] is str:
        return sql.MapType(sql.StringType(), data_type(arguments[1]))
    return sql.StringType()


def _message(descriptor: Any) -> sql.StructType:
    return sql.StructType([sql.StructField(field.name, _proto_field(field)) for field in descriptor.fields])


def _proto_field(field: Any) -> sql.DataType:
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        return sql.MapType(sql.StringType(), _proto_scalar(nested.fields_by_name["value"]))
    one = _proto_scalar(field)
    repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    return sql.ArrayType(one) if repeated else one


def _proto_scalar(field: Any) -> sql.DataType:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return _message(field.message_type)
    if field.type == field.TYPE_BYTES:
        return sql.BinaryType()
    return _PROTO_SCALARS.get(field.cpp_type, sql.StringType)()
