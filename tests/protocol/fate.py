"""A3, A4: what becomes of a listed block that the head does not know. Pure; everybody who judges a date asks here."""

from __future__ import annotations

from .keys import Key
from .rules import R, Rules

ADMIT, PURGED, LATE = "admit", "purged", "late"


def fate(key: Key, created_at: int, *, epoch: int, purged_at: int, rules: Rules) -> str:
    """LATE is set aside, never deleted: a copy, a restore or a rewrite gives an object a new date."""
    if rules.A4_purged_at and max(key.birth, created_at) < purged_at:
        return PURGED
    if is_copied(key, created_at, epoch, rules):
        return ADMIT
    is_flush = key.flush is not None and not rules.A3_sleeping_flusher
    if created_at - key.birth > R and rules.A3_fence and not is_flush:
        return LATE
    return ADMIT


def is_copied(key: Key, created_at: int, epoch: int, rules: Rules) -> bool:
    """Born and written before the bucket was copied: its date is that of the copy."""
    if not rules.A3_copy_passes or key.birth >= epoch:
        return False
    return created_at <= epoch or not rules.A3_sleeper_after_copy
