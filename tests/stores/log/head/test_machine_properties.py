"""Random histories of a head agree with a naive model of it, message by message."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from holdfast.stores.log.head.codec import HeadWriter, decode
from holdfast.stores.log.head.state import (
    Absorb,
    Claim,
    Drop,
    Expire,
    Extend,
    Freeze,
    Intent,
    Purge,
    Remove,
    Rules,
    Settle,
)
from tests.stores.log.head.head_bench import SOURCE, T0, Bench, compiled, key
from tests.stores.log.head.head_model import NaiveHead

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "25")) * 4
T = TypeVar("T")

# Small bounds, so that short histories reach them.
small = compiled(SOURCE)
small.NEAR_MOST, small.NEAR_KEPT, small.RECENT_MOST = 4, 2, 3

# Fractions that no sum of advances reaches, but for zero: the instant itself is in the tables.
LEASES = (4.017, 9.017)
DELAYS = (0.0, 3.013, 7.013)
ADVANCES = (0.3, 1.3, 3.3, 12.3)
MASKS = (1, 2, 3, 5, 12, 14, 31, 31)
PICK = (0, 0, 0, 1, 1, 2, 3, 5)  # counts from the newest
ACTIONS = ("complete", "complete", "retry", "retry", "retry", "release", "dead")
STEPS = (
    *("claim",) * 6,
    *("settle",) * 6,
    *("settle_all",) * 2,
    *("absorb",) * 2,
    *("freeze",) * 2,
    *("drop",) * 2,
    "extend",
    "remove",
    "again",
    "purge",
)
RULES = st.builds(
    Rules,
    max_attempts=st.integers(1, 4),
    retry_expired=st.sampled_from([True, True, False]),
    archive=st.booleans(),
    dead=st.sampled_from(["dead", "failed", "moved"]),
)


class Dice:
    """Choices made by bytes: evenly spread, and a shorter or smaller text is a simpler history."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)
        self._left = len(data)

    def __bool__(self) -> bool:
        return self._left > 0

    def pick(self, choices: Sequence[T]) -> T:
        self._left -= 1
        return choices[next(self._data, 0) % len(choices)]


class History:
    """Carries steps out on a head and its model side by side."""

    def __init__(self, rules: Rules, dice: Dice) -> None:
        self.pick = dice.pick
        self.dice = dice
        self.bench = Bench(small)
        self.bench.rules = rules
        self.model = NaiveHead(rules, T0, (small.NEAR_MOST, small.NEAR_KEPT))
        self.held: list[tuple[str, int]] = []  # every token and block there ever was
        self.writer = HeadWriter()
        self.count = 0

    def run(self) -> None:
        self.do([Absorb([key(1000, 5), key(1001, 3)], "own")])
        while self.dice:
            kind = self.pick(("pause", *("advance",) * 6, *("commit",) * 12))
            if kind == "pause":
                self.pause(not self.bench.rules.paused and self.pick((True, False)))
            elif kind == "advance":
                self.bench.now += self.pick(ADVANCES)
            else:
                self.do([intent for _ in range(self.pick((1, 1, 2, 3))) for intent in self.intents()])

    def pause(self, paused: bool) -> None:
        self.bench.rules = self.model.rules = msgspec.structs.replace(self.bench.rules, paused=paused)

    def do(self, intents: list[Intent]) -> list[Any]:
        before = self.bench.head
        data = self.writer.encode(before)
        intents = [*intents, Expire()]  # as every commit does
        note(f"{self.bench.now - T0:.1f} {intents}")
        results = self.bench.do(*intents)
        head = self.bench.head
        assert decode(data) == before, "apply changed its input"
        self.model.now = self.bench.now
        self.model.apply(intents, results, head)
        self.model.compare(head, self.bench.finished)
        self.held += [
            (intent.token, taken.block)
            for intent, result in zip(intents, results, strict=True)
            if isinstance(intent, Claim)
            for taken in result
        ]
        data = self.writer.encode(head)
        assert decode(data) == head
        assert data == HeadWriter().encode(head), "what was written before shows in the bytes"
        return results

    def intents(self) -> list[Intent]:
        self.count += 1
        return getattr(self, "make_" + self.pick(STEPS))()

    def make_absorb(self) -> list[Intent]:
        own, due = self.pick((0, 0, 1, 2, 3)), self.pick((None, None, self.bench.now + 2.011))
        attempts = min(self.pick((0, 0, 1, 2)), (own or self.bench.rules.max_attempts) - 1)
        fields = {"priority": self.pick((0, 0, 7)), "attempts": attempts, "crashed": self.pick((True, False))}
        number = (900 - self.count) if self.count % 3 == 0 else (1100 + self.count)
        return [Absorb([key(number, self.pick((1, 2, 3, 4, 5)), due=due, max_attempts=own, **fields)], "own")]

    def make_again(self) -> list[Intent]:
        known = list(self.bench.head.blocks.values())
        return [Absorb([self.pick(known).key], "own")] if known else []

    def make_claim(self) -> list[Intent]:
        return [Claim(f"t{self.count}", self.pick((1, 2, 3, 6)), self.pick(LEASES))]

    def token(self) -> tuple[str, int]:
        return self.held[-1 - self.pick(PICK) % len(self.held)]

    def make_settle(self) -> list[Intent]:
        if not self.held:
            return []
        keep, error = self.pick((None, None, True, False)), self.pick((None, "why"))
        results = self.pick(({}, {0: b"r", 2: b""}))
        return [
            Settle(*self.token(), self.pick(MASKS), self.pick(ACTIONS), self.pick(DELAYS), keep, error, "w", results)
        ]

    def make_settle_all(self) -> list[Intent]:
        action, delay = self.pick(ACTIONS), self.pick(DELAYS)
        return [Settle(each.token, each.block, each.mask, action, delay) for each in self.bench.head.leases]

    def make_extend(self) -> list[Intent]:
        return [Extend(*self.token(), self.pick(MASKS), self.pick((0.0, 2.019, 20.019)))] if self.held else []

    def make_remove(self) -> list[Intent]:
        head = self.bench.head
        if not head.blocks:
            return []
        block, mask = self.pick(list(head.blocks)), self.pick(MASKS)
        return [Remove(block, mask, self.pick((None, "cancelled")))]

    def make_purge(self) -> list[Intent]:
        return [Purge()]

    def make_freeze(self) -> list[Intent]:
        return [Freeze(f"f{self.count}")]

    def make_drop(self) -> list[Intent]:
        frozen = self.bench.head.frozen
        return [Drop(frozen.flush if frozen and self.pick((True, True, False)) else "another")]

    def drain(self) -> None:
        """Complete everything there is; then nothing is left."""
        self.pause(False)
        for turn in range(1000):
            head = self.bench.head
            if not head.blocks:
                break
            self.bench.now += 10.3
            self.do([Claim(f"d{turn}", 100, 5.0)])
            self.do([Settle(each.token, each.block, each.mask, "complete") for each in self.bench.head.leases])
            self.do([Drop(head.frozen.flush)] if head.frozen else [Freeze(f"d{turn}")])
        head = self.bench.head
        assert (head.blocks, head.leases, head.waiting, head.settled, head.frozen) == ({}, [], [], [], None)
        assert sorted(self.bench.finished) == sorted(self.model.keys), "every block is finished, and once"


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(rules=RULES, choices=st.binary(min_size=300, max_size=600))
def test_a_head_agrees_with_the_naive_one(rules: Rules, choices: bytes):
    history = History(rules, Dice(choices))
    history.run()
    history.drain()
