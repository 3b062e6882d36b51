"""Blocks as bytes: what goes in comes out, a handful as msgpack and more as Arrow."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import StoreError
from holdfast.stores.log import rows
from holdfast.stores.log.rows import ARROW_FROM, Rows

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
HEADERS = st.none() | st.dictionaries(TEXT, TEXT, max_size=3)
INSTANTS = st.floats(0, 4e9)


def column(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=count, max_size=count)


def blocks(count: int) -> st.SearchStrategy[Rows]:
    """Blocks of `count` messages: a producer's, or a flush's with every column it may have."""
    payload = column(st.binary(max_size=20), count)
    content_type = TEXT | column(TEXT, count)
    headers = st.none() | column(HEADERS, count)
    return st.one_of(
        st.builds(Rows, payload, content_type, headers),
        st.builds(
            Rows,
            payload,
            content_type,
            headers,
            id=column(st.integers(0, 2**128 - 1).map(lambda number: f"{number:032x}"), count),
            enqueued_at=column(INSTANTS, count),
            priority=st.none() | column(st.integers(0, 255), count),
            attempts=column(st.integers(0, 2**31 - 1), count),
            max_attempts=st.none() | column(st.integers(0, 2**31 - 1), count),
            error=column(st.none() | TEXT, count),
            finished_at=column(st.none() | INSTANTS, count),
            worker=column(st.none() | TEXT, count),
            token=column(st.none() | TEXT, count),
            claimed_at=st.none() | column(st.none() | INSTANTS, count),
        ),
    )


SMALL = st.integers(1, ARROW_FROM - 1).flatmap(blocks)
LARGE = st.integers(ARROW_FROM, ARROW_FROM + 4).flatmap(blocks)


@settings(max_examples=50, deadline=None)
@given(block=SMALL)
def test_a_handful_is_msgpack(block: Rows):
    data = bytes(rows.encode(block))
    assert msgspec.msgpack.decode(data)[0] == rows.FORMAT
    assert rows.decode(data) == block


@settings(max_examples=50, deadline=None)
@given(block=LARGE)
def test_more_is_arrow(block: Rows):
    data = bytes(rows.encode(block))
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    assert table.num_rows == len(block)
    assert table.schema.metadata[b"holdfast"] == str(rows.FORMAT).encode()
    assert rows.decode(data) == block


@pytest.mark.parametrize("count", [1, ARROW_FROM - 1, ARROW_FROM, 1000])
def test_where_arrow_begins(count: int):
    data = bytes(rows.encode(Rows([b"x"] * count, "text/plain")))
    assert data.startswith(b"\xff\xff\xff\xff") == (count >= ARROW_FROM)
    assert rows.decode(data) == Rows([b"x"] * count, "text/plain")


@pytest.mark.parametrize("count", [2, ARROW_FROM])
def test_the_same_rows_are_the_same_bytes(count: int):
    block = Rows([b"x"] * count, ["a/b"] * count, [{"k": "v", "a": "b"}] * count)
    assert bytes(rows.encode(block)) == bytes(rows.encode(block))


@pytest.mark.parametrize("count", [3, ARROW_FROM + 1])
def test_rows_are_found_by_place(count: int):
    block = Rows(
        [b"%d" % place for place in range(count)],
        [f"t/{place}" for place in range(count)],
        [{"place": str(place)} if place % 2 else None for place in range(count)],
        id=[f"{place:032x}" for place in range(count)],
        error=[None] * count,
    )
    block = rows.decode(bytes(rows.encode(block)))
    assert block.place_of(f"{1:032x}") == 1
    assert block.place_of(f"{count:032x}") is None
    assert [block.content_type_at(place) for place in (0, 2)] == ["t/0", "t/2"]
    assert Rows([b"12", b"3"], "t").content_type_at(1) == "t"
    assert len(block) == count


def newer_columns() -> bytes:
    return msgspec.msgpack.encode((rows.FORMAT + 1, {"payload": [b"x"], "content_type": "t", "new": 1}))


def newer_shape() -> bytes:
    return msgspec.msgpack.encode((rows.FORMAT + 1, ["rows of another shape"]))


def newer_parts() -> bytes:
    return msgspec.msgpack.encode((rows.FORMAT + 1, {"payload": [b"x"], "content_type": "t"}, "and more"))


def newer_arrow() -> bytes:
    schema = pa.schema([("payload", pa.binary()), ("new", pa.int64())], metadata={"holdfast": str(rows.FORMAT + 1)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([[b"x"], [1]], schema=schema))
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("newer", [newer_columns, newer_shape, newer_parts, newer_arrow])
def test_a_newer_format_is_refused(newer: Any):
    with pytest.raises(StoreError, match=f"format {rows.FORMAT + 1}.*upgrade holdfast"):
        rows.decode(newer())
