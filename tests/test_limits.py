"""Limits of the parts of a message, as pure functions."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.errors import CodecError, MessageTooLarge
from holdfast.limits import CUT_MARK, TEXT_BYTES, check_nesting, kept_text


@given(st.text(max_size=2000).map(lambda text: text * 8))
def test_kept_text_is_the_beginning_of_the_text_with_a_mark_where_it_was_cut(text):
    kept = kept_text(text)
    whole = text.replace("\0", "\\0")
    assert len(kept.encode()) <= TEXT_BYTES
    assert kept == whole or (kept.endswith(CUT_MARK) and whole.startswith(kept.removesuffix(CUT_MARK)))
    assert (kept == whole) == (len(whole.encode()) <= TEXT_BYTES)


@pytest.mark.parametrize("letter", ["x", "é", "€", "🙂"])
def test_no_letter_is_cut_in_two_and_none_too_many_is_lost(letter):
    kept = kept_text(letter * TEXT_BYTES)
    assert set(kept.removesuffix(CUT_MARK)) == {letter}
    assert TEXT_BYTES - len(letter.encode()) < len(kept.encode()) <= TEXT_BYTES


def test_text_that_no_store_can_keep_is_written_another_way():
    assert kept_text("a\0b\ud800") == "a\\0b\\ud800"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[" * 400 + b"]" * 400,
        b"[" + b",".join([b'{"a":[1,2]}'] * 100_000) + b"]",  # many, not deep
        b'"' + b"[{" * 100_000 + b'"',  # brackets of a text
        b"\xff" * 5000 + b"[" * 1000,  # no JSON: whoever reads it will say so
    ],
    ids=["empty", "shallow", "many", "text", "rubbish"],
)
def test_what_can_be_read_passes(payload):
    check_nesting(payload)


@pytest.mark.parametrize("levels", [limits.too_deep().limit + 600, 100_000, 3_000_000])
def test_what_is_nested_too_deep_is_refused_with_the_limit(levels):
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        with pytest.raises(MessageTooLarge) as refused:
            check_nesting(opening * levels + b"1" + closing * levels)
        assert isinstance(refused.value, CodecError)
        assert 300 < refused.value.limit < refused.value.actual
        assert f"the limit is {refused.value.limit} levels" in str(refused.value)


def test_what_passes_can_be_read_by_somebody_deeper_in_calls():
    def nested(levels):
        return b"[" * levels + b"]" * levels

    def read(frames, payload):
        return limits._skim(payload) if frames == 0 else read(frames - 1, payload)

    passed = limits.too_deep().limit
    check_nesting(nested(passed - 5))
    read(80, nested(passed - 5))
    assert passed < sys.getrecursionlimit() or sys.version_info >= (3, 12)
