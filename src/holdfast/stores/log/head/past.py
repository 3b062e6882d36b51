"""The attempts that did not end a message: the head remembers those at the messages that it holds.

What happened before lies in the block, and what a flush writes takes along what the head knows. A version that does not
know this section of a head leaves it out when it writes: then those attempts are forgotten, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ....limits import HISTORY_ATTEMPTS, remembered
from .state import ENDLESS, Head, Lease, Past, Rules, Settled, Waiting

_ENTRY_BYTES = 50  # of one besides its texts
_SOME = 64  # from so many on it is worth to look which of them nobody can ask for any more


def add(
    head: Head, lease: Lease, mask: int, rules: Rules, *, end: float, worker: str | None, error: str | None
) -> None:
    """An attempt is over. What workers try on dead letters is not remembered."""
    if rules.max_attempts == ENDLESS:
        return
    if lease.attempts > HISTORY_ATTEMPTS:
        _make_room(head, lease.block, mask)
    head.past.append(Past(lease.block, mask, lease.claimed, end, remembered(worker), remembered(error)))


def _make_room(head: Head, block: int, mask: int) -> None:
    """Forget the oldest attempts at messages that have as many as are remembered, for one more."""
    newer = [mask, mask] + [0] * (HISTORY_ATTEMPTS - 1)  # newer[n]: the places with n newer ones, or more
    for at in range(len(head.past) - 1, -1, -1):
        old = head.past[at]
        both = old.mask & mask if old.block == block else 0
        if both & newer[-1]:
            left = old.mask & ~newer[-1]
            head.past[at : at + 1] = [replace(old, mask=left)] if left else []
        if both:
            for count in range(HISTORY_ATTEMPTS, 0, -1):
                newer[count] |= newer[count - 1] & both


def prune(head: Head, *, finished: bool) -> None:
    """Forget what is known of messages that have left."""
    if not finished and len(head.past) < _SOME:
        return
    frozen = head.frozen
    here = _masks(
        [*head.leases, *head.waiting, *head.settled, *(_all(frozen.settled, frozen.waiting) if frozen else ())]
    )
    left = [(each, each.mask & here.get(each.block, 0)) for each in head.past]
    head.past = [each if mask == each.mask else replace(each, mask=mask) for each, mask in left if mask]


def _all(settled: Iterable[Settled], waiting: Iterable[Waiting]) -> Iterable[Settled | Waiting]:
    yield from settled
    yield from waiting


def _masks(groups: Iterable[Lease | Waiting | Settled]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in groups:
        found[each.block] = found.get(each.block, 0) | each.mask
    return found


def of(head: Head, block: int, place: int) -> list[Past]:
    """The attempts at one message, the newest last."""
    return [each for each in head.past if each.block == block and each.mask >> place & 1]


def has_some(head: Head, block: int, mask: int) -> bool:
    """Whether something is known of one of these messages."""
    return any(each.block == block and each.mask & mask for each in head.past)


def waiting_bytes(head: Head) -> int:
    """About how many bytes it takes that the waiting messages are remembered."""
    if not head.past:
        return 0
    here = _masks(head.waiting)
    those = (each for each in head.past if each.mask & here.get(each.block, 0))
    return sum(_ENTRY_BYTES + len(each.error or "") + len(each.worker or "") for each in those)
