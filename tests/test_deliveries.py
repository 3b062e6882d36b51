"""What comes back: lazily decoded values, receipts, records."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Delivery, Record
from holdfast.codecs import Codec
from holdfast.deliveries import Lease, read_receipt, write_receipt
from holdfast.errors import CodecError
from holdfast.ids import Ids, text
from holdfast.stores.records import JSON, Claimed, Stored

ID = "01a1e15b-3dda-7002-8242-2e8ccc900000"


class Counting(Codec):
    decoded = 0

    def decode(self, payload, content_type):
        self.decoded += 1
        return super().decode(payload, content_type)


class Handle:
    """Just enough of a queue to be named and to decode."""

    name = "emails"

    def __init__(self):
        self.codec = Counting()


def delivery(payload=b'{"a":1}', **changes):
    claimed = Claimed("id", "token", payload, JSON, None, 7, 2, 3, 1000.0, 1030.0)
    for key, value in changes.items():
        setattr(claimed, key, value)
    return Delivery(claimed, Handle(), 0.0)


def test_a_delivery_shows_the_message():
    one = delivery(headers={"a": "b"})
    assert (one.id, one.payload, one.priority, one.attempt, one.max_attempts) == ("id", b'{"a":1}', 7, 2, 3)
    assert one.headers == {"a": "b"}
    assert delivery().headers == {}
    assert one.enqueued_at == datetime.fromtimestamp(1000, UTC)
    assert one.expires_at == datetime.fromtimestamp(1030, UTC)
    assert repr(one) == "Delivery('emails', 'id', attempt 2 of 3)"


def test_the_value_is_decoded_once_and_only_when_asked_for():
    one = delivery()
    assert one._queue.codec.decoded == 0
    assert one.value == {"a": 1}
    assert one.value is one.value
    assert one._queue.codec.decoded == 1
    null = delivery(b"null")
    assert null.value is None
    assert null.value is None
    assert null._queue.codec.decoded == 1


def test_an_unreadable_value_is_an_error_when_asked_for():
    one = delivery(b"{")
    assert one.payload == b"{"
    with pytest.raises(CodecError):
        _ = one.value


tokens = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=256)


@given(st.integers(0, 2**40), tokens, st.integers(0, 2**31), st.integers(0, 2**31))
def test_receipts_say_what_they_were_told(now, token, attempt, max_attempts):
    lease = Lease(text(Ids().block(now / 1000)), token, attempt, max_attempts)
    assert read_receipt(write_receipt(lease)) == lease


def test_a_receipt_is_one_plain_word():
    receipt = delivery(id=ID, token="tökén/+==").receipt
    assert receipt.replace("-", "").replace("_", "").isalnum()
    assert read_receipt(receipt) == Lease(ID, "tökén/+==", 2, 3)


@pytest.mark.parametrize("id", ["", "id", ID[:-1], ID + "0", ID.upper(), f"{ID}\0", "x" * 1_000_000, "../" + ID, "*"])
def test_what_can_be_no_id_makes_no_receipt(id):
    assert read_receipt(write_receipt(Lease(id, "token", 1, 3))) is None


@pytest.mark.parametrize("token", ["", "a\0b", "x" * 257, "x" * 1_000_000])
def test_what_can_be_no_token_makes_no_receipt(token):
    assert read_receipt(write_receipt(Lease(ID, token, 1, 3))) is None


@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True))
def test_other_text_is_no_receipt(words):
    lease = read_receipt(words)
    assert lease is None or isinstance(lease, Lease)


@pytest.mark.parametrize("words", ["", ID, "nope", "é", "a" * 1000])
def test_ids_and_words_are_no_receipts(words):
    assert read_receipt(words) is None


def test_a_record_shows_what_is_stored():
    stored = Stored(
        "id", "dead", b"[1]", JSON, {"a": "b"}, 9, 3, 3, 1000.0, None, 1010.0, b'{"sent":true}', "boom", "worker-1"
    )
    record = Record(stored, Codec())
    assert (record.id, record.status, record.value, record.payload) == ("id", "dead", [1], b"[1]")
    assert (record.attempts, record.max_attempts, record.priority) == (3, 3, 9)
    assert (record.headers, record.result, record.error) == ({"a": "b"}, {"sent": True}, "boom")
    assert record.finished_at == datetime.fromtimestamp(1010, UTC)
    assert record.visible_at is None
    assert record.worker == "worker-1"
    assert repr(record) == "Record('id', 'dead', attempts=3)"
