"""R12: the model of the log protocol: random schedules, and all with two deviations of a small configuration."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable
from typing import Any

from ..settings import Settings
from ..verdict import EXAMPLES, Verdict


class _Tally:
    """Schedules as they end."""

    def __init__(self, settings: Settings, search: Any) -> None:
        self.settings = settings
        self.search = search
        self.bad: list[str] = []
        self.sent = 0
        self.acknowledged = 0
        self._told = time.monotonic()

    def run(self, kind: str, worlds: Iterable[tuple[Any, Any]]) -> int:
        """How many schedules there were; (name, world) each."""
        count = 0
        for count, (name, world) in enumerate(worlds, 1):
            broken = self.search.broken_by(world)
            if broken is not None:
                self.bad.append(f"{kind} {name}: {broken}")
            answers = [sent.answer for sent in world.ghost.sent.values()]
            self.sent += len(answers)
            self.acknowledged += answers.count("stored")
            self._tell(f"{count:,} {kind} schedules, {len(self.bad)} bad")
        return count

    def _tell(self, text: str) -> None:
        if not self.settings.quiet and time.monotonic() > self._told + 5.0:
            self._told = time.monotonic()
            sys.stderr.write(f"protocol: {text}\n")
            sys.stderr.flush()


async def protocol(settings: Settings) -> Verdict:
    """`--messages` is the number of random schedules; the short form allows one deviation, the full one two."""
    search = importlib.import_module("tests.protocol.search")
    rules = importlib.import_module("tests.protocol.rules").Rules()
    tally = _Tally(settings, search)
    first = (settings.seed - 1) * settings.messages
    seeds = range(first, first + settings.messages)
    count = tally.run("random", ((seed, search.world_of(seed, rules)) for seed in seeds))
    most = 2 if settings.strict else 1
    plans = search.plans(search.SMALL.steps, most)
    scripted = tally.run("scripted", ((plan, search.scripted(plan, rules)) for plan in plans))
    verdict = Verdict(run="protocol", attempted=tally.sent, acknowledged=tally.acknowledged)
    verdict.notes = {"random schedules": count, f"schedules with at most {most} deviations": scripted}
    for bad in tally.bad[:EXAMPLES]:
        verdict.expect(False, bad)
    return verdict
