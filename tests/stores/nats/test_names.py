"""Names: whatever a queue is called, nothing of it leaves its subjects."""

from __future__ import annotations

import random
import string

import pytest

from holdfast.config import queue_name
from holdfast.errors import ConfigError
from holdfast.stores.nats.names import Names, check_prefix, queue_of, token

ALPHABET = string.ascii_letters + string.digits + "_.-"


def name(chance: random.Random) -> str:
    length = chance.randint(0, 127)
    return chance.choice(string.ascii_letters + string.digits) + "".join(chance.choices(ALPHABET, k=length))


def test_ten_thousand_names_stay_one_token_each() -> None:
    chance = random.Random(7)
    seen: dict[str, str] = {}
    for _ in range(10_000):
        queue = queue_name(name(chance))
        word = token(queue)
        assert not set(word) & set(".*> \t\r\n/\\")
        assert queue_of(word) == queue
        assert seen.setdefault(word, queue) == queue
        names = Names("p", queue)
        assert names.task.count(".") == 2
        assert all(stream.count("=") == 2 and "." not in stream for stream in names.streams())


def test_families_never_overlap_with_tasks() -> None:
    for queue in ("_", "done", "later", "queue"):
        names = Names("p", queue)
        for family in (names.done, names.tally, names.dead, names.later, names.key, names.gone):
            assert len(f"{family}x".split(".")) >= 5
        assert len(f"{names.task}0.id".split(".")) == 4


@pytest.mark.parametrize("prefix", ["", "a.b", "*", ">", "a b", "a=b", "a~b", "x" * 65, "a\r\nPUB"])
def test_bad_prefixes_are_refused(prefix: str) -> None:
    with pytest.raises(ConfigError):
        check_prefix(prefix)


def test_dedup_keys_reach_a_subject_only_as_a_hash() -> None:
    names = Names("p", "q")
    for key in ("a.b.>", "*", "x\r\nPUB", "ü" * 1000):
        assert set(names.key_of(key).removeprefix(names.key)) <= set(string.hexdigits)
