"""Negative controls: without a rule there are bad schedules, and here is where to look for them.

Most show up among the mixed shapes of `search.shape_of`. For the others, which need much to come together, a shape that
makes that likely: `pace` small so that a whole life fits into R, late requests that come very late, and the like.
"""

from __future__ import annotations

from typing import NamedTuple

from .rules import NAMES, Rules
from .search import broken_by, world_of
from .world import Shape

MOST = 3000  # schedules that are tried for one rule
_LATE = (0, 0, 1, 0, 0)  # the only fault: a request is applied late

SHAPES: dict[str, Shape] = {
    "C1_head_begun_first": Shape(
        messages=2, attempts=1, steps=300, jumps=0.01, haste=0.01, failures=False, delete=True, lazy=0.3, upkeep=0.3
    ),
    "C2_more_than_last_nonce": Shape(steps=150, faults=0.25, jumps=0.0, haste=0.2, pace=0.02, lazy=0.3, upkeep=0.5),
    "C2_dropped_session": Shape(messages=4, steps=300, jumps=0.08, haste=0.2, pace=0.27, failures=False, upkeep=0.3),
    "C3_lease_margin": Shape(messages=4, steps=300, faults=0.06, jumps=0.0, pace=0.05, lazy=0.3, upkeep=0.5),
    "A3_sleeper_after_copy": Shape(messages=4, attempts=1, faults=0.25, haste=0.02, copies=0.03, upkeep=0.7),
    "A4_purged_at": Shape(
        messages=4, attempts=1, faults=0.25, jumps=0.08, haste=0.03, failures=False, purge=True, lazy=0.3, upkeep=0.3
    ),
    "A6_forgets": Shape(
        steps=150, faults=0.25, jumps=0.0, haste=0.01, pace=0.02, failures=False, lazy=0.0, upkeep=0.7
    ),
    "F3_missing_abandons": Shape(
        steps=300, faults=0.25, jumps=0.01, haste=0.03, pace=0.02, failures=False, lazy=0.0, upkeep=0.5
    ),
    "F4_by_fate": Shape(messages=4, attempts=1, faults=0.12, jumps=0.08, copies=0.03, upkeep=0.5),
    "F4_absorbed_after_drop": Shape(messages=4, steps=300, faults=0.25, haste=0.2, pace=0.05, lazy=0.0, upkeep=0.5),
    "F5_drop_if_same": Shape(
        messages=4, gap=4, attempts=2, faults=0.25, jumps=0.0, several=True, failures=False, lazy=0.0, upkeep=0.7
    ),
    "G2_delete_after_window": Shape(
        messages=3, gap=2, faults=0.3, kinds=_LATE, jumps=0.0, pace=0.02, haste=0.01, failures=False, lazy=0.0,
        upkeep=0.6, steps=300,
    ),
    "G2_server_margin": Shape(
        messages=3, gap=3, faults=0.2, kinds=_LATE, jumps=0.0, pace=0.05, haste=0.005, failures=False, lazy=0.0,
        upkeep=0.7, steps=400,
    ),
    "purge_spilled": Shape(steps=300, faults=0.06, purge=True, upkeep=0.5),
    "purge_server_time": Shape(
        messages=8, gap=3, faults=0.06, jumps=0.0, pace=0.05, purge=True, failures=False, lazy=0.0, upkeep=0.9
    ),
    "dedup_confirmed": Shape(messages=4, attempts=1, jumps=0.0, pace=0.05, dedup=True, lazy=0.3, upkeep=0.7),
    "shard_per_producer": Shape(messages=4, shards=2, faults=0.0, jumps=0.0),
    "delete_incarnation": Shape(delete=True),
    "change_unlisted": Shape(changes=True, upkeep=0.7, lazy=0.0),
    "change_only_waiting": Shape(changes=True, upkeep=0.7),
    "S1_one_swap": Shape(messages=1, schedules=True, upkeep=0.7, lazy=0.0),
    "S2_mark_compared": Shape(messages=1, schedules=True, upkeep=0.7, lazy=0.0),
    "delete_waits": Shape(messages=6, gap=4, steps=300, faults=0.06, jumps=0.0, pace=0.1, delete=True, upkeep=0.5),
    "delete_window": Shape(messages=4, steps=300, delete=True, upkeep=0.5),
}  # fmt: skip


class Found(NamedTuple):
    rule: str
    tried: int
    why: str


def find(rule: str, most: int = MOST) -> Found | None:
    """The first bad schedule without the rule."""
    rules = Rules().without(rule)
    for seed in range(most):
        why = broken_by(world_of(seed, rules, SHAPES.get(rule)))
        if why is not None:
            return Found(rule, seed + 1, why)
    return None


def count(rule: str, schedules: int) -> int:
    """How many of so many schedules are bad without the rule."""
    rules = Rules().without(rule)
    return sum(broken_by(world_of(seed, rules, SHAPES.get(rule))) is not None for seed in range(schedules))


assert set(SHAPES) <= set(NAMES)
