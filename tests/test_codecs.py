"""Codecs: values to bytes and back, by content type; what is refused on each side."""

import dataclasses
import datetime
import importlib
import math
import typing

import msgspec
import pytest

from holdfast.codecs import Codec, codec_for, decode_result, encode_result
from holdfast.errors import CodecError, ConfigError

NOW = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


class Email(msgspec.Struct, tag=True):
    to: str


class Sms(msgspec.Struct, tag=True):
    number: int


@dataclasses.dataclass
class Point:
    x: int


class Real(msgspec.Struct):
    x: float


class Row(typing.TypedDict):
    a: int


class Odd:
    """Nothing that could be sent."""

    def __repr__(self):
        return "Odd()"


VALUES = [
    (None, {"a": [1, 2.5, None, True, "é🙂"]}),
    (None, b"\0raw"),
    (None, None),
    (Email, Email("a@example.com")),
    (Email | Sms, Sms(5)),
    (typing.Union[Email, None], None),  # noqa: UP007 - both spellings of a union
    (Point, Point(3)),
    (Row, {"a": 1}),
    (int, 5),
    (str, "x"),
    (list[Email], [Email("a")]),
    (dict[str, int], {"x": 1}),
    (datetime.datetime, NOW),
    (bytes, b"12"),
    (bytearray, bytearray(b"12")),
    (typing.Any, {"a": 1}),
]


@pytest.mark.parametrize("name", [None, "json", "msgpack"])
@pytest.mark.parametrize(("type", "value"), VALUES, ids=str)
def test_round_trip(type, value, name):
    codec = Codec(type, None if type is bytearray else name)
    assert codec.decode(*codec.encode(value)) == value


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_pydantic_models(name):
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        model_config: typing.ClassVar = {"strict": True}
        when: datetime.datetime
        lines: list[str]

    order = Order(when=NOW, lines=["a"])
    for kind, value in ((Order, order), (list[Order], [order]), (Order | None, None)):
        codec = Codec(kind, name)
        assert codec.decode(*codec.encode(value)) == value
    plain = Codec(None, name)
    assert plain.decode(*plain.encode({"order": order})) == {"order": {"when": "2024-05-01T12:00:00Z", "lines": ["a"]}}
    with pytest.raises(CodecError, match="expected Order, got dict"):
        Codec(Order, name).encode({"when": NOW})
    with pytest.raises(CodecError, match="cannot decode"):
        Codec(Order).decode(b'{"when": 5}', "application/json")
    with pytest.raises(CodecError, match="cannot encode"):
        Codec(list[Order], name).encode([1])


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_pydantic_models_within_other_types(name):
    pydantic = pytest.importorskip("pydantic")

    class Line(pydantic.BaseModel):
        model_config: typing.ClassVar = {"strict": True}
        when: datetime.datetime

    basket = dataclasses.make_dataclass("Basket", [("line", Line), ("more", list[Line])])
    order = msgspec.defstruct("Order", [("line", Line | None)])
    line = Line(when=NOW)
    for kind, value in ((basket, basket(line, [line])), (order, order(line)), (order, order(None))):
        codec = Codec(kind, name)
        assert codec.decode(*codec.encode(value)) == value
    with pytest.raises(CodecError, match="cannot decode"):
        Codec(order).decode(b'{"line": {"when": 5}}', "application/json")


def test_json_has_no_nan_and_msgpack_has():
    assert Codec().encode({"a": math.nan, "b": [math.inf]})[0] == b'{"a":null,"b":[null]}'
    with pytest.raises(CodecError, match="Expected `float`"):
        Codec(Real).decode(*Codec(Real).encode(Real(math.nan)))
    codec = Codec(None, "msgpack")
    assert codec.decode(*codec.encode([math.nan, math.inf])) == pytest.approx([math.nan, math.inf], nan_ok=True)


def test_content_types():
    assert Codec().encode({"a": 1}) == (b'{"a":1}', "application/json")
    assert Codec(None, "msgpack").encode({"a": 1})[1] == "application/msgpack"
    for value in (b"x", bytearray(b"x"), memoryview(b"x")):
        assert Codec().encode(value) == (b"x", "application/octet-stream")
    assert Codec(bytes).encode(b"x") == (b"x", "application/octet-stream")
    assert Codec(None, "raw").encode(b"x") == (b"x", "application/octet-stream")


