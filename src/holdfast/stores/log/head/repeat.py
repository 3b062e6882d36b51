"""What a repeat window adds to the head: where a write can arrive late, a finished block must not come back to life.

A finished block goes to the graveyard. It is forgotten after a deletion that was issued when nobody could create it
any more: after its birth and the window. Every forgetting is counted, so that an absorb from an older list is refused.

A block that was written after its window may be one that is long finished, so it is not absorbed. It may also be one
whose object was copied, restored or rewritten, so it is not deleted either: it is set aside (`quarantine.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from .. import names
from .state import Absorb, Bury, Forget, Head, Refreeze, Rules, SetAside

MARGIN = 2.0  # seconds by which the clocks of two processes may differ
_SESSION = 600.0  # seconds a session is remembered; a commit is given up long before


def bury(head: Head, finished: list[str], rules: Rules) -> list[str]:
    """Which finished blocks may be deleted at once: all of them where nothing is ever repeated."""
    if not rules.window:
        return finished
    head.beyond = replace(head.beyond, graveyard=(*head.beyond.graveyard, *finished))
    return []


def absorbable(head: Head, intent: Absorb) -> list[str]:
    """The keys that are new to the head; none when the list they come from may be older than a forgetting."""
    beyond = head.beyond
    if intent.source not in ("own", head.ticket()) or not (intent.keys or intent.spent):
        return []
    known = {block.key for block in head.blocks.values()} | beyond.refused
    if intent.spent:
        head.beyond = replace(beyond, graveyard=(*beyond.graveyard, *(key for key in intent.spent if key not in known)))
    return [key for key in intent.keys if key not in known]


def forget(head: Head, intent: Forget, rules: Rules) -> int:
    """How many entries of the graveyard have gone."""
    gone = set(intent.keys)
    left = tuple(key for key in head.beyond.graveyard if key not in gone)
    count = len(head.beyond.graveyard) - len(left)
    head.beyond = replace(head.beyond, graveyard=left, forgets=head.beyond.forgets + count)
    return count


def refreeze(head: Head, intent: Refreeze, rules: Rules) -> bool:
    """Whether the set was still frozen under its old name."""
    frozen = head.frozen
    if frozen is None or frozen.flush != intent.old:
        return False
    earlier = [*frozen.earlier, (intent.old, intent.made)]
    head.frozen = replace(frozen, flush=intent.new, since=head.now, earlier=earlier)
    return True


def signed(head: Head, session: str, attempt: int) -> Head:
    """The head with the mark of the commit that writes it, by which a lost answer is found out."""
    sessions = {
        name: mark for name, mark in head.beyond.sessions.items() if name != session and mark[1] > head.now - _SESSION
    }
    sessions[session] = (attempt, head.now)
    return replace(head, beyond=replace(head.beyond, sessions=sessions))


Fate: TypeAlias = Literal["admit", "purged", "late"]


def fate(key: str, made: float | None, head: Head, rules: Rules) -> Fate:
    """What becomes of a listed block that the head does not know, by its birth and the date of its object.

    Whoever judges a date asks here: intake, lookups, purges and flushes must not disagree. Without a date there is no
    judgement.
    """
    birth = names.birth_of(key) if made is not None else None
    if made is None or birth is None:
        return "admit"
    if max(birth, made) < head.beyond.purged_at:
        return "purged"
    if made - birth <= rules.window or is_copied(birth, made, rules):
        return "admit"
    return "late"


def is_copied(birth: float, made: float, rules: Rules) -> bool:
    """Born and written before the space was copied as a whole: its date is that of the copy, or of a rewrite before."""
    return birth < rules.epoch and made <= rules.epoch + rules.margin


class Sorted(msgspec.Struct, frozen=True):
    """Listed keys: those that may be absorbed or are, those that a purge has dropped, and late ones with dates."""

    good: list[str]
    purged: list[str]
    late: dict[str, float]

    def add(self, key: str, made: float | None, head: Head, rules: Rules) -> Fate:
        """One that the head does not know, by its fate."""
        its = fate(key, made, head, rules)
        if its == "late" and made is not None:
            self.late[key] = made
        else:
            (self.purged if its == "purged" else self.good).append(key)
        return its


def sort_out(head: Head, made: dict[str, float | None], rules: Rules) -> Sorted:
    """Keys with the dates of their objects by their fate; what the head knows is left alone."""
    found = Sorted([], [], {})
    known = {block.key for block in head.blocks.values()} | head.beyond.refused
    for key, date in made.items():
        if key in known:
            found.good.append(key)
        else:
            found.add(key, date, head, rules)
    return found


def set_aside(head: Head, intent: SetAside, rules: Rules) -> int:
    """How many were not known: another process may know a later epoch, and have absorbed them."""
    known = {block.key for block in head.blocks.values()} | head.beyond.refused
    new = {key: made for key, made in intent.keys.items() if key not in known}
    if new:
        head.beyond = replace(head.beyond, aside=head.beyond.aside | new)
    return len(new)


def bury_aside(head: Head, intent: Bury, rules: Rules) -> int:
    """How many go from what is set aside to the graveyard. Parts may be alive: their bundle can come a second time."""
    gone = [key for key in intent.keys if key in head.beyond.aside]
    if gone:
        known = {block.key for block in head.blocks.values()} | set(head.beyond.graveyard)
        parts = [key for key in intent.parts if key not in known]
        aside = {key: made for key, made in head.beyond.aside.items() if key not in gone}
        head.beyond = replace(head.beyond, aside=aside, graveyard=(*head.beyond.graveyard, *gone, *parts))
    return len(gone)


def deletable(head: Head, now: float, seconds: float) -> list[str]:
    """Buried blocks that nobody can create any more."""
    limit = now - seconds - MARGIN
    return [key for key in head.beyond.graveyard if (names.birth_of(key) or 0.0) < limit]


VERBS: dict[type[Any], Callable[[Head, Any, Rules], int]] = {
    Refreeze: refreeze,
    Forget: forget,
    SetAside: set_aside,
    Bury: bury_aside,
}
