"""Where bytes are made. A codec is two functions, `encode` and `decode`, and the content type that travels with them.

JSON is the default; msgpack, protobuf and raw bytes are the others. Never pickle. Another format is one more module
here, listed in `_FORMATS` and `_BY_CONTENT_TYPE`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from .. import limits
from ..config import unknown
from ..errors import CodecError, ConfigError
from . import json, protobuf
from .types import Checker, checker, name_of

T = TypeVar("T")
Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]

RAW = "application/octet-stream"
_BYTES = (bytes, bytearray, memoryview)
_PLAIN = {bytes}
_FORMATS = ("json", "msgpack", "protobuf", "raw")
_BY_CONTENT_TYPE = {
    "application/json": "json",
    "application/msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
    "application/protobuf": "protobuf",
    "application/x-protobuf": "protobuf",
    RAW: "raw",
}


class Format(Protocol):
    """What a user may give as `codec`: a content type and the two functions."""

    content_type: str

    def encode(self, value: Any) -> bytes: ...

    def decode(self, data: bytes) -> Any: ...


class Codec(Generic[T]):
    """How the values of one queue become payloads and come back."""

    def __init__(self, type: Any = None, codec: str | Format | None = None) -> None:
        self.type = None if type is Any or type is object else type
        self.content_type: str
        self.headers: dict[str, str] | None = None  # what every message says of its payload, beyond its content type
        self._decoders: dict[str, Decode] = {}
        self._check: Checker | None = None
        if codec is None or isinstance(codec, str):
            self._use_named(codec or _format_of(self.type))
        else:
            self._use_own(codec)

    def _use_named(self, name: str) -> None:
        if name not in _FORMATS:
            raise ConfigError(unknown("unknown codec", name, _FORMATS))
        module = _module(name)
        self.content_type = module.CONTENT_TYPE
        if name == "protobuf":
            self.content_type, self.headers = protobuf.content_type(self.type), protobuf.headers(self.type)
        self._encode: Encode = module.encoder(self.type)
        self._decoders[self.content_type] = module.decoder(self.type)
        # Raw bytes on an untyped queue stay bytes; on a typed one they are a mistake that the check names.
        self._bytes_pass = self.type is None and name != "raw"
        self._as_is = self._bytes_pass or name == "raw"
        if self.type is not None and name not in ("raw", "protobuf"):
            self._check = checker(self.type)

    def _use_own(self, codec: Format) -> None:
        if not all(hasattr(codec, name) for name in ("content_type", "encode", "decode")):
            raise ConfigError(f"codec: {codec!r} needs `content_type`, `encode` and `decode`")
        content_type, encode = codec.content_type, codec.encode
        if not isinstance(content_type, str) or not content_type:
            raise ConfigError(f"codec: the content type of {codec!r} is text, not {content_type!r}")
        limits.check_content_type(len(content_type.encode("utf-8", "replace")))

        def checked(value: Any) -> bytes:  # what is no bytes would be stored, and keep its neighbours from being read
            data = encode(value)
            if not isinstance(data, _BYTES):
                raise CodecError(f"the codec of {content_type} made {_shown(data)}, not bytes")
            return bytes(data)

        self.content_type, self._encode, self._bytes_pass = content_type, checked, False
        self._as_is = False
        self._decoders[codec.content_type] = codec.decode

    def encode(self, value: T) -> tuple[bytes, str]:
        """The payload and its content type; CodecError."""
        try:
            if self._bytes_pass and type(value) in _BYTES:  # isinstance takes four times as long
                raw: Any = value
                return raw if type(raw) is bytes else bytes(raw), RAW
            if self._check is not None:
                self._check(value)
            return self._encode(value), self.content_type
        except CodecError:
            raise
        except RecursionError:
            raise limits.too_deep() from None
        except Exception as error:
            raise CodecError(f"cannot encode {_shown(value)}: {error}") from error

    def encode_many(self, values: Sequence[Any], *, unless: type) -> tuple[list[bytes], str] | None:
        """All payloads and the content type they share; None: one by one tells which is different, or wrong."""
        kinds = set(map(type, values))
        if not kinds or unless in kinds:
            return None
        if kinds == _PLAIN and self._as_is:
            return list(values), RAW
        if self._bytes_pass and not kinds.isdisjoint(_BYTES):
            return None
        encode, check = self._encode, self._check
        try:
            if check is not None:
                for value in values:
                    check(value)
            return list(map(encode, values)), self.content_type
        except Exception:  # noqa: BLE001  it comes again, where the message it belongs to is known
            return None

    def decode(self, payload: bytes, content_type: str) -> T:
        """The value, read as its content type says; CodecError."""
        decode = self._decoders.get(content_type) or self._decoder(content_type)
        try:
            value: T = decode(payload)
        except CodecError:
            raise
        except RecursionError:  # newer versions of Python read, and so accept, deeper ones than older do
            raise CodecError(f"cannot decode {content_type}: nested deeper than this version of Python reads") from None
        except Exception as error:
            raise CodecError(f"cannot decode {content_type} as {name_of(self.type)}: {error}") from error
        return value

    def _decoder(self, content_type: str) -> Decode:
        """The reader of a content type that is not the queue's own; made once."""
        plain = content_type.split(";")[0].strip().lower()
        if plain not in self._decoders:
            if plain not in _BY_CONTENT_TYPE:
                raise CodecError(f"no codec for content type {content_type!r}")
            module = _module(_BY_CONTENT_TYPE[plain])
            self._decoders[plain] = (module.stranger if module is protobuf else module.decoder)(self.type)
        return self._decoders[plain]


def _format_of(type: Any) -> str:
    """The format that values of a type have unless somebody asks for another."""
    return "raw" if type in _BYTES else "protobuf" if protobuf.is_message(type) else "json"


def codec_for(type: Any, codec: str | Format | None) -> Codec[Any]:
    """The codec of a type, the same for the same: making one can take longer than using it a hundred times."""
    try:
        return _kept(type, cast(Hashable, codec))
    except TypeError:  # not hashable, or no type at all: then this says so
        return Codec(type, codec)


@functools.lru_cache(maxsize=256)
def _kept(type: Any, codec: Any) -> Codec[Any]:
    return Codec(type, codec)


def encode_result(result: Any) -> bytes | None:
    """What a handler returned, as it is stored: JSON, or nothing for None."""
    if result is None:
        return None
    try:
        return json.encode_any(result)
    except RecursionError:
        raise limits.too_deep() from None
    except Exception as error:
        raise CodecError(f"cannot encode the result, {_shown(result)}: {error}") from error


def decode_result(data: bytes | None) -> Any:
    """A stored result."""
    if data is None:
        return None
    try:
        return json.decode_any(data)
    except Exception as error:
        raise CodecError(f"cannot decode the result: {error}") from error


def _module(name: str) -> Any:
    return importlib.import_module(f".{name}", __name__)


def _shown(value: object) -> str:
    """The kind of a value; never its content, which may be secret."""
    return f"a value of type {type(value).__qualname__}"


__all__ = ["RAW", "Codec", "Format", "codec_for", "decode_result", "encode_result"]
