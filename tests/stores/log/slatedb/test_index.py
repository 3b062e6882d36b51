"""Keys in order, and bytes at hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.log.slatedb import index
from holdfast.stores.log.slatedb.index import Entry, Index, Keys, Recent

KEYS = st.text(st.sampled_from("ab/ü"), min_size=1, max_size=4)


@given(st.lists(st.tuples(KEYS, st.booleans())), KEYS, KEYS, st.integers(1, 5))
def test_keys_are_a_sorted_set(steps, start, end, limit):
    kept, index._PART = index._PART, 2
    try:
        there: set[str] = set()
        keys = Keys()
        for key, add in steps:
            if add and key not in there:
                keys.add(key)
                there.add(key)
            elif not add and key in there:
                keys.remove(key)
                there.remove(key)
        assert keys.between("", "\U0010ffff", 1000) == sorted(there)
        assert keys.between(start, end, limit) == [key for key in sorted(there) if start <= key < end][:limit]
    finally:
        index._PART = kept


def test_loading_is_the_same_as_adding():
    entries = [(f"{n:05}", Entry(n)) for n in range(5000)]
    loaded, added = Index(reversed(entries)), Index()
    for key, entry in reversed(entries):
        added.set(key, entry)
    for made in (loaded, added):
        assert made.keys.between("", "z", 9999) == [key for key, _ in entries]
    added.set("00000", None)
    added.set("00000", None)
    assert added.keys.between("", "z", 1) == ["00001"]


def test_recent_keeps_a_budget():
    recent = Recent(budget=100, largest=60)
    recent.add(1, b"x" * 61)
    assert recent.get(1) is None
    for tag in range(10):
        recent.add(tag, bytes([tag]) * 30)
    assert [recent.get(tag) is not None for tag in range(10)] == [False] * 7 + [True] * 3
    recent.forget(9)
    recent.forget(9)
    recent.add(10, b"y" * 40)
    assert recent.get(7) is not None
