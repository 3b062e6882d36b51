"""What the checker says of a run, and how people read it."""

from __future__ import annotations

import msgspec

EXAMPLES = 5
DECIDING = (
    "lost",
    "unexpected",
    "unfinished",
    "duplicate_completions",
    "zombie_completions",
    "early_steals",
    "miscounted_attempts",
)


class Recovery(msgspec.Struct):
    """Seconds from a kill to the next start of a message it left behind."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0

    @classmethod
    def of(cls, waits: list[float]) -> Recovery:
        if not waits:
            return cls()
        ordered = sorted(waits)
        return cls(len(ordered), ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])


class Verdict(msgspec.Struct, kw_only=True):
    """Valid when every deciding count is zero and nothing that the run itself expects has failed."""

    run: str = ""
    attempted: int = 0
    acknowledged: int = 0
    completed: int = 0
    dead: int = 0
    refused: int = 0
    lost: int = 0
    unexpected: int = 0
    unfinished: int = 0
    duplicate_completions: int = 0
    zombie_completions: int = 0
    early_steals: int = 0
    miscounted_attempts: int = 0
    duplicate_executions: int = 0
    order_inversions: int = 0
    kills: int = 0  # SIGKILLs of workers
    effective_kills: int = 0  # signals that hit a process with a leased message
    recovery: Recovery = msgspec.field(default_factory=Recovery)
    failures: list[str] = msgspec.field(default_factory=list)  # what the run itself expects and did not get
    notes: dict[str, float | int | str] = msgspec.field(default_factory=dict)
    examples: dict[str, list[str]] = msgspec.field(default_factory=dict)

    @property
    def valid(self) -> bool:
        return not self.failures and not any(getattr(self, name) for name in DECIDING)

    def expect(self, condition: bool, sentence: str) -> None:
        """Something this run promises beyond the common counts."""
        if not condition:
            self.failures.append(sentence)

    def bound(self) -> float:
        """The rate that zero findings still allow with 95 % confidence: 3/N."""
        return 3 / self.acknowledged if self.acknowledged else 1.0


def lines(verdict: Verdict) -> list[str]:
    """The verdict for people."""
    text = [f"{verdict.run}: {'valid' if verdict.valid else 'INVALID'}"]
    text.append(
        f"  attempted {verdict.attempted}, acknowledged {verdict.acknowledged}, completions {verdict.completed}, "
        f"dead {verdict.dead}, settlements refused {verdict.refused}"
    )
    for name in DECIDING:
        count = getattr(verdict, name)
        bound = f"  (< {verdict.bound():.1e} a message, 95 %)" if not count and verdict.acknowledged else ""
        text.append(f"  {name.replace('_', ' '):<24}{count:>8}{bound}")
        text += [f"      {example}" for example in verdict.examples.get(name, ())]
    text.append(f"  duplicate executions    {verdict.duplicate_executions:>8}  (allowed; {verdict.kills} worker kills)")
    text.append(f"  order inversions        {verdict.order_inversions:>8}")
    text.append(f"  faults that hit a lease {verdict.effective_kills:>8}")
    if verdict.recovery.count:
        r = verdict.recovery
        text.append(f"  recovery of {r.count} messages: p50 {r.p50:.2f} s, p99 {r.p99:.2f} s, max {r.max:.2f} s")
    text += [f"  {name}: {value}" for name, value in verdict.notes.items()]
    text += [f"  FAILED: {failure}" for failure in verdict.failures]
    return text
