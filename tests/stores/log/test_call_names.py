"""Ids of a call, as they are kept."""

from __future__ import annotations

import random

import pytest

from holdfast import ids
from holdfast.stores.log.call_names import packed, unpacked


@pytest.mark.parametrize("seed", range(20))
def test_what_is_packed_is_unpacked(seed: int) -> None:
    chance, maker = random.Random(seed), ids.Ids()
    blocks = [ids.texts(maker.block(1.0, priority), 1500) for priority in (0, 7, 255)]
    made: list[str] = []
    for _ in range(chance.randrange(30)):
        block, first = chance.choice(blocks), chance.randrange(1500)
        made += block[first : first + chance.randrange(20)]
    assert unpacked(packed(made)) == made


def test_a_block_is_one_run() -> None:
    block = ids.Ids().block(1.0)
    assert len(packed(ids.texts(block, 1000))) == 1
    assert len(packed([*ids.texts(block, 3), *ids.texts(block, 2)])) == 2