def test_decode_picks_by_content_type():
    reader = Codec(Email)
    packed, kind = Codec(Email, "msgpack").encode(Email("a"))
    for said in (kind, "application/x-msgpack", "application/vnd.msgpack"):
        assert reader.decode(packed, said) == Email("a")
    assert reader.decode(b'{"type":"Email","to":"a"}', "Application/JSON; charset=utf-8") == Email("a")
    assert Codec().decode(b"\x01", "application/octet-stream") == b"\x01"


@pytest.mark.parametrize(
    ("type", "payload", "content_type", "sentence"),
    [
        (None, b"{", "application/json", "cannot decode"),
        (None, b"\xff", "application/json", "cannot decode"),
        (Email, b'{"type":"Email"}', "application/json", "as Email"),
        (Email, b"x", "application/octet-stream", "expected Email, got raw bytes"),
        (int, b'"x"', "application/json", "cannot decode"),
        (None, b"x", "application/x-unknown", "no codec for content type"),
        (None, b"[" * 100_000, "application/json", "cannot decode"),
        (None, b"\x91" * 100_000, "application/msgpack", "cannot decode"),
    ],
)
def test_bad_payloads(type, payload, content_type, sentence):
    with pytest.raises(CodecError, match=sentence):
        Codec(type).decode(payload, content_type)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (None, Odd()),
        (None, {"a": Odd()}),
        (Email, {"to": "a"}),
        (Email, Sms(1)),
        (Email | Sms, Point(1)),
        (Row, {"a": "x"}),
        (int, "x"),
        (list[int], [1, "x"]),
        (bytes, "x"),
        (str, b"x"),
    ],
    ids=str,
)
def test_values_no_consumer_could_read_are_refused(type, value):
    with pytest.raises(CodecError):
        Codec(type).encode(value)


def test_endless_nesting_is_refused():
    value: list = []
    value.append(value)
    with pytest.raises(CodecError, match="cannot encode"):
        Codec().encode(value)


def test_errors_do_not_show_the_value():
    with pytest.raises(CodecError) as caught:
        Codec(int).encode("canary")
    assert "canary" not in str(caught.value)


def test_unknown_codec():
    with pytest.raises(ConfigError, match="did you mean 'json'"):
        Codec(None, "jsn")
    with pytest.raises(ConfigError, match="encode"):
        Codec(None, Odd())


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_a_type_that_cannot_be_told_apart_is_refused_at_once(name):
    with pytest.raises(ConfigError, match="cannot be the type of a queue"):
        Codec(Email | Point, name)


def test_codecs_are_kept():
    assert codec_for(Email, "json") is codec_for(Email, "json")
    assert codec_for(typing.Annotated[int, []], None).decode(b"1", "application/json") == 1  # not hashable


def test_own_codec():
    class Upper:
        content_type = "text/x-upper"

        def encode(self, value):
            return value.upper().encode()

        def decode(self, data):
            return data.decode().lower()

    codec = Codec(None, Upper())
    assert codec.encode("abc") == (b"ABC", "text/x-upper")
    assert codec.decode(b"ABC", "text/x-upper; charset=utf-8") == "abc"
    assert codec.decode(b"1", "application/json") == 1
    with pytest.raises(CodecError, match="cannot encode"):
        codec.encode(5)


def test_every_format_has_the_same_two_functions():
    for name in ("json", "msgpack", "raw"):
        module = importlib.import_module(f"holdfast.codecs.{name}")
        assert isinstance(module.CONTENT_TYPE, str)
        assert callable(module.encoder(None))
        assert callable(module.decoder(None))


@pytest.mark.parametrize("result", [None, 0, "", {"sent": True}, [1, 2], Email("a"), Point(1)])
def test_results(result):
    stored = encode_result(result)
    assert (stored is None) == (result is None)
    assert decode_result(stored) == msgspec.to_builtins(result)


def test_bad_results():
    with pytest.raises(CodecError, match="result"):
        encode_result(object())
    with pytest.raises(CodecError, match="result"):
        decode_result(b"{")


@pytest.mark.parametrize("made", ["text", 5, None])
def test_a_codec_of_ones_own_must_make_bytes(made):
    class Slip:
        content_type = "text/x-slip"

        def encode(self, value):
            return made

        def decode(self, data):
            return data

    with pytest.raises(CodecError, match="not bytes"):
        Codec(None, Slip()).encode(1)
    assert Codec(None, Slip()).encode_many([1, 2], unless=str) is None  # one by one tells which
    Slip.content_type = made if made != "text" else ""
    with pytest.raises(ConfigError, match="content type"):
        Codec(None, Slip())
