"""Everything a seed decides before it begins, as a value: what is left out when it is shrunk is left out here."""

from __future__ import annotations

import random

import msgspec
from msgspec.structs import replace

from .faults import Mix

OPERATIONS = {  # how often each is chosen
    "append": 22,
    "claim": 26,
    "settle": 34,
    "extend": 4,
    "cancel": 3,
    "get": 4,
    "stats": 2,
    "scan": 2,
    "maintain": 3,
    "idle": 8,
    "replay": 2,
    "purge": 1,
    "dead": 2,
    "burst": 2,
}
_ALWAYS = ("append", "claim", "settle", "idle")
_LASTING = 0.15  # of the seeds on buckets
_MOVES = 0.15  # of the seeds
_LASTING_RATES: tuple[dict[str, float], ...] = ({"slow list": 0.3}, {"slow list": 0.1}, {"double": 0.3, "late": 0.05})
_RATES = {
    "bucket": {
        "unavailable": 0.04,
        "conflict": 0.03,
        "refused": 0.02,
        "lost": 0.05,
        "repeated": 0.03,
        "late": 0.04,
        "double": 0.04,
        "slow": 0.05,
        "slow list": 0.05,
    },
    "folder": {"unavailable": 0.03, "refused": 0.03, "slow": 0.05},
    "slatedb": {"unavailable": 0.02, "doubt": 0.04, "slow": 0.05, "fence": 0.01},
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One seed."""

    policy: str
    seed: int
    processes: int
    clients: int  # in each process
    steps: int  # operations of each client
    pace: float  # mean seconds between the operations of a client
    shards: int
    archive: bool
    moves: bool  # dead letters go to a queue of their own
    operations: dict[str, int]
    timeout: float  # of every operation
    trip: float  # seconds a request to the space takes
    file_threshold: int
    mix: Mix


def plan_of(policy: str, seed: int) -> Plan:
    """Swarm: each seed has its own few faults and operations, some many of them, some hardly any."""
    dice = random.Random(f"{policy}/{seed}/plan")
    operations = {
        name: weight
        for name, weight in OPERATIONS.items()
        if name in _ALWAYS or dice.random() < (0.3 if name in ("purge", "replay") else 0.6)
    }
    harm = dice.choice((0.0, 0.3, 1.0, 1.0, 2.5))
    rates = {kind: rate * harm * dice.random() * 2 for kind, rate in _RATES[policy].items() if dice.random() < 0.6}
    bucket = policy == "bucket"
    plan = Plan(
        policy=policy,
        seed=seed,
        processes=dice.choice((2, 2, 2, 3)) if policy != "slatedb" else dice.randint(1, 2),
        clients=dice.choice((1, 1, 1, 1, 2)),
        steps=dice.randint(4, 9) if bucket else dice.randint(8, 20),
        pace=dice.choice((0.05, 0.5, 1.5, 3.0)),
        shards=dice.choice((1, 1, 1, 1, 2)) if bucket else 1,
        archive=dice.random() < 0.85,
        moves=random.Random(f"{policy}/{seed}/moves").random() < _MOVES,
        operations=operations,
        timeout=dice.choice((4.0, 10.0, 30.0)),
        trip=dice.choice((0.002, 0.02, 0.08)) if bucket else dice.choice((0.0002, 0.005)),
        file_threshold=dice.choice((200, 1 << 20)),
        mix=Mix(
            rates=rates,
            freezes=dice.choice((0, 0, 1, 2, 3)),
            kills=dice.choice((0, 0, 1, 2)),
            rewrites=int(bucket and dice.random() < 0.2),
            clocks=dice.random() < 0.7,
            laziness=dice.choice((0.0, 0.0, 0.002, 0.01)),
        ),
    )
    return _lasting(plan, dice) if bucket and dice.random() < _LASTING else plan


def _lasting(plan: Plan, dice: random.Random) -> Plan:
    """Longer than a repeat window: finished blocks are deleted and forgotten while others list and commit."""
    return replace(
        plan,
        processes=3,
        clients=1,
        steps=dice.randint(12, 16),
        pace=dice.choice((1.5, 2.5)),
        shards=1,
        operations={name: OPERATIONS[name] for name in ("append", "claim", "settle", "burst")},
        timeout=30.0,
        mix=replace(plan.mix, rates=dice.choice(_LASTING_RATES), rewrites=0, freezes=0, kills=0),
    )
