"""Protocol Buffers, for queues whose type is a generated message class. Its full name travels with every message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import CodecError, ConfigError
from .types import name_of

CONTENT_TYPE = "application/x-protobuf"
HEADER = "protobuf_message"  # the full name, such as orders.v1.Order


def is_message(type_: Any) -> bool:
    """Whether a type is a generated message class. With such a class, protobuf is installed."""
    return isinstance(type_, type) and hasattr(type_, "DESCRIPTOR") and hasattr(type_, "SerializeToString")


def full_name(type_: Any) -> str:
    """The name of the message with its package; ConfigError."""
    if not is_message(type_):
        raise ConfigError(f"codec protobuf: the type of the queue must be a protobuf message, not {name_of(type_)}")
    return str(type_.DESCRIPTOR.full_name)


def content_type(type_: Any) -> str:
    """The content type of one message type, so that no reader takes one message for another."""
    return f"{CONTENT_TYPE}; messageType={full_name(type_)}"


def headers(type_: Any) -> dict[str, str]:
    return {HEADER: full_name(type_)}


def encoder(type_: Any) -> Callable[[Any], bytes]:
    """The function that encodes messages of a type."""
    name = full_name(type_)

    def encode(value: Any) -> bytes:
        if not isinstance(value, type_):
            raise CodecError(f"expected {name}, got {value.__class__.__qualname__}")
        data: bytes = value.SerializeToString()
        return data

    return encode


def decoder(type_: Any) -> Callable[[bytes], Any]:
    """The function that decodes messages of a type."""
    full_name(type_)
    decode: Callable[[bytes], Any] = type_.FromString
    return decode


def stranger(type_: Any) -> Callable[[bytes], Any]:
    """For a protobuf message of another type, or of none that is known: its bytes could be read as anything."""

    def refuse(data: bytes) -> Any:
        raise CodecError(f"expected {name_of(type_)}, got another protobuf message; see its header {HEADER!r}")

    return refuse
