"""MessagePack, by msgspec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import ConfigError
from ..first_look import looked
from . import json
from .types import adapter, name_of, plain, read, uses_pydantic

CONTENT_TYPE = "application/msgpack"

encode_any: Callable[[Any], bytes] = msgspec.msgpack.Encoder(enc_hook=plain).encode
decode_any: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode


def encoder(type: Any) -> Callable[[Any], bytes]:
    """The function that encodes values of a type."""
    if uses_pydantic(type):
        model = adapter(type)
        return lambda value: encode_any(model.dump_python(value, mode="json"))
    return encode_any


def decoder(type: Any) -> Callable[[bytes], Any]:
    """The function that decodes and checks values of a type."""
    if type is None:
        return decode_any
    if uses_pydantic(type):
        # Strict models read instants and the like from JSON only, so that is what they are given.
        validate = adapter(type).validate_json
        return lambda data: validate(json.encode_any(decode_any(data)))
    try:
        return looked(lambda: msgspec.msgpack.Decoder(type, dec_hook=read)).decode
    except TypeError as error:
        raise ConfigError(f"{name_of(type)} cannot be the type of a queue: {error}") from error
