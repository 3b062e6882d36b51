"""A .proto file as any other client has it: read as text, made into classes by plain protobuf, no generated code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SCALARS = {"double": 1, "int64": 3, "int32": 5, "bool": 8, "string": 9, "bytes": 12}
_MESSAGE, _ENUM = 11, 14
_OPTIONAL, _REPEATED = 1, 3
_ENUM_TEXT = r"enum (\w+) \{(.*?)\}"


def classes(path: Path, package: str) -> dict[str, Any]:
    """The message classes of a file, by name."""
    pool = descriptor_pool.DescriptorPool()
    file = schema(path, package)
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{message.name}"))
        for message in file.message_type
    }


def schema(path: Path, package: str) -> descriptor_pb2.FileDescriptorProto:
    """As much of the language as our file needs; anything else in it is an error."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    assert f"package {package};" in text
    file = descriptor_pb2.FileDescriptorProto(name=path.name, package=package, syntax="proto3")
    for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        message = file.message_type.add(name=name)
        for enum in re.finditer(_ENUM_TEXT, body, re.DOTALL):
            _enum(message, *enum.groups())
        body = re.sub(_ENUM_TEXT, "", body, flags=re.DOTALL)
        for line in filter(None, map(str.strip, body.split(";"))):
            found = re.fullmatch(r"(optional |repeated )?([\w.<>, ]+?) (\w+) = (\d+)", line)
            assert found is not None, line
            _field(message, f".{package}", *found.groups())
    return file


def _enum(message: Any, name: str, body: str) -> None:
    enum = message.enum_type.add(name=name)
    for value, number in re.findall(r"(\w+) = (\d+)", body):
        enum.value.add(name=value, number=int(number))


def _field(message: Any, package: str, word: str | None, kind: str, name: str, number: str) -> None:
    label = _REPEATED if word == "repeated " else _OPTIONAL
    field = message.field.add(name=name, number=int(number), label=label)
    if word == "optional ":
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    if entry := re.fullmatch(r"map<(\w+), (\w+)>", kind):
        made = message.nested_type.add(name=f"{name.title()}Entry")
        made.options.map_entry = True
        for place, (part, what) in enumerate(zip(("key", "value"), entry.groups(), strict=True), 1):
            made.field.add(name=part, number=place, type=_SCALARS[what], label=_OPTIONAL)
        field.label, field.type = _REPEATED, _MESSAGE
        field.type_name = f"{package}.{message.name}.{made.name}"
    elif kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind in {enum.name for enum in message.enum_type}:
        field.type, field.type_name = _ENUM, f"{package}.{message.name}.{kind}"
    else:
        field.type, field.type_name = _MESSAGE, f"{package}.{kind}"
