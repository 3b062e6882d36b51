"""A value as one run of bytes; what stores promise of them is in the conformance suite."""

from __future__ import annotations

import math

import pytest

from holdfast.errors import ConfigError, Damaged, MessageTooLarge
from holdfast.stores.values import KEY_BYTES, Kept, check_keys, checked_expiry, new_version, unpacked


@pytest.mark.parametrize(("expires_at", "data"), [(math.inf, b""), (12.5, b"\0some bytes")])
def test_what_is_packed_is_unpacked(expires_at: float, data: bytes) -> None:
    kept = Kept(new_version(), expires_at, data)
    assert unpacked(kept.packed()) == kept


def test_a_value_counts_until_its_time_is_over() -> None:
    kept = Kept(new_version(), 12.5, b"1")
    assert kept.value(12.4) is not None
    assert kept.value(12.5) is None


@pytest.mark.parametrize("data", [b"", b"\x01short", b"\x02" + bytes(40)])
def test_rubbish_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        unpacked(data, "values/x")


def test_keys_are_text_that_fits() -> None:
    check_keys(["ä" * (KEY_BYTES // 2)])
    with pytest.raises(MessageTooLarge):
        check_keys(["ä" * (KEY_BYTES // 2 + 1)])
    for key in ("", "\0", "\ud800", None):
        with pytest.raises(ConfigError):
            check_keys([key])  # type: ignore[list-item]


def test_expiry_is_a_positive_number_of_seconds() -> None:
    assert (checked_expiry(None), checked_expiry(2)) == (None, 2.0)
    with pytest.raises(ConfigError):
        checked_expiry(0)
