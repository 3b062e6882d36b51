"""Blocks of payloads without pyarrow: the very bytes that pyarrow writes, and nothing read that it would refuse."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.stores.log import frames, rows
from holdfast.stores.log.rows import Rows

TYPES = st.text(st.characters(codec="utf-8"), max_size=40)
PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=40)
SOME = frames.encode([b"abc", b"", b"defgh"] * 7, "application/json")


def by_pyarrow(payloads: list[bytes], content_type: str) -> bytes:
    return bytes(rows._stream(rows._batch(Rows(payloads, content_type))))


@settings(max_examples=200, deadline=None)
@given(payloads=PAYLOADS, content_type=TYPES)
def test_a_block_is_what_pyarrow_writes(payloads: list[bytes], content_type: str):
    data = frames.encode(payloads, content_type)
    assert data == by_pyarrow(payloads, content_type)
    assert frames.decode(data) == (payloads, content_type)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8, 255, 256, 4096])
def test_content_types_of_every_length(length: int):
    data = frames.encode([b"x"] * 20, "t" * length)
    assert data == by_pyarrow([b"x"] * 20, "t" * length)
    assert frames.decode(data) == ([b"x"] * 20, "t" * length)


def test_a_flipped_bit_outside_the_payloads_never_cuts_them_otherwise():
    """Which payload a byte belongs to is checked; the payloads themselves and the content type have no checksum."""
    whole, types = frames.decode(SOME)
    for bit in range(8 * len(SOME)):
        data = bytearray(SOME)
        data[bit // 8] ^= 1 << bit % 8
        found = frames.decode(bytes(data))
        if found is not None and found != (whole, types):
            payloads, content_type = found
            differing = sum(a != b for a, b in zip(payloads, whole, strict=True)) + (content_type != types)
            assert differing in (1, 2)  # two, where an end moved between two payloads
            assert sum(map(len, payloads)) == sum(map(len, whole))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_is_read_is_what_pyarrow_reads(data: st.DataObject):
    """Cut, overwritten or lengthened streams: refused, or read as pyarrow reads them."""
    stream = bytearray(SOME)
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    found = frames.decode(bytes(stream))
    if found is not None:
        table = pa.ipc.open_stream(pa.py_buffer(bytes(stream))).read_all()
        table.validate(full=True)
        assert table.column("payload").to_pylist() == found[0]


@pytest.mark.parametrize("cut", range(0, len(SOME), 7))
def test_a_cut_stream_is_not_read(cut: int):
    assert frames.decode(SOME[:cut]) is None


def test_streams_of_another_shape_are_left_to_pyarrow():
    others = Rows([b"x"] * 20, "a/b", [{"k": "v"}] * 20)
    data = bytes(rows.encode(others))
    assert frames.decode(data) is None
    assert not frames.is_known(data)
    assert rows.decode(data) == others


PROGRAM = """
import asyncio, sys, holdfast
async def main(url):
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("q", archive=False)
        await queue.enqueue_many(range(1000))
        taken = await queue.dequeue_many(1000)
        assert sorted(each.value for each in taken) == list(range(1000))
        await queue.complete_many(taken)
asyncio.run(main(sys.argv[1]))
print("pyarrow" in sys.modules)
"""


@pytest.mark.parametrize("store", ["memory", "file"])
def test_batches_come_and_go_without_pyarrow(store: str, tmp_path):
    """It takes a fifth of a second of processor time and 40 MB to load."""
    url = "memory://" if store == "memory" else f"file://{tmp_path}/store"
    done = subprocess.run([sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "False", "")
