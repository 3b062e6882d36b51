"""What is sent: every term is checked before any I/O."""

import enum
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast import Message
from holdfast.codecs import Codec
from holdfast.errors import CodecError, ConfigError, InvalidPriority, MessageTooLarge
from holdfast.messages import envelope, envelopes, instant, terms
from holdfast.stores.records import Envelope

JSON = "application/json"


def test_plain():
    assert envelope(Codec(), 100, {"a": 1}, terms()) == Envelope(b'{"a":1}', JSON)


def test_all_terms():
    at = datetime(2024, 5, 1, tzinfo=UTC)
    travel = terms(priority=255, at=at, headers={"k": "é🙂"}, dedup_key="d", max_attempts=1)
    made = envelope(Codec(), 100, 1, travel)
    assert made == Envelope(b"1", JSON, {"k": "é🙂"}, 255, 0, at.timestamp(), "d", 1)
    assert terms(delay=2.5)[2] == 2.5
    assert terms(expires=5)[-2:] == (None, 5.0)
    assert envelope(Codec(), 100, 1, terms(expires=at)) == Envelope(b"1", JSON, expires=at.timestamp())


def test_a_message_has_its_own_terms():
    sent = Message({"a": 1}, priority=3, delay=5, headers={"a": "b"}, dedup_key="k", max_attempts=9, expires=7)
    assert envelope(Codec(), 100, sent, terms(priority=7)) == Envelope(
        b'{"a":1}', JSON, {"a": "b"}, 3, 5.0, None, "k", 9, None, 7.0
    )


def test_message_takes_its_terms_by_name():
    with pytest.raises(TypeError):
        Message(1, 2)


def test_headers_are_copied():
    given = {"a": "b"}
    made = envelope(Codec(), 100, 1, terms(headers=given))
    given["a"] = "c"
    assert made.headers == {"a": "b"}


class Odd:
    """Nothing that could be sent."""

    def __repr__(self):
        return "Odd()"


class Level(enum.IntEnum):
    HIGH = 9


def test_any_integer_type_is_a_priority():
    assert terms(priority=Level.HIGH)[1] == 9


@pytest.mark.parametrize("priority", [-1, 256, True, False, 1.0, "1", None])
def test_bad_priorities(priority):
    with pytest.raises(InvalidPriority, match="0 to 255"):
        terms(priority=priority)


@pytest.mark.parametrize(
    "bad",
    [
        {"delay": -1},
        {"delay": True},
        {"delay": "1"},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": 1, "at": datetime(2024, 5, 1, tzinfo=UTC)},
        {"at": datetime(2024, 5, 1)},
        {"at": 5},
        {"headers": {"a": 1}},
        {"headers": {1: "a"}},
        {"headers": [("a", "b")]},
        {"headers": {"a": "\ud800"}},
        {"headers": {"a\0": "b"}},
        {"dedup_key": ""},
        {"dedup_key": 5},
        {"dedup_key": "\udfff"},
        {"expires": 0},
        {"expires": -1.0},
        {"expires": True},
        {"expires": "5"},
        {"expires": datetime(2024, 5, 1)},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 2**31},
    ],
    ids=str,
)
def test_bad_terms(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        terms(**bad)


def test_size_limit():
    assert len(envelope(Codec(), 10, "x" * 8, terms()).payload) == 10
    with pytest.raises(MessageTooLarge, match="11 bytes, the limit is 10") as caught:
        envelope(Codec(), 10, "x" * 9, terms())
    assert (caught.value.actual, caught.value.limit) == (11, 10)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Odd(), CodecError),
        ("x" * 100, MessageTooLarge),
        (Message(1, priority=999), InvalidPriority),
        (Message(1, delay=-1), ConfigError),
    ],
    ids=str,
)
def test_one_bad_message_is_named(bad, error):
    with pytest.raises(error, match=r"^message 2: "):
        envelopes(Codec(), 50, [1, 2, bad, 4], terms())


def test_instant():
    east = timezone(timedelta(hours=2))
    assert instant("at", datetime(2024, 5, 1, 2, tzinfo=east)) == datetime(2024, 5, 1, tzinfo=UTC).timestamp()
