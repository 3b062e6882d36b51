"""JSON, by msgspec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import ConfigError
from ..first_look import looked
from .types import adapter, name_of, plain, read, uses_pydantic

CONTENT_TYPE = "application/json"

encode_any: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=plain).encode
decode_any: Callable[[bytes], Any] = msgspec.json.Decoder().decode


def encoder(type: Any) -> Callable[[Any], bytes]:
    """The function that encodes values of a type."""
    if uses_pydantic(type):
        dump: Callable[[Any], bytes] = adapter(type).dump_json
        return dump
    return encode_any


def decoder(type: Any) -> Callable[[bytes], Any]:
    """The function that decodes and checks values of a type."""
    if type is None:
        return decode_any
    if uses_pydantic(type):
        validate: Callable[[bytes], Any] = adapter(type).validate_json
        return validate
    try:
        return looked(lambda: msgspec.json.Decoder(type, dec_hook=read)).decode
    except TypeError as error:
        raise ConfigError(f"{name_of(type)} cannot be the type of a queue: {error}") from error
