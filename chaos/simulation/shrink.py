"""A failing seed made smaller: fewer processes, steps, operations and faults, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from .faults import Mix
from .plan import Plan
from .scene import Outcome, play

_MOST_PLAYS = 120


def kind_of(violation: str) -> str:
    """What is the same however the rest of the sentence reads."""
    return violation.partition(":")[0].partition(" (at")[0]


def shrink(plan: Plan, first: Outcome) -> tuple[Plan, Outcome]:
    """The smallest plan found, and what comes of it."""
    kind, best, outcome, plays = kind_of(first.violations[0]), plan, first, 0
    is_smaller = True
    while is_smaller and plays < _MOST_PLAYS:
        is_smaller = False
        for smaller in _smaller(best, outcome):
            plays += 1
            tried = play(smaller)
            if any(kind_of(each) == kind for each in tried.violations):
                best, outcome, is_smaller = smaller, tried, True
                break
            if plays >= _MOST_PLAYS:
                break
    return best, outcome


def _smaller(plan: Plan, outcome: Outcome) -> Iterator[Plan]:
    """Plans with something less, large parts first."""
    if plan.processes > 1:
        yield replace(plan, processes=plan.processes - 1)
    if plan.clients > 1:
        yield replace(plan, clients=plan.clients - 1)
    for part in (plan.steps // 2, plan.steps - 1):
        if 0 < part < plan.steps:
            yield replace(plan, steps=part)
    if plan.shards > 1:
        yield replace(plan, shards=1)
    for mix in _milder(plan.mix, outcome):
        yield replace(plan, mix=mix)
    for name in list(plan.operations):
        yield replace(plan, operations={each: weight for each, weight in plan.operations.items() if each != name})


def _milder(mix: Mix, outcome: Outcome) -> Iterator[Mix]:
    for name, none in (("freezes", 0), ("kills", 0), ("rewrites", 0), ("clocks", False), ("laziness", 0.0)):
        if getattr(mix, name):
            yield replace(mix, **{name: none})
    for kind in mix.rates:
        yield replace(mix, rates={each: rate for each, rate in mix.rates.items() if each != kind})
    left = [number for number in range(outcome.faults) if number not in mix.muted]
    size = len(left) // 2
    while size:
        for start in range(0, len(left), size):
            yield replace(mix, muted=mix.muted | frozenset(left[start : start + size]))
        size //= 2
