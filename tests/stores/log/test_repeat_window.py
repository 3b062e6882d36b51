"""The policy of a repeat window: asked by the engine, which does not look at the window itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import holdfast
from holdfast.config import QueueOptions
from holdfast.errors import Damaged
from holdfast.ids import Ids
from holdfast.stores.log import queues
from holdfast.stores.log.cache import BlockCache
from holdfast.stores.log.head.state import Block, Frozen, Head, Rules
from holdfast.stores.log.memory import MemorySpace
from holdfast.stores.log.names import BlockName
from holdfast.stores.log.repeat_window import Home, RepeatWindow
from holdfast.stores.log.space import Reading

LOG = Path(holdfast.__file__).parent / "stores" / "log"
CORE = [path for path in LOG.rglob("*.py") if "bucket" not in path.relative_to(LOG).parts]


async def none_of(wanted: Sequence[str]) -> list[bool]:
    return [False] * len(wanted)


@pytest.fixture
def atomic() -> RepeatWindow:
    return MemorySpace().repeat_window(Home(queues.address("q"), BlockCache(), Ids(), 5.0, none_of))


def test_the_engine_tests_the_window_in_one_place() -> None:
    found = [(path.name, line) for path in CORE for line in path.read_text().splitlines() if "rules.window" in line]
    assert found == [
        ("repeat.py", "    if not rules.window:"),
        ("repeat.py", "    if made - birth <= rules.window or is_copied(birth, made, rules):"),
    ]


def test_nothing_of_the_engine_is_inherited() -> None:
    classes = r"class \w+\((LogStore|Committer|Appender|Flusher|Log)\b"
    bases = {path.name: re.findall(classes, path.read_text()) for path in LOG.rglob("*.py")}
    assert {name: found for name, found in bases.items() if found} == {"store.py": ["LogStore"]}, "one is left"


async def test_an_atomic_space_adds_nothing(atomic: RepeatWindow) -> None:
    rules = Rules()
    assert atomic.rules(rules, 5.0) is rules
    assert atomic.tidying(Head()) == []
    assert await atomic.flush_name(Frozen("old", 0.0, [], []), "new", lambda view: None) == "old"
    assert await atomic.maintain() == 0
    config = queues.Config(incarnation="0", created_at=0.0, options=QueueOptions(shards=3))
    assert atomic.partitions(config) == 1


async def test_what_is_missing_on_an_atomic_space_is_lost(atomic: RepeatWindow) -> None:
    assert not atomic.reads_twice
    block = Block.of(1, BlockName(f"{1:032x}", 1, 0, 0, 0).inbox_key())

    def look(view: Reading) -> None:
        with pytest.raises(Damaged, match=f"some/{block.key}"):
            atomic.left(view, "some/", block)

    await MemorySpace().read(look)


def test_every_claim_has_a_token_of_its_own(atomic: RepeatWindow) -> None:
    assert len({atomic.token() for _ in range(100)}) == 100
