"""Which faults a seed draws, how often, and how each one is told from the others."""

from __future__ import annotations

import random
from collections import Counter

import msgspec

WRITES = ("unavailable", "conflict", "refused", "lost", "repeated", "late", "double", "slow")
READS = ("unavailable", "refused", "slow")
LISTS = (*READS, "slow list")
WHOLE = ("freeze", "kill", "rewrite", "clocks", "lazy")
SPACE = ("unavailable", "refused", "doubt", "slow", "fence")
KINDS = tuple(dict.fromkeys((*WRITES, *LISTS, *SPACE, *WHOLE)))


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """How likely a request meets which fault; what is left out when a seed is shrunk."""

    rates: dict[str, float] = {}
    freezes: int = 0
    kills: int = 0
    rewrites: int = 0
    clocks: bool = False  # wall clocks and monotonic clocks that differ
    laziness: float = 0.0
    muted: frozenset[int] = frozenset()  # numbers of faults that do not happen


class Dice:
    """Draws fates; the same number of draws for each request, so that muting one fault moves no other."""

    def __init__(self, mix: Mix, seed: object) -> None:
        self.mix = mix
        self.random = random.Random(f"{seed}/faults")
        self.hits: Counter[str] = Counter()
        self.numbers: list[str] = []  # every fault drawn, in order
        self.is_quiet = False

    def draw(self, kinds: tuple[str, ...]) -> str:
        """A fault, or "" for none."""
        dice = self.random.random()
        if self.is_quiet:
            return ""
        for kind in kinds:
            rate = self.mix.rates.get(kind, 0.0)
            if dice < rate:
                return kind if self.happens(kind) else ""
            dice -= rate
        return ""

    def happens(self, kind: str) -> bool:
        """Count one; False: it is muted."""
        self.numbers.append(kind)
        if len(self.numbers) - 1 in self.mix.muted:
            return False
        self.hits[kind] += 1
        return True
