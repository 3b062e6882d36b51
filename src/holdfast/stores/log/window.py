"""What a repeat window adds to the head: where a write can arrive late, a finished block must not come back to life.

A finished block goes to the graveyard. It is forgotten after a deletion that was issued when nobody could create it
any more: after its birth and the window. Every forgetting is counted, so that an absorb from an older list is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from . import names
from .state import Absorb, Forget, Head, Refreeze, Rules

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
    known = {block.key for block in head.blocks.values()} | set(beyond.graveyard)
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


def signed(head: Head, session: str, attempt: int, turn: str = "") -> Head:
    """The head with the mark of the commit that writes it, by which a lost answer is found out."""
    sessions = {
        name: mark for name, mark in head.beyond.sessions.items() if name != session and mark[1] > head.now - _SESSION
    }
    sessions[session] = (attempt, head.now)
    return replace(head, beyond=replace(head.beyond, sessions=sessions, turn=turn))


def seated(head: Head, guests: Sequence[str]) -> Head:
    """The head with these sessions first in line; who has not replaced it yet has made no attempt."""
    if not guests:
        return head
    known = head.beyond.sessions
    sessions = {name: (known.get(name, (0, 0.0))[0], head.now) for name in guests}
    sessions |= {name: mark for name, mark in known.items() if name not in sessions}
    return replace(head, beyond=replace(head.beyond, sessions=sessions))


def is_late(key: str, made: float | None, rules: Rules) -> bool:
    """Created after the window of its birth: it was never acknowledged."""
    birth = names.birth_of(key)
    return made is not None and birth is not None and made - birth > rules.window


def is_purged(head: Head, made: float | None) -> bool:
    return made is not None and made < head.beyond.purged_at


def deletable(head: Head, now: float, seconds: float) -> list[str]:
    """Buried blocks that nobody can create any more."""
    limit = now - seconds - MARGIN
    return [key for key in head.beyond.graveyard if (names.birth_of(key) or 0.0) < limit]


def split(head: Head, keys: Iterable[str], made: dict[str, float | None], rules: Rules) -> tuple[list[str], list[str]]:
    """Listed keys that may be absorbed or are, and those that must be deleted; a purge leaves what is held alone."""
    good: list[str] = []
    bad: list[str] = []
    held = {block.key for block in head.blocks.values()}
    for key in keys:
        wrong = key not in held and (is_late(key, made[key], rules) or is_purged(head, made[key]))
        (bad if wrong else good).append(key)
    return good, bad


VERBS: dict[type[Any], Callable[[Head, Any, Rules], int]] = {Refreeze: refreeze, Forget: forget}
