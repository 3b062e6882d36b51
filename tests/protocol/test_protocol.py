"""The protocol's model: no bad schedule with all rules, and bad ones without any single one of them."""

from __future__ import annotations

import hashlib
from itertools import islice

import pytest

from .controls import SHAPES, find
from .rules import NAMES, Rules
from .search import SCHEDULED, SMALL, broken_by, plans, scripted, world_of
from .world import Shape, World


@pytest.mark.parametrize("hundred", range(12))
def test_random_schedules_keep_every_promise(hundred: int) -> None:
    for seed in range(hundred * 100, hundred * 100 + 100):
        assert broken_by(world_of(seed, Rules())) is None, f"seed {seed}"


@pytest.mark.parametrize("rule", sorted(SHAPES))
def test_the_shapes_of_the_controls_are_good_with_all_rules(rule: str) -> None:
    """So what is found there without a rule is found because of it."""
    for seed in range(15):
        assert broken_by(world_of(seed, Rules(), SHAPES[rule])) is None, f"seed {seed}"


@pytest.mark.parametrize("purge", [False, True])
def test_changed_messages_keep_every_promise(purge: bool) -> None:
    changed = 0
    shape = Shape(messages=4, changes=True, priorities=True, purge=purge, upkeep=0.6)
    for seed in range(300):
        world = world_of(seed, Rules(), shape)
        assert broken_by(world) is None, f"seed {seed}"
        changed += sum(key.folder == "staged" for key in world.ghost.absorbed)
    assert changed > 100


def test_every_single_deviation_of_a_small_configuration() -> None:
    for plan in plans(SMALL.steps, 1):
        assert broken_by(scripted(plan, Rules())) is None, plan


def test_every_single_deviation_where_a_schedule_fires() -> None:
    for plan in plans(SCHEDULED.steps, 1):
        assert broken_by(scripted(plan, Rules(), SCHEDULED)) is None, plan


def test_some_of_the_schedules_with_two_deviations() -> None:
    """All of them are in the long form: python -m chaos protocol."""
    for plan in islice(plans(SMALL.steps, 2), 0, None, 97):
        assert broken_by(scripted(plan, Rules())) is None, plan


@pytest.mark.parametrize("rule", NAMES)
def test_without_a_rule_there_are_bad_schedules(rule: str) -> None:
    found = find(rule)
    assert found is not None
    print(f"{found.rule}: bad schedule {found.tried}: {found.why}")


def test_a_seed_is_one_schedule() -> None:
    for seed in range(20):
        assert _trace(seed) == _trace(seed)
    assert _trace(1) != _trace(2)


def _trace(seed: int) -> str:
    world = world_of(seed, Rules())
    seen = hashlib.sha256()
    carry_out = world.bucket.carry_out
    world.bucket.carry_out = lambda request: (seen.update(repr(request).encode()), carry_out(request))[1]  # type: ignore[method-assign]
    world.run()
    return seen.hexdigest()


def test_schedules_do_what_they_are_for() -> None:
    """Across the seeds everything happens: files, dead letters, spilled retries, manifests, replays, purges, …"""
    seen: dict[str, int] = {}
    for seed in range(150):
        world = world_of(seed, Rules())
        world.run()
        for name, number in _what_happened(world).items():
            seen[name] = seen.get(name, 0) + number
    assert min(seen.values()) > 0, seen


def _what_happened(world: World) -> dict[str, int]:
    ghost = world.ghost
    keys = list(ghost.contents)
    return {
        "acknowledged": sum(sent.answer == "stored" for sent in ghost.sent.values()),
        "unknown": sum(sent.answer == "unknown" for sent in ghost.sent.values()),
        "filed": len(ghost.filed),
        "dead letters": sum(key.log[1] == "dead" and key.folder == "inbox" for key in keys),
        "replayed letters": len(ghost.moved),
        "spilled": sum(key.folder == "later" and key.flush is not None for key in keys),
        "manifests": sum(bool(key.parts) for key in keys),
        "replays": sum(key.dedup.startswith("replay") for key in keys),
        "dedup": sum(key.dedup.startswith("key") for key in keys),
        "purges": sum(call["applied"] is not None for call in ghost.purge_calls),
        "deletes": len(ghost.deleted_at),
        "slots": sum(key.folder == "staged" for key in ghost.absorbed),
        "second shard": sum(key.log[1] == "s1" for key in ghost.absorbed),
        "lease lost": len(ghost.denied),
        "touched": len(ghost.touched),
        "brought back": len(ghost.brought_back),
        "copies": world.copied,
    }
