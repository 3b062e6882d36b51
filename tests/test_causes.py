"""Fingerprints of errors: the same cause has the same one."""

from __future__ import annotations

import pytest

from holdfast.causes import cause


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ValueError: order 7 has no street", "ValueError: order 12 has no street", True),
        ("KeyError: 'ada'", "KeyError: 'grace'", True),
        ("KeyError: 'ada'", "ValueError: 'ada'", False),
        ("X: at 0x7f00aa", "X: at 0x1200bb", True),
        ('E: a\n  File "/x/a.py", line 3, in f', 'E: a\n  File "/y/a.py", line 9, in f', True),
        ('E: a\n  File "/x/a.py", line 3, in f', 'E: a\n  File "/x/a.py", line 3, in g', False),
    ],
)
def test_fingerprints(one: str, other: str, same: bool) -> None:
    assert (cause(one).fingerprint == cause(other).fingerprint) is same


def test_kind_and_reason_without_particulars() -> None:
    found = cause("shop.CardError: declined for 'ada' (code 51)\nTraceback …")
    assert (found.kind, found.reason) == ("shop.CardError", "shop.CardError: declined for '…' (code #)")
    assert cause("").reason == "no reason"
