"""Bytes as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import CodecError
from .types import name_of

CONTENT_TYPE = "application/octet-stream"

_BYTES = (bytes, bytearray, memoryview)


def encoder(type: Any) -> Callable[[Any], bytes]:
    """The function that passes bytes on."""

    def encode(value: Any) -> bytes:
        if not isinstance(value, _BYTES):
            raise CodecError(f"expected bytes, got {value.__class__.__qualname__}")
        return bytes(value)

    return encode


def decoder(type: Any) -> Callable[[bytes], Any]:
    """The function that gives bytes back as the type of the queue."""
    if type in (None, bytes, Any, object):
        return bytes
    if type in _BYTES:
        make: Callable[[bytes], Any] = type
        return make

    def refuse(data: bytes) -> Any:
        raise CodecError(f"expected {name_of(type)}, got raw bytes")

    return refuse
